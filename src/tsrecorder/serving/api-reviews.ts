/**
 * API for reviews of recordings.
 *
 * ```
 * /api/v1/recordings/:id/review        {tags, reviewed?, comments, mayWrite}: see wire/recorder-api/review.ts
 * POST /api/v1/recordings/:id/review   a change as JSON; requires the viewer right `review`
 * ```
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';
import { TailcastError } from '../../errors.ts';
import { isExcluded, isReviewTerm, type Query, type Term } from '../../search/query.ts';
import { NO_REVIEW, summaryOf, type Review, type ReviewSummary } from '../../wire/recorder-api/review.ts';
import { REVIEW_CHANGE, type Reviews } from '../evidence/reviews.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import type { Catalog } from '../library/catalog.ts';
import type { Scope } from '../library/scope.ts';
import { parse, viewerOf } from './api-requests.ts';
import type { AccessAction, ViewerAccess } from './viewer-access.ts';

export interface ReviewApiOptions {
  readonly reviews: Reviews;
  readonly access: ViewerAccess;
  /** Finds a recording for a viewer, and records the access. */
  readonly find: (
    request: FastifyRequest,
    reply: FastifyReply,
    action: AccessAction,
  ) => Promise<CatalogEntry>;
}

/** Path of the route that accepts changes. */
export const REVIEW_PATH = /^\/api\/v1\/recordings\/[^/?]+\/review$/;
/** Maximum size of a change, in bytes. */
export const MAX_BODY_BYTES = 16 * 1024;

/**
 * Checks the content type of a change.
 *
 * @throws TailcastError `USAGE`
 */
export function checkChange({ headers }: FastifyRequest): void {
  // This check prevents forged requests of other sites: a browser sends this content type only after a preflight
  // request, which the recorder rejects.
  if (headers['content-type'] !== 'application/json')
    throw new TailcastError('USAGE', 'content-type must be application/json');
}

/** Adds the routes to `app`. */
export function addReviewApi(app: FastifyInstance, { reviews, access, find }: ReviewApiOptions): void {
  app.get('/api/v1/recordings/:id/review', async (request, reply) => {
    // The page of a recording also requests the review. The requests for the recording and for its review count as one
    // viewing.
    const { recording } = await find(request, reply, request.url.endsWith('?view=1') ? 'play' : 'show');
    const review = (await reviews.all()).get(recording.id) ?? NO_REVIEW;
    return { ...review, mayWrite: access.mayReview(await viewerOf(access, request, reply)) };
  });
  app.post(
    '/api/v1/recordings/:id/review',
    { bodyLimit: MAX_BODY_BYTES },
    async (request, reply): Promise<Review & { readonly mayWrite: true }> => {
      checkChange(request);
      const viewer = await viewerOf(access, request, reply);
      if (!access.mayReview(viewer))
        throw new TailcastError('VIEW_REFUSED', 'you may not write comments and tags on this recorder');
      const change = parse(REVIEW_CHANGE, request.body);
      // Store the event before the change, so that every change has an event.
      const { recording } = await find(request, reply, `review-${change.kind}`);
      const review = await reviews.change(recording.id, viewer.user ?? viewer.node, change);
      return { ...review, mayWrite: true };
    },
  );
}

/** Adds the summary of the review to each recording. */
export async function withReviews<T extends { readonly id: string }>(
  reviews: Reviews,
  recordings: readonly T[],
): Promise<readonly (T & { readonly review?: ReviewSummary })[]> {
  const all = await reviews.all();
  return recordings.map((recording) => {
    const review = all.get(recording.id);
    return review === undefined ? recording : { ...recording, review: summaryOf(review) };
  });
}

/** Maximum number of recordings that may match a term about reviews. */
const MAX_IDS = 1000;
/** Id that matches no recording. */
const NO_ID = '-';

/** Selects the ids that the viewer may see. Stops after more than {@link MAX_IDS} ids were selected. */
export type VisibleIds = (ids: readonly string[]) => Promise<readonly string[]>;

/** Number of ids that are checked at once. */
const VISIBLE_BATCH = 500;

/** Creates the function that filters ids for a scope. Returns undefined for viewers who may see all recordings. */
export function visibleIds(catalog: Pick<Catalog, 'shown'>, scope: Scope): VisibleIds | undefined {
  if (scope === 'everything') return undefined;
  return async (ids) => {
    const visible: string[] = [];
    for (let start = 0; start < ids.length && visible.length <= MAX_IDS; start += VISIBLE_BATCH) {
      const batch = ids.slice(start, start + VISIBLE_BATCH);
      const shown = await catalog.shown(batch, scope);
      visible.push(...batch.filter((_, at) => shown[at] !== undefined));
    }
    return visible;
  };
}

/**
 * Replaces each term about reviews with the ids of the matching recordings.
 *
 * @param visible filters the ids for restricted viewers, so that only recordings that the viewer may see can cause the
 * error
 * @throws TailcastError `USAGE` if a term matches too many recordings
 */
export async function withReviewedIds(reviews: Reviews, query: Query, visible?: VisibleIds): Promise<Query> {
  if (!query.clauses.flat().some(isReviewTerm)) return query;
  const all = await reviews.all();
  const clauses: (readonly Term[])[] = [];
  for (const clause of query.clauses) {
    const expanded: (readonly Term[])[] = [];
    for (const term of clause) expanded.push(isReviewTerm(term) ? await idsOf(all, term, visible) : [term]);
    const [only] = clause.length === 1 ? expanded : [];
    // A negated term excludes all matching recordings.
    if (only?.[0]?.isNot === true) clauses.push(...only.map((term) => [term]));
    else clauses.push(expanded.flat());
  }
  return { clauses };
}

async function idsOf(
  all: ReadonlyMap<string, Review>,
  term: Term,
  visible: VisibleIds | undefined,
): Promise<readonly Term[]> {
  const { field, value } = term;
  const isPrefix = 'isPrefix' in term && term.isPrefix;
  const isMeant = ({ tags, reviewed }: Review): boolean =>
    field === 'reviewed'
      ? reviewed !== undefined
      : tags.some((tag) => (isPrefix ? tag.startsWith(value) : tag === value));
  let ids: readonly string[] = [...all].filter(([, review]) => isMeant(review)).map(([id]) => id);
  if (ids.length > MAX_IDS && visible !== undefined) ids = await visible(ids);
  if (ids.length > MAX_IDS)
    throw new TailcastError('USAGE', `${field}:${value} stands for more than ${MAX_IDS} recordings`);
  return (ids.length === 0 ? [NO_ID] : ids).map((id) => ({
    kind: 'field',
    field: 'id',
    value: id,
    isPrefix: false,
    isNot: isExcluded(term),
  }));
}
