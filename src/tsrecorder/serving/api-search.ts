/**
 * API for searching sessions by user, pod and other names, and by the text of their screens. Each response contains the
 * progress of the index. Restricted viewers get only the state of the index. Sessions that they must not see (hidden
 * sessions) change this state only if very many are pending. Responses to restricted viewers are delayed to fixed time
 * steps. Otherwise the response time would show whether hidden sessions contain a word (ADR 38).
 *
 * ```
 * /api/v1/search                     {sessions: [{recording, hits, more, partial, stoppedAt?}], next?, index};
 *                                    q, limit, cursor
 * /api/v1/search/facets              frequent values among the newest sessions found; q
 * /api/v1/recordings/:id/search      {hits, more, index}: matches in one recording; q, limit
 *     ?view=1 on these routes: sent by an open page. Repeated requests cause only one access event
 * ```
 */
import type { FastifyInstance } from 'fastify';
import { z } from 'zod';
import { createTimeSteps, type TimeSteps } from '../../async/time-steps.ts';
import { TailcastError } from '../../errors.ts';
import { MAX_QUERY, parseQuery, printQuery, QueryError, type Query } from '../../search/query.ts';
import type { FoundSession } from '../../search/search-index.ts';
import type { Catalog } from '../library/catalog.ts';
import { termsOf } from '../library/index-rows.ts';
import type { Scope } from '../library/scope.ts';
import { listedRecording } from '../library/listed-recording.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import type { IndexProgress } from '../search/index-progress.ts';
import type { RecorderSearch } from '../search/recorder-search.ts';
import type { Reviews } from '../evidence/reviews.ts';
import { parse, viewerOf } from './api-requests.ts';
import { addIndexApi } from './api-index.ts';
import { visibleIds, withReviewedIds, withReviews } from './api-reviews.ts';
import type { ViewerAccess } from './viewer-access.ts';
import { noRuleField, ownerOf, type Viewer } from './viewing.ts';

export interface SearchApiOptions {
  readonly index: RecorderSearch | undefined;
  readonly isSearchable: boolean;
  readonly catalog: Pick<Catalog, 'find' | 'shown'>;
  readonly reviews: Reviews;
  readonly access: ViewerAccess;
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs: () => number;
  /** Time steps for responses to restricted viewers. */
  readonly steps?: TimeSteps;
}

const STEP_MS = 100;
/**
 * Maximum number of pending recordings that are checked for a restricted viewer. Above this number, the index counts as
 * incomplete for all restricted viewers.
 */
const MAX_CHECKED = 1000;

/** The part of the progress of the index that the viewer may see. */
type ShownIndex = Pick<IndexProgress, 'state' | 'problem'> & Partial<IndexProgress>;

const q = z
  .string()
  .max(MAX_QUERY * 2)
  .default('');
const view = z.enum(['0', '1']).default('0');
const pageQuery = z.strictObject({
  q,
  view,
  limit: z.coerce.number().int().min(1).max(100).default(50),
  cursor: z.string().max(100).exactOptional(),
});
const facetQuery = z.strictObject({ q, view });
const withinQuery = z.strictObject({ q, view, limit: z.coerce.number().int().min(1).max(1000).default(100) });
const parameters = z.object({ id: z.string() });

/** @throws TailcastError `SEARCH_UNAVAILABLE` */
function requireIndex({ index }: SearchApiOptions): RecorderSearch {
  if (index === undefined) throw new TailcastError('SEARCH_UNAVAILABLE', 'this recorder has no index');
  return index;
}

/** @throws TailcastError `SEARCH_UNAVAILABLE` */
function requireSearch(options: SearchApiOptions): RecorderSearch {
  if (options.isSearchable) return requireIndex(options);
  throw new TailcastError('SEARCH_UNAVAILABLE', 'search is disabled; start the recorder with --search true');
}

/** Adds the routes to `app`. */
export function addSearchApi(app: FastifyInstance, options: SearchApiOptions): void {
  const { access, catalog, steps = createTimeSteps({ stepMs: STEP_MS }) } = options;
  const answer = <T>(viewer: Viewer, act: () => Promise<T>): Promise<T> =>
    access.scope(viewer) === 'everything' ? act() : steps.run(act);
  const indexed = (): RecorderSearch => requireIndex(options);
  const searching = (): RecorderSearch => requireSearch(options);

  const indexFor = (viewer: Viewer): Promise<ShownIndex> => shownIndex(options, viewer);
  const reviewed = (viewer: Viewer, query: Query): Promise<Query> =>
    withReviewedIds(options.reviews, query, visibleIds(catalog, access.scope(viewer)));

  app.get('/api/v1/search', async (request, reply) => {
    const viewer = await viewerOf(access, request, reply);
    return answer(viewer, async () => {
      const { q: text, limit, cursor } = parse(pageQuery, request.query);
      const query = readQuery(text, options.nowMs());
      await access.saw(viewer, 'search', request);
      const page = cursor === undefined ? { limit } : { limit, cursor };
      // Read the progress before the query, because sessions that are indexed during the query may be missing from the
      // result.
      const index = await indexFor(viewer);
      const found = await searching().ask(
        'find',
        { query: await reviewed(viewer, query), may: termsOf(access.scope(viewer)), page },
        ownerOf(viewer),
      );
      // Report an unavailable index as an error, because an empty result would be misleading.
      const { state, problem } = index.state === 'unavailable' ? index : await indexFor(viewer);
      if (state === 'unavailable' && found.sessions.length === 0)
        throw new TailcastError('SEARCH_UNAVAILABLE', problem);
      return {
        query: printQuery(query),
        sessions: await visibleSessions(options, found.sessions, access.scope(viewer)),
        ...(found.next === undefined ? {} : { next: found.next }),
        ...noRuleField(access.scope(viewer), viewer),
        index,
      };
    });
  });
  app.get('/api/v1/search/facets', async (request, reply) => {
    const viewer = await viewerOf(access, request, reply);
    return answer(viewer, async () => {
      const query = readQuery(parse(facetQuery, request.query).q, options.nowMs());
      await access.saw(viewer, 'search', request);
      const index = await indexFor(viewer);
      const facets = await searching().ask(
        'facets',
        { query: await reviewed(viewer, query), may: termsOf(access.scope(viewer)) },
        ownerOf(viewer),
      );
      return { ...facets, index };
    });
  });
  addIndexApi(app, { ...options, indexed });
  app.get('/api/v1/recordings/:id/search', async (request, reply) => {
    const viewer = await viewerOf(access, request, reply);
    return answer(viewer, async () => {
      const { id: asked } = parse(parameters, request.params);
      const entry = await catalog.find(asked, access.scope(viewer), ownerOf(viewer));
      if (entry === undefined) throw new TailcastError('RECORDING_UNKNOWN');
      const { q: text, limit } = parse(withinQuery, request.query);
      const query = readQuery(text, options.nowMs());
      await access.saw(viewer, 'search', request, entry);
      const { id } = entry.recording;
      const index = await indexFor(viewer);
      const found = await searching().ask(
        'within',
        {
          id,
          query: await reviewed(viewer, query),
          may: termsOf(access.scope(viewer)),
          limit,
        },
        ownerOf(viewer),
      );
      return { ...found, index };
    });
  });
}

/**
 * Returns the progress of the index. A restricted viewer gets only the state and the problem. Recordings that the
 * viewer must not see affect this state only if more than {@link MAX_CHECKED} recordings are pending.
 */
async function shownIndex(options: SearchApiOptions, viewer: Viewer): Promise<ShownIndex> {
  const progress = await requireSearch(options).progress();
  const { state, problem } = progress;
  const scope = options.access.scope(viewer);
  if (scope === 'everything') return progress;
  const isReady = state === 'building' && !(await isIncompleteFor(options, scope));
  return { state: isReady ? 'ready' : state, ...(problem === undefined ? {} : { problem }) };
}

/** True if a recording that a viewer may see can be missing from the index. */
async function isIncompleteFor({ index, catalog }: SearchApiOptions, scope: Scope): Promise<boolean> {
  if (scope.length === 0) return false;
  const pending = index?.pending();
  if (pending === undefined || pending.size > MAX_CHECKED) return true;
  const visible = await visibleIds(catalog, scope)?.([...pending]);
  return visible === undefined || visible.length > 0;
}

/**
 * Returns the current recordings of the found sessions. Omits recordings that are missing or that the viewer must not
 * see.
 */
async function visibleSessions(
  { catalog, reviews }: Pick<SearchApiOptions, 'catalog' | 'reviews'>,
  sessions: readonly FoundSession[],
  scope: Scope,
): Promise<readonly (Omit<FoundSession, 'id'> & { readonly recording: Recording })[]> {
  const shown = await catalog.shown(
    sessions.map(({ id }) => id),
    scope,
  );
  const reviewed = await Promise.all(
    shown.map(async (recording) =>
      recording === undefined ? [] : withReviews(reviews, [listedRecording(recording)]),
    ),
  );
  return sessions.flatMap(({ id: _id, ...found }, at) => {
    const [recording] = reviewed[at] ?? [];
    return recording === undefined ? [] : [{ recording, ...found }];
  });
}

/** Parses a query. @throws TailcastError `USAGE` with a sentence about the mistake in the query */
function readQuery(text: string, nowMs: number): Query {
  try {
    return parseQuery(text, nowMs);
  } catch (error) {
    if (error instanceof QueryError) throw new TailcastError('USAGE', error.message, { cause: error });
    throw error;
  }
}
