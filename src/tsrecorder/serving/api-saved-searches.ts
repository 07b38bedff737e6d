/**
 * API for saved searches.
 *
 * ```
 * /api/v1/searches        {personal, shared, mayWrite, mayShare}: see wire/recorder-api/saved-search.ts
 * POST /api/v1/searches   a change as JSON; requires the viewer right `review`
 * ```
 */
import type { FastifyInstance, FastifyRequest } from 'fastify';
import { TailcastError } from '../../errors.ts';
import type { SavedSearches } from '../../wire/recorder-api/saved-search.ts';
import { SEARCH_CHANGE, type SearchStore } from '../evidence/saved-searches.ts';
import { parse, viewerOf } from './api-requests.ts';
import { checkChange, MAX_BODY_BYTES, type ReviewApiOptions } from './api-reviews.ts';
import type { Viewer } from './viewing.ts';

export interface SavedSearchApiOptions extends Pick<ReviewApiOptions, 'access'> {
  readonly searches: SearchStore;
}

/** Path of the route that accepts changes. */
export const SEARCHES_PATH = '/api/v1/searches';

/** Adds the routes to `app`. */
export function addSavedSearchApi(app: FastifyInstance, { searches, access }: SavedSearchApiOptions): void {
  async function searchesOf(viewer: Viewer): Promise<SavedSearches> {
    const { personal, shared } = await searches.of(ownerOf(viewer));
    const mayWrite = access.mayReview(viewer);
    // Restricted viewers get no shared searches: shared searches may contain names of users and namespaces that the
    // viewer must not see.
    const seesAll = access.scope(viewer) === 'everything';
    return { personal, shared: seesAll ? shared : [], mayWrite, mayShare: mayWrite && seesAll };
  }
  app.get(SEARCHES_PATH, async (request, reply) => {
    return searchesOf(await viewerOf(access, request, reply));
  });
  app.post(SEARCHES_PATH, { bodyLimit: MAX_BODY_BYTES }, async (request: FastifyRequest, reply) => {
    checkChange(request);
    const viewer = await viewerOf(access, request, reply);
    const change = parse(SEARCH_CHANGE, request.body);
    if (!access.mayReview(viewer) || (change.isShared && access.scope(viewer) !== 'everything'))
      throw new TailcastError('VIEW_REFUSED', 'you may not save searches on this recorder');
    // Store the event before the change, so that every change has an event.
    await access.saw(viewer, `searches-${change.kind}`, request);
    await searches.change(ownerOf(viewer), viewer.user ?? viewer.node, change);
    return searchesOf(viewer);
  });
}

/** The owner text of a node contains a space, so it never equals a login. */
function ownerOf({ user, nodeId }: Viewer): string {
  return user ?? `node ${nodeId}`;
}
