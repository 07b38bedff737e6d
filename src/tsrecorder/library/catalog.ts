/**
 * Finds recordings. What is in the store and what still is in a spool is the truth, and every answer is derived from it. Only
 * what a list shows is kept in memory, and only as much as the cache may hold. An index makes it fast, and no answer another.
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
  besideIndex,
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
  besideUploads,
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
  /** Newest first, or as was asked. May be shorter than `limit` although there is a `next`. */
  readonly recordings: readonly Recording[];
  /** Id of a recording within the scope, or a place in a list that is sorted otherwise: the page goes on behind it. */
  readonly next?: string;
}

export interface Catalog {
  /**
   * @param scope what there is for whoever asks: the rest is not even looked at. Default: everything.
   * @throws TailcastError `USAGE` for a sort that takes an index, where there is none to be asked; `SEARCH_BUSY`, `SEARCH_UNAVAILABLE`
   */
  list(query: CatalogQuery, scope?: Scope): Promise<CatalogPage>;
  /**
   * @param scope as above.
   * @returns undefined when there is no such recording, whatever `id` is.
   */
  find(id: string, scope?: Scope): Promise<CatalogEntry | undefined>;
  /**
   * Lists the store before anybody asks, so that the first to ask need not wait for that; with `scopes` reads who may see what, too.
   */
  /** What of `ids` is there and within the scope, as an index of all of it has found them. */
  shown(ids: readonly string[], scope: Scope): Promise<readonly (Recording | undefined)[]>;
  /** What the store holds, as the last answers saw it. */
  stored(): Promise<readonly StoredRecording[]>;
  prepare(options: { readonly scopes: boolean; readonly log: Pick<Logger, 'warn'> }): void;
  /** Something was put into the store by this process. */
  changed(): void;
}

export interface CatalogOptions {
  readonly store: ReadableStore;
  readonly live: () => readonly LiveRecording[];
  /** What is elsewhere. */
  readonly remote?: () => Promise<readonly RemoteRecording[]>;
  /** How long a listing of the store may be used: how late recordings of other writers show. */
  readonly refreshMs: number;
  /** Descriptions kept in memory. */
  readonly maxCached: number;
  /** Default: nothing is said about trust. */
  readonly trustOf?: TrustOf;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  /** If there is one, and as soon as there is. */
  readonly index?: () => SessionIndex | undefined;
}

/** Recordings described for one page at most; then the page ends and says where to go on. */
const MAX_SCANNED = 5000;
const SCAN_BATCH = 32;

/** One per store. */
export function createCatalog(options: CatalogOptions): Catalog {
  return new StoreCatalog(options);
}

class StoreCatalog implements Catalog {
  readonly #options: CatalogOptions;
  readonly #describe: Describe;
  readonly #listings: Listings;
  readonly #beside: IndexedListOptions;

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
    this.#beside = {
      readScopes: createCandidateScopes(),
      version: (stored) => storedVersion(store, stored),
    };
  }

  async list(query: CatalogQuery, scope: Scope = 'everything'): Promise<CatalogPage> {
    const state = await this.#indexed(scope);
    const { sort = 'newest' } = query;
    if (sort !== 'newest') {
      if (state !== undefined) return listSorted(state, { ...query, sort }, scope, this.#beside);
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
        : await listIndexed(state, query, scope, this.#beside).catch(unlessBusy);
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
    // newer than the listing
    const hasSidecar = (await this.#options.store.stat(key, 'sidecar')) !== undefined;
    return (await this.#describe({ key, hasSidecar }))?.entry;
  }

  async shown(ids: readonly string[], scope: Scope): Promise<readonly (Recording | undefined)[]> {
    const state = await this.#indexed(scope);
    const candidateOf = async (id: string): Promise<Candidate | undefined> => {
      if (state === undefined)
        return scope === 'everything' ? this.#candidateOfId(id) : this.#candidateWithin(id, scope);
      return state.covered.has(id)
        ? state.beside.find((candidate) => candidate.id === id)
        : storedSession(state.listing, id, scope);
    };
    return Promise.all(
      ids.map(async (id) => {
        const found = await candidateOf(id);
        // a later upload of a session is no session
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
        // an index knows that without anybody reading it
        if (wantsScopes && this.#options.index === undefined) await scopes();
      })
      .catch((error: unknown) => log.warn({ error: errorText(error) }, 'recordings could not be listed'));
  }

  changed(): void {
    this.#listings.forget();
  }

  /** Undefined when there is no index, or none to be relied on. */
  async #indexed(scope: Scope): Promise<IndexedState | undefined> {
    const index = this.#options.index?.();
    if (index === undefined) return undefined;
    // NOTE: in this order: what moves on meanwhile is in both, never in none
    const live = this.#live('everything');
    const listing = await this.#listings.recent();
    return besideIndex(index, live, listing, scope, this.#beside);
  }

  #live(scope: Scope): readonly Candidate[] {
    const { store, live } = this.#options;
    return live()
      .filter(({ recording }) => isWithin(scope, recording))
      .map((recording) => liveCandidate(store, recording));
  }

  /** Those that are looked at for a page: one more, if there is. Newest first, each session once. */
  async #named(query: CatalogQuery, scope: Scope): Promise<readonly Candidate[]> {
    // NOTE: live ones first: a recording that moves into the store meanwhile is then in both, never in none
    const live = this.#live(scope);
    const listing = await this.#listings.recent();
    const range = { ...rangeOf(query), limit: MAX_SCANNED + 1 };
    if (scope !== 'everything') {
      const visible = await visibleUploads(await listing.scopes(), scope);
      return namedSessions(visible, await besideUploads(live, visible.byMark), range);
    }
    const { stored: all, candidate, byMark, remote } = listing;
    const beside = await (live.length === 0
      ? listing.beside()
      : besideUploads(withoutCopies(live, remote), byMark));
    return namedSessions({ all, candidate, byMark }, beside, range);
  }

  /** One of all, whichever of its uploads `id` names. In a store of many recordings that is most of what is asked. */
  async #candidateOfId(id: string): Promise<Candidate | undefined> {
    const live = this.#live('everything');
    const listing = await this.#listings.recent();
    const hasId = (candidate: Candidate): boolean => candidate.id === id;
    const named = live.find(hasId) ?? listing.find(id) ?? listing.remote.find(hasId);
    return sessionWith(named, live, listing.byMark);
  }

  /** The same among what is within the scope: what is hidden is as unknown as what there is not. */
  async #candidateWithin(id: string, scope: readonly string[]): Promise<Candidate | undefined> {
    const state = await this.#indexed(scope);
    const isVisible = state === undefined ? undefined : await isFound(state, id, scope).catch(unlessBusy);
    if (state === undefined || isVisible === undefined) {
      const live = this.#live(scope);
      const visible = await visibleUploads(await (await this.#listings.recent()).scopes(), scope);
      const named = live.find((candidate) => candidate.id === id) ?? findNamed(visible.all, id);
      return sessionWith(named, live, visible.byMark);
    }
    const beside = state.beside.find((session) => isNamed(session, id));
    if (beside !== undefined || !isVisible || state.covered.has(id)) return beside;
    return storedSession(state.listing, id, scope);
  }
}

/** An index that cannot be asked is as none. */
function unlessBusy(error: unknown): undefined {
  if (error instanceof TailcastError && error.code.startsWith('SEARCH_')) return undefined;
  throw error;
}

/** @param all newest first: one more than is looked at, if there is. */
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
 * What is in a store, for the catalogue of another one.
 * @param maxCached descriptions kept in memory
 * @param trustOf default: nothing is said about trust
 */
export function storedElsewhere(
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
