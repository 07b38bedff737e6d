/** API for lists of recordings and lists of events. */
import type { Reviews } from '../evidence/reviews.ts';
import { withReviews } from './api-reviews.ts';
import type { FastifyInstance } from 'fastify';
import { createLimiter } from '../../async/limiter.ts';
import { TailcastError } from '../../errors.ts';
import { CATALOG_QUERY } from '../library/catalog-query.ts';
import type { Catalog } from '../library/catalog.ts';
import { listedRecording } from '../library/listed-recording.ts';
import type { RecorderSearch } from '../search/recorder-search.ts';
import { EVENT_QUERY, type EventSearch } from '../events/event-query.ts';
import type { Cursors } from './cursors.ts';
import { createListShares } from './list-shares.ts';
import type { ViewerAccess } from './viewer-access.ts';
import { noRuleField, ownerOf } from './viewing.ts';
import { parse, signalOf, viewerOf } from './api-requests.ts';

/**
 * Limits of event searches, and of signature checks. The limits are low because each of these requests reads many bytes
 * from the store.
 */
export const STORE_READ_LIMITS = { maxActive: 4, maxActivePerOwner: 2, maxWaiting: 16 };

export interface ListsApiOptions {
  readonly catalog: Catalog;
  readonly access: ViewerAccess;
  readonly search: EventSearch;
  /** Index of the catalogue; undefined if the recorder has none. */
  readonly index: RecorderSearch | undefined;
  /** True if viewers may search the index. */
  readonly isSearchable: boolean;
  readonly cursors: Cursors;
}

/** Adds the lists of recordings and events. */
export function addLists(
  app: FastifyInstance,
  { catalog, access, search, index, isSearchable, cursors }: ListsApiOptions,
  reviews: Reviews,
): void {
  function openCursor<T extends { readonly cursor?: string }>(list: string, query: T): T {
    const { cursor } = query;
    if (cursor === undefined) return query;
    const opened = cursors.open(list, cursor);
    if (opened === undefined)
      throw new TailcastError(
        'USAGE',
        'this recorder did not issue the cursor: repeat the request without a cursor',
      );
    return { ...query, cursor: opened };
  }

  const eventShares = createLimiter({
    ...STORE_READ_LIMITS,
    full: () => new TailcastError('SEARCH_BUSY'),
  });
  const list = createListShares(catalog);
  app.get('/api/v1/recordings', async (request, reply) => {
    const viewer = await viewerOf(access, request, reply);
    const asked = parse(CATALOG_QUERY, request.query);
    const { sort = 'newest' } = asked;
    // Use one cursor name per sort order, because a cursor is valid for only one sort order.
    const name = sort === 'newest' ? 'recordings' : `recordings ${sort}`;
    const query = openCursor(name, asked);
    const page = await list(query, access.scope(viewer), ownerOf(viewer), signalOf(request, reply));
    await access.saw(viewer, 'list', request);
    return {
      recordings: await withReviews(reviews, page.recordings.map(listedRecording)),
      ...(page.next === undefined ? {} : { next: cursors.seal(name, page.next) }),
      ...noRuleField(access.scope(viewer), viewer),
      // The page shows the search field only if search is available.
      ...(index !== undefined && isSearchable ? { search: true } : {}),
    };
  });
  app.get('/api/v1/events', async (request, reply) => {
    const viewer = await viewerOf(access, request, reply);
    if (access.scope(viewer) !== 'everything') throw new TailcastError('VIEW_REFUSED');
    const query = openCursor('events', parse(EVENT_QUERY, request.query));
    const signal = signalOf(request, reply);
    const { events, next, skipped } = await eventShares.run(
      () => search.find(query, signal),
      signal,
      ownerOf(viewer),
    );
    await access.saw(viewer, 'events', request);
    const more = next === undefined ? '' : `,"next":${JSON.stringify(cursors.seal('events', next))}`;
    const missing = skipped.length === 0 ? '' : `,"skipped":${JSON.stringify(skipped)}`;
    // Send the stored text, because JSON.parse would round 64-bit integers.
    return reply.type('application/json').send(`{"events":[${events.join(',')}]${more}${missing}}`);
  });
}
