/**
 * The catalogue of recordings. The store and the spools are the source of every response. The catalogue keeps only
 * listings of the store and a limited number of descriptions in memory. An index makes responses faster without
 * changing them.
 */
import { z } from 'zod';
import { TailcastError, errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { ListPosition, ListSort } from '../../search/search-index.ts';
import { jsonOrUndefined } from '../../wire/json-value.ts';
import { matches, type CatalogQuery } from './catalog-query.ts';
import type { CatalogEntry } from './catalog-entry.ts';
import { createDescriber, storedVersion, type Describe, type TrustOf } from './describe-stored.ts';
import {
  askOf,
  outsideIndex,
  indexRows,
  isFound,
  onlyWithin,
  positionOf,
  readAhead,
  storedSession,
  type IndexedState,
  type IndexOptions,
  type ListedRow,
} from './index-rows.ts';
import { createCandidateScopes, createListings, type CurrentListing, type Listings } from './listing.ts';
import type { LiveRecording } from './live-recording.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import { isWithin, type Scope } from './scope.ts';
import type { SessionIndex } from './session-index.ts';
import {
  candidateWithin,
  describeCandidate,
  isNamed,
  liveCandidate,
  uploadsByMark,
  withoutCopies,
  type Candidate,
  type RemoteRecording,
} from './sessions.ts';
import { mergeUploads, sessionsOf, sessionWith, type MergedUploads } from './uploads.ts';
import { formatTime, parseRecordingId } from '../store/key.ts';
import type { ReadableStore, StoredRecording } from '../store/store.ts';

export interface CatalogPage {
  /**
   * Recordings in the requested order. Default: newest first. A page may have fewer than `limit` entries even if more
   * pages follow.
   */
  readonly recordings: readonly Recording[];
  /** Cursor of the next page; undefined on the last page. */
  readonly next?: string;
  /** Number of recordings that were read although they are not in the page. */
  readonly unmatched: number;
}

export interface CatalogOptions {
  readonly store: ReadableStore;
  readonly live: () => readonly LiveRecording[];
  /** Lists recordings outside the store. */
  readonly remote?: () => Promise<readonly RemoteRecording[]>;
  /**
   * Maximum age of a store listing, in milliseconds. Recordings that other processes store appear after at most this
   * time.
   */
  readonly refreshMs: number;
  /** Maximum number of descriptions in memory. */
  readonly maxCached: number;
  /** Checks signatures. Default: recordings have no trust level. */
  readonly trustOf?: TrustOf;
  /** Returns the time of a monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Returns the index; undefined until the index is open. */
  readonly index?: () => SessionIndex | undefined;
}

/** Maximum number of recordings that a list reads to fill one page. The page then ends early, with a cursor. */
const MAX_SCANNED = 5000;

/** The list of recordings of a recorder. */
export class Catalog {
  readonly #options: CatalogOptions;
  readonly #describe: Describe;
  readonly #listings: Listings;
  readonly #index: IndexOptions;

  constructor(options: CatalogOptions) {
    const { store } = options;
    this.#options = options;
    this.#describe = createDescriber(store, options.maxCached, options.trustOf);
    this.#listings = createListings({
      ...options,
      remote: options.remote,
      describe: this.#describe,
      onChanged: (ids) => options.index?.()?.changed(ids),
    });
    this.#index = {
      readScopes: createCandidateScopes(),
      version: (stored) => storedVersion(store, stored),
    };
  }

  /**
   * Returns one page.
   *
   * @param scope recordings that the viewer may see; other recordings are not read. Default: everything
   * @param owner owner of the request; owners take turns in using the index
   * @throws TailcastError `USAGE` if the sort order requires an index and no index is ready; `SEARCH_BUSY`,
   *   `SEARCH_UNAVAILABLE`
   */
  async list(query: CatalogQuery, scope: Scope = 'everything', owner?: string): Promise<CatalogPage> {
    const state = await this.#indexed(scope, owner);
    const { sort = 'newest' } = query;
    const ask = askOf(query, scope);
    const begin = query.cursor === undefined ? undefined : parseCursor(query.cursor);
    if (state !== undefined && ask !== undefined) {
      const read = await unindexedRows(state.unindexed, { ...query, sort }, begin);
      const rows = indexRows(state, { ...ask, sort }, begin, scope, this.#index);
      const page = readPage(query, sort, read, rows);
      if (sort !== 'newest') return page;
      const found = await page.catch(unlessBusy);
      if (found !== undefined) return found;
    }
    if (sort !== 'newest') {
      const reason =
        state === undefined
          ? 'needs the index, which is not ready: try later, or use sort=newest'
          : 'needs names that are not empty';
      throw new TailcastError('USAGE', `sort=${sort} ${reason}`);
    }
    const uploads = await this.#uploads(scope);
    return readPage(query, sort, describeAhead(sessionsOf(uploads, rangeOf(query, begin))), fromRows([]));
  }

  /**
   * Returns the entry of a recording.
   *
   * @param scope recordings that the viewer may see. Default: everything
   * @param owner owner of the request; owners take turns in using the index
   * @returns undefined for an unknown or invalid `id`
   */
  async find(id: string, scope: Scope = 'everything', owner?: string): Promise<CatalogEntry | undefined> {
    const key = parseRecordingId(id);
    if (key === undefined) return undefined;
    if (scope !== 'everything') {
      const visible = await this.#candidateWithin(id, scope, owner);
      return visible === undefined ? undefined : describeCandidate(visible);
    }
    const known = await sessionWith(await this.#uploads(scope), id);
    if (known !== undefined) return describeCandidate(known);
    // Ask the store, because the recording may be newer than the listing.
    const hasSidecar = (await this.#options.store.stat(key, 'sidecar')) !== undefined;
    return (await this.#describe({ key, hasSidecar }))?.entry;
  }

  /**
   * Returns the entry of a recording for the index. Uses the last listing of any age. Lists the store again only if the
   * recording is unknown, or if other recorders may have stored uploads of its session.
   */
  async lookUp(id: string): Promise<CatalogEntry | undefined> {
    const uploads = this.#allUploads(this.#live('everything'), await this.#listings.last());
    const upload = uploads.find(id);
    const isKnown =
      upload?.stored === undefined
        ? (await upload?.describe())?.part.number === 1
        : upload.mark === undefined;
    const session = isKnown ? await sessionWith(uploads, id) : undefined;
    return session === undefined ? this.find(id) : describeCandidate(session);
  }

  /**
   * Returns a recording for each id, or undefined if the recording does not exist or is outside the scope. The ids come
   * from an index of all recordings, so some recordings may be outside the scope.
   */
  async shown(ids: readonly string[], scope: Scope): Promise<readonly (Recording | undefined)[]> {
    const state = await this.#indexed(scope);
    const uploads = state ?? (await this.#uploads(scope));
    const candidateOf = async (id: string): Promise<Candidate | undefined> => {
      if (!('covered' in uploads)) return sessionWith(uploads, id);
      return uploads.covered.has(id)
        ? uploads.unindexed.find((candidate) => candidate.id === id)
        : storedSession(uploads.uploads, id, scope);
    };
    return Promise.all(
      ids.map(async (id) => {
        const found = await candidateOf(id);
        // Skip later uploads of a session, because the session is listed under its first upload.
        return found?.id === id ? (await describeCandidate(found))?.recording : undefined;
      }),
    );
  }

  /** Lists the store. */
  async stored(): Promise<readonly StoredRecording[]> {
    return (await this.#listings.anew()).all;
  }

  /** Lists the store at the start, so that the first request of a viewer is fast. */
  prepare(log: Pick<Logger, 'warn'>): void {
    this.#listings
      .prepare()
      .catch((error: unknown) => log.warn({ error: errorText(error) }, 'recordings could not be listed'));
  }

  /** Called when this process has added a recording to the store. The store is not listed again. */
  added(stored: StoredRecording): void {
    this.#listings.add(stored);
  }

  /** Called when this process has removed recordings from the store. */
  removed(): void {
    this.#listings.forget();
  }

  /** Returns undefined if there is no index, or if too many recordings are not in the index yet. */
  async #indexed(scope: Scope, owner?: string): Promise<IndexedState | undefined> {
    const index = this.#options.index?.();
    if (index === undefined) return undefined;
    // NOTE: read the live recordings before the listing. A recording that moves into the store between the two reads
    // may appear in both lists, but is never missing.
    const live = this.#live('everything');
    const listing = await this.#listings.recent();
    const owned: Pick<SessionIndex, 'pending' | 'list'> = {
      pending: () => index.pending(),
      list: (ask) => index.list(ask, owner),
    };
    return outsideIndex(owned, live, listing, scope, this.#index);
  }

  #live(scope: Scope): readonly Candidate[] {
    const { store, live } = this.#options;
    return live()
      .filter(({ recording }) => isWithin(scope, recording))
      .map((recording) => liveCandidate(store, recording));
  }

  /** Returns all uploads within the scope. */
  async #uploads(scope: Scope): Promise<MergedUploads> {
    // NOTE: read the live recordings before the listing. A recording that moves into the store between the two reads
    // may appear in both lists, but is never missing.
    const live = this.#live(scope);
    const listing = await this.#listings.recent();
    if (scope === 'everything') return this.#allUploads(live, listing);
    const all = await (await listing.scopes()).within(scope);
    const added = await onlyWithin(scope, [...listing.added.values()]);
    const candidate = (upload: Candidate): Candidate => candidateWithin(scope, upload);
    const marked = all.filter(({ mark }) => mark !== undefined).map(candidate);
    const few = withoutCopies(live, added.map(candidate));
    return mergeUploads(few, { all, candidate, byMark: await uploadsByMark(marked) });
  }

  #allUploads(live: readonly Candidate[], listing: CurrentListing): MergedUploads {
    const own = withoutCopies(live, [...listing.added.values()]);
    return mergeUploads(withoutCopies(own, listing.remote), listing);
  }

  /** Finds a session within a scope. Hidden and missing recordings give the same result. */
  async #candidateWithin(
    id: string,
    scope: readonly string[],
    owner: string | undefined,
  ): Promise<Candidate | undefined> {
    const state = await this.#indexed(scope, owner);
    const isVisible = state === undefined ? undefined : await isFound(state, id, scope).catch(unlessBusy);
    if (state === undefined || isVisible === undefined) return sessionWith(await this.#uploads(scope), id);
    const unindexed = state.unindexed.find((session) => isNamed(session, id));
    if (unindexed !== undefined || !isVisible || state.covered.has(id)) return unindexed;
    return storedSession(state.uploads, id, scope);
  }
}

/** Treats an unavailable index like a missing index. */
function unlessBusy(error: unknown): undefined {
  if (error instanceof TailcastError && error.code.startsWith('SEARCH_')) return undefined;
  throw error;
}

const POSITION = z.strictObject({ order: z.string(), value: z.number().exactOptional() });

/** @throws TailcastError `USAGE` for an invalid position */
function parseCursor(cursor: string): ListPosition {
  const position = POSITION.safeParse(jsonOrUndefined(cursor)).data;
  if (position === undefined) throw new TailcastError('USAGE', 'the cursor does not belong to this list');
  return position;
}

/** Returns the range of a page of the newest recordings. */
function rangeOf(
  { from, to }: CatalogQuery,
  begin: ListPosition | undefined,
): { readonly before?: string; readonly from?: string } {
  const [before] = [
    ...(to === undefined ? [] : [formatTime(to)]),
    ...(begin === undefined ? [] : [begin.order]),
  ].toSorted();
  return {
    ...(before === undefined ? {} : { before }),
    ...(from === undefined ? {} : { from: formatTime(from) }),
  };
}

/** Returns the sessions that are missing in the index, in the order of the list. */
async function unindexedRows(
  sessions: readonly Candidate[],
  query: CatalogQuery & { readonly sort: ListSort },
  begin: ListPosition | undefined,
): Promise<AsyncIterable<ListedRow>> {
  const { sort } = query;
  const { before, from = '' } = rangeOf(query, sort === 'newest' ? begin : undefined);
  const wanted = sessions.filter(({ order }) => order >= from && (before === undefined || order < before));
  if (sort === 'newest') return describeAhead(wanted);
  const rows: ListedRow[] = [];
  for await (const row of describeAhead(wanted)) {
    const recording = await row.recording();
    if (recording === undefined) continue;
    const value = sort === 'longest' ? recording.durationSeconds : recording.bytes;
    const at = positionOf(sort, row.at.order, value);
    if (begin === undefined || compare(sort, at, begin) > 0) rows.push({ at, recording: row.recording });
  }
  return fromRows(rows.toSorted((left, right) => compare(sort, left.at, right.at)));
}

/** Describes sessions in batches, before the consumer reads them. */
function describeAhead(sessions: Iterable<Candidate> | AsyncIterable<Candidate>): AsyncGenerator<ListedRow> {
  async function* rows(): AsyncGenerator<ListedRow> {
    for await (const session of sessions)
      yield {
        at: { order: session.order },
        recording: async () => (await describeCandidate(session))?.recording,
      };
  }
  return readAhead(rows());
}

async function* fromRows(rows: readonly ListedRow[]): AsyncGenerator<ListedRow> {
  yield* rows;
}

/** Merges two sorted lists into a page. */
async function readPage(
  query: CatalogQuery,
  sort: ListSort,
  read: AsyncIterable<ListedRow>,
  rows: AsyncIterable<ListedRow>,
): Promise<CatalogPage> {
  const found: { readonly at: ListPosition; readonly recording: Recording }[] = [];
  const [left, right] = [read[Symbol.asyncIterator](), rows[Symbol.asyncIterator]()];
  let [first, second] = [await left.next(), await right.next()];
  let last: ListPosition | undefined;
  const page = (scanned: number, at?: ListPosition): CatalogPage => {
    const recordings = found.slice(0, query.limit).map(({ recording }) => recording);
    const next = at === undefined ? {} : { next: JSON.stringify(at) };
    return { recordings, ...next, unmatched: scanned - recordings.length };
  };
  for (let scanned = 0; ; scanned += 1) {
    const isFirst =
      second.done === true || (first.done !== true && compare(sort, first.value.at, second.value.at) < 0);
    const next = isFirst ? first : second;
    if (next.done === true) return page(scanned);
    if (scanned === MAX_SCANNED) return page(scanned, last);
    last = next.value.at;
    const recording = await next.value.recording();
    if (recording !== undefined && matches(recording, query)) found.push({ at: last, recording });
    // End here, because another row could require another query of the index.
    if (found.length > query.limit) return page(scanned, found[query.limit - 1]?.at);
    if (isFirst) first = await left.next();
    else second = await right.next();
  }
}

/** Compares two positions for sorting. */
function compare(sort: ListSort, left: ListPosition, right: ListPosition): number {
  if (left.value !== right.value) {
    if (left.value === undefined) return 1;
    return right.value === undefined ? -1 : right.value - left.value;
  }
  if (left.order === right.order) return 0;
  return left.order < right.order === (sort === 'oldest') ? -1 : 1;
}

/**
 * Lists the recordings of one store for the catalogue of another store.
 * @param maxCached maximum number of descriptions in memory
 * @param trustOf checks signatures. Default: recordings have no trust level
 */
export function remoteCandidates(
  store: ReadableStore,
  maxCached: number,
  trustOf?: TrustOf,
): () => Promise<readonly RemoteRecording[]> {
  const describe = createDescriber(store, maxCached, trustOf);
  return async () =>
    (await store.list()).map((recording) => ({
      key: recording.key,
      sessionMark: recording.sessionMark,
      describe: () => describe(recording),
    }));
}
