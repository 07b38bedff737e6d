/**
 * The catalogue of recordings. Every response derives from the store and the spools. Memory holds only the data of
 * lists, up to the size of the cache. An index makes responses faster and does not change them.
 */
import { TailcastError, errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import {
  describeCandidate,
  isNamed,
  liveCandidate,
  withoutCopies,
  type Candidate,
  type RemoteRecording,
} from './candidates.ts';
import { matches, type CatalogQuery } from './catalog-query.ts';
import type { CatalogEntry } from './catalog-entry.ts';
import { createDescriber, storedVersion, type Describe, type TrustOf } from './describe-stored.ts';
import {
  outsideIndex,
  isFound,
  listIndexed,
  storedSession,
  type IndexedListOptions,
  type IndexedState,
} from './indexed-list.ts';
import { listSorted } from './sorted-list.ts';
import { createCandidateScopes, createListings, type Listings } from './listing.ts';
import type { LiveRecording } from './live-recording.ts';
import {
  additionalUploads,
  findNamed,
  namedSessions,
  rangeOf,
  sessionWith,
  visibleUploads,
} from './named-list.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import { isWithin, type Scope } from './scope.ts';
import type { SessionIndex } from './session-index.ts';
import { parseRecordingId } from '../store/key.ts';
import type { ReadableStore, StoredRecording } from '../store/store.ts';

export interface CatalogPage {
  /** Newest first, or in the requested order. May have fewer than `limit` entries although `next` is set. */
  readonly recordings: readonly Recording[];
  /**
   * Cursor of the next page: the id of a recording within the scope, or a position in a list with another sort order.
   */
  readonly next?: string;
}

/** The list of recordings of a recorder. */
export interface Catalog {
  /**
   * Returns one page.
   *
   * @param scope recordings that the viewer may see; others are not read. Default: everything
   * @throws TailcastError `USAGE` if the sort order requires an index and no index is ready; `SEARCH_BUSY`,
   *   `SEARCH_UNAVAILABLE`
   */
  list(query: CatalogQuery, scope?: Scope): Promise<CatalogPage>;
  /**
   * Returns the entry of a recording.
   *
   * @param scope recordings that the viewer may see. Default: everything
   * @returns undefined for an unknown or invalid `id`
   */
  find(id: string, scope?: Scope): Promise<CatalogEntry | undefined>;
  /**
   * Returns the recordings of `ids` that exist and are within the scope. The ids are results of an index over all
   * recordings.
   */
  shown(ids: readonly string[], scope: Scope): Promise<readonly (Recording | undefined)[]>;
  /** Returns the most recent listing of the store. */
  stored(): Promise<readonly StoredRecording[]>;
  /**
   * Lists the store in advance, so that the first request is fast. With `scopes`, also reads the marks that determine
   * the access of viewers.
   */
  prepare(options: { readonly scopes: boolean; readonly log: Pick<Logger, 'warn'> }): void;
  /** Called when this process has added a recording to the store. */
  changed(): void;
}

export interface CatalogOptions {
  readonly store: ReadableStore;
  readonly live: () => readonly LiveRecording[];
  /** Lists recordings outside the store. */
  readonly remote?: () => Promise<readonly RemoteRecording[]>;
  /** Maximum age of a store listing, in milliseconds. Recordings of other writers appear after at most this time. */
  readonly refreshMs: number;
  /** Maximum number of descriptions in memory. */
  readonly maxCached: number;
  /** Checks signatures. Default: recordings have no trust level. */
  readonly trustOf?: TrustOf;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  /** Returns the index; undefined until the index is open. */
  readonly index?: () => SessionIndex | undefined;
}

/** Maximum number of recordings that are described for one page. The page then ends with a cursor. */
const MAX_SCANNED = 5000;
const SCAN_BATCH = 32;

/** Creates the catalogue of a store. */
export function createCatalog(options: CatalogOptions): Catalog {
  return new StoreCatalog(options);
}

class StoreCatalog implements Catalog {
  readonly #options: CatalogOptions;
  readonly #describe: Describe;
  readonly #listings: Listings;
  readonly #unindexed: IndexedListOptions;

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
    this.#unindexed = {
      readScopes: createCandidateScopes(),
      version: (stored) => storedVersion(store, stored),
    };
  }

  async list(query: CatalogQuery, scope: Scope = 'everything'): Promise<CatalogPage> {
    const state = await this.#indexed(scope);
    const { sort = 'newest' } = query;
    if (sort !== 'newest') {
      if (state !== undefined) return listSorted(state, { ...query, sort }, scope, this.#unindexed);
      const hasIndex = this.#options.index?.() !== undefined;
      throw new TailcastError(
        'USAGE',
        hasIndex
          ? `sort=${sort} takes the search index, which is being built: ask again later, or for the newest`
          : `sort=${sort} takes a search index, which this recorder does not keep: start it with --search true, or ask for the newest`,
      );
    }
    const found =
      state === undefined
        ? undefined
        : await listIndexed(state, query, scope, this.#unindexed).catch(unlessBusy);
    return found ?? scan(await this.#named(query, scope), query);
  }

  async find(id: string, scope: Scope = 'everything'): Promise<CatalogEntry | undefined> {
    const key = parseRecordingId(id);
    if (key === undefined) return undefined;
    if (scope !== 'everything') {
      const visible = await this.#candidateWithin(id, scope);
      return visible === undefined ? undefined : describeCandidate(visible);
    }
    const known = await this.#candidateOfId(id);
    if (known !== undefined) return describeCandidate(known);
    // The recording is newer than the listing.
    const hasSidecar = (await this.#options.store.stat(key, 'sidecar')) !== undefined;
    return (await this.#describe({ key, hasSidecar }))?.entry;
  }

  async shown(ids: readonly string[], scope: Scope): Promise<readonly (Recording | undefined)[]> {
    const state = await this.#indexed(scope);
    const candidateOf = async (id: string): Promise<Candidate | undefined> => {
      if (state === undefined)
        return scope === 'everything' ? this.#candidateOfId(id) : this.#candidateWithin(id, scope);
      return state.covered.has(id)
        ? state.unindexed.find((candidate) => candidate.id === id)
        : storedSession(state.listing, id, scope);
    };
    return Promise.all(
      ids.map(async (id) => {
        const found = await candidateOf(id);
        // A later upload of a session is not a session of its own.
        return found?.id === id ? (await describeCandidate(found))?.recording : undefined;
      }),
    );
  }

  async stored(): Promise<readonly StoredRecording[]> {
    return (await this.#listings.recent()).stored;
  }

  prepare({ scopes: wantsScopes, log }: Parameters<Catalog['prepare']>[0]): void {
    this.#listings
      .prepare()
      .then(async ({ scopes }) => {
        // With an index, the marks come from the index.
        if (wantsScopes && this.#options.index === undefined) await scopes();
      })
      .catch((error: unknown) => log.warn({ error: errorText(error) }, 'recordings could not be listed'));
  }

  changed(): void {
    this.#listings.forget();
  }

  /** Returns undefined if there is no index, or if the index is too far behind. */
  async #indexed(scope: Scope): Promise<IndexedState | undefined> {
    const index = this.#options.index?.();
    if (index === undefined) return undefined;
    // NOTE: the order matters. A recording that moves into the store meanwhile appears in both lists, and never in
    // neither.
    const live = this.#live('everything');
    const listing = await this.#listings.recent();
    return outsideIndex(index, live, listing, scope, this.#unindexed);
  }

  #live(scope: Scope): readonly Candidate[] {
    const { store, live } = this.#options;
    return live()
      .filter(({ recording }) => isWithin(scope, recording))
      .map((recording) => liveCandidate(store, recording));
  }

  /** Returns the candidates of one page plus one more, newest first, each session once. */
  async #named(query: CatalogQuery, scope: Scope): Promise<readonly Candidate[]> {
    // NOTE: live recordings come first. A recording that moves into the store meanwhile appears in both lists, and
    // never in neither.
    const live = this.#live(scope);
    const listing = await this.#listings.recent();
    const range = { ...rangeOf(query), limit: MAX_SCANNED + 1 };
    if (scope !== 'everything') {
      const visible = await visibleUploads(await listing.scopes(), scope);
      return namedSessions(visible, await additionalUploads(live, visible.byMark), range);
    }
    const { stored: all, candidate, byMark, remote } = listing;
    const unindexed = await (live.length === 0
      ? listing.additional()
      : additionalUploads(withoutCopies(live, remote), byMark));
    return namedSessions({ all, candidate, byMark }, unindexed, range);
  }

  /**
   * Finds the session of which `id` names an upload, without a scope. Most requests to large stores use this function.
   */
  async #candidateOfId(id: string): Promise<Candidate | undefined> {
    const live = this.#live('everything');
    const listing = await this.#listings.recent();
    const hasId = (candidate: Candidate): boolean => candidate.id === id;
    const named = live.find(hasId) ?? listing.find(id) ?? listing.remote.find(hasId);
    return sessionWith(named, live, listing.byMark);
  }

  /** Finds the same within a scope. Hidden and missing recordings give the same result. */
  async #candidateWithin(id: string, scope: readonly string[]): Promise<Candidate | undefined> {
    const state = await this.#indexed(scope);
    const isVisible = state === undefined ? undefined : await isFound(state, id, scope).catch(unlessBusy);
    if (state === undefined || isVisible === undefined) {
      const live = this.#live(scope);
      const visible = await visibleUploads(await (await this.#listings.recent()).scopes(), scope);
      const named = live.find((candidate) => candidate.id === id) ?? findNamed(visible.all, id);
      return sessionWith(named, live, visible.byMark);
    }
    const unindexed = state.unindexed.find((session) => isNamed(session, id));
    if (unindexed !== undefined || !isVisible || state.covered.has(id)) return unindexed;
    return storedSession(state.listing, id, scope);
  }
}

/** Treats an unavailable index like a missing one. */
function unlessBusy(error: unknown): undefined {
  if (error instanceof TailcastError && error.code.startsWith('SEARCH_')) return undefined;
  throw error;
}

/**
 * Describes candidates until the page is full.
 *
 * @param all newest first, one more than the maximum if there are more
 */
async function scan(all: readonly Candidate[], query: CatalogQuery): Promise<CatalogPage> {
  const recordings: Recording[] = [];
  const scannable = all.slice(0, MAX_SCANNED);
  for (let start = 0; start < scannable.length; start += SCAN_BATCH) {
    const batch = scannable.slice(start, start + SCAN_BATCH);
    const described = await Promise.all(batch.map(describeCandidate));
    for (const [index, entry] of described.entries()) {
      if (entry === undefined || !matches(entry.recording, query)) continue;
      recordings.push(entry.recording);
      const isLast = start + index + 1 >= all.length;
      if (recordings.length >= query.limit)
        return isLast ? { recordings } : { recordings, next: entry.recording.id };
    }
  }
  const scanned = all[MAX_SCANNED - 1];
  return scanned === undefined || all.length <= MAX_SCANNED
    ? { recordings }
    : { recordings, next: scanned.id };
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
