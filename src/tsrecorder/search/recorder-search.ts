/** The search of a recorder: its index and its query processes. */
import { join } from 'node:path';
import type { Logger } from '../../observe/logger.ts';
import { errorText, TailcastError } from '../../errors.ts';
import type { IndexedText } from '../../search/moments.ts';
import type { SessionWatch } from './alerts/alerts.ts';
import type { Catalog } from '../library/catalog.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import type { PendingIds, SessionIndex } from '../library/session-index.ts';
import { createFilePlaces, isDamaged } from './file-places.ts';
import { startIndexClient, type IndexClient } from './index-client.ts';
import type { IndexPlaces } from './index-places.ts';
import type { IndexProgress } from './index-progress.ts';
import { Indexer } from './indexer.ts';
import { LAYOUT } from './layout.ts';
import type { IndexPlace } from './messages.ts';
import { createServerPlaces } from './opensearch/server-places.ts';
import type { ServerIndex } from './opensearch/server-index.ts';
import type { SearchMetrics } from './search-metrics.ts';
import {
  createQueryProcesses,
  QUERY_LIMITS,
  type QueryOperation,
  type QueryProcesses,
} from './query-processes.ts';
import { verifyIndex, type VerifyLine } from './verify-index.ts';

export interface SearchProgress extends IndexProgress {
  /** Progress of a new index that is built next to the active index: `done` sessions of the total number `of`. */
  readonly rebuilding?: { readonly done: number; readonly of: number };
}

export interface RecorderSearchOptions {
  /** Location of the index: a local directory, or a server. */
  readonly index: string | Omit<ServerIndex, 'which'>;
  readonly text: IndexedText;
  /**
   * Identifies the keys that this recorder trusts. If the keys change, all recordings are indexed again, because lists
   * contain the trust level.
   */
  readonly trusted?: string;
  readonly catalog: Pick<Catalog, 'find' | 'lookUp' | 'stored'>;
  readonly live: () => readonly LiveRecording[];
  /** Alert rules for new sessions. */
  readonly watch?: SessionWatch;
  /** Returns the time of a monotonic clock, in milliseconds. */
  readonly now: () => number;
  readonly metrics: SearchMetrics;
  readonly log: Logger;
}

/**
 * Limits of lists. Lists are fast and have many viewers, so the limits for lists are higher than the limits for
 * searches.
 */
const LIST_LIMITS = { ...QUERY_LIMITS, maxRunningPerOwner: QUERY_LIMITS.maxRunning, maxWaiting: 256 };
/** Interval at which running sessions are read if a rule can pause or end sessions, in milliseconds. */
const URGENT_MS = 200;
const TIMING = { liveMs: 1000, reconcileMs: 3_600_000, restartMs: 5000 };

/** Returns the directory of the index in the spool. */
export function indexDirectory(spoolDirectory: string): string {
  return join(spoolDirectory, 'search', LAYOUT);
}

/** Index of a recorder. Queries wait while the index is opened in the background. */
export class RecorderSearch implements SessionIndex {
  readonly #options: RecorderSearchOptions;
  readonly #queries: QueryProcesses;
  readonly #lists: QueryProcesses;
  readonly #places: IndexPlaces;
  readonly #prepared: Promise<void>;
  #indexer: Indexer;
  #building: Indexer | undefined;
  #built: Promise<void> = Promise.resolve();
  /** Running queries. New queries wait for `#swap`, which resolves when the current index was replaced. */
  readonly #asked = new Set<Promise<unknown>>();
  #swap: Promise<void> | undefined;
  /** Error of the last writer process. */
  #unusable: unknown;
  readonly #closing = Promise.withResolvers<'closing'>();

  constructor(options: RecorderSearchOptions) {
    const { index } = options;
    this.#options = options;
    this.#places = typeof index === 'string' ? createFilePlaces(index) : createServerPlaces(index);
    const { current } = this.#places;
    this.#queries = createQueryProcesses({ ...QUERY_LIMITS, place: current });
    this.#lists = createQueryProcesses({ ...LIST_LIMITS, place: current });
    this.#prepared = this.#prepare();
    this.#indexer = this.#start(current, options.live);
    options.metrics.watch(() => this.progress());
  }

  readonly ask: QueryProcesses['ask'] = (operation, ask, owner) =>
    this.#answer(operation, () => this.#queries.ask(operation, ask, owner));
  readonly list: SessionIndex['list'] = (ask, owner) =>
    this.#answer('list', () => this.#lists.ask('list', ask, owner));

  pending(): PendingIds | undefined {
    return this.#swap === undefined ? this.#indexer.pending() : undefined;
  }

  changed(ids: readonly string[]): void {
    for (const id of ids) this.stored(id);
  }

  stored(id: string, owner?: string): void {
    this.#indexer.stored(id, owner);
    this.#building?.stored(id, owner);
  }

  removed(ids: readonly string[]): void {
    this.#indexer.removed(ids);
    this.#building?.removed(ids);
  }

  settled(): Promise<void> {
    return this.#indexer.settled();
  }

  async progress(): Promise<SearchProgress> {
    const progress = await this.#indexer.progress();
    const building = await this.#building?.progress();
    if (building === undefined) return progress;
    const done = building.sessions;
    return { ...progress, rebuilding: { done, of: Math.max(progress.sessions, done + building.backlog) } };
  }

  /**
   * Builds a new index next to the old index, unless a build is running. The new index replaces the old index when the
   * build is complete.
   */
  rebuild(): void {
    if (this.#building !== undefined) return;
    const { log } = this.#options;
    this.#building = this.#start(this.#places.next, () => []);
    this.#built = this.#build(this.#building).catch((error: unknown) =>
      log.error({ error: errorText(error) }, 'the new search index could not replace the old one'),
    );
  }

  /** Compares the index with the store. */
  verify(signal: AbortSignal): AsyncIterable<VerifyLine> {
    const { catalog } = this.#options;
    return verifyIndex({
      catalog,
      indexedText: this.#options.text,
      trusted: this.#options.trusted,
      pending: () => this.pending(),
      start: () => startIndexClient({ ...this.#places.current, mayWrite: false }),
      signal,
    });
  }

  async close(): Promise<void> {
    this.#closing.resolve('closing');
    await this.#prepared;
    await this.#built;
    await this.#building?.close();
    await this.#indexer.close();
    await Promise.all([this.#queries.close(), this.#lists.close()]);
  }

  /** Completes an interrupted swap or build, and removes unused files. */
  async #prepare(): Promise<void> {
    try {
      if ((await this.#places.prepare()) === 'building') this.rebuild();
    } catch (error) {
      this.#options.log.error(
        { error: errorText(error) },
        'the location of the search index could not be prepared',
      );
    }
  }

  #start(place: IndexPlace, live: RecorderSearchOptions['live']): Indexer {
    const { catalog, watch } = this.#options;
    return new Indexer({
      ...this.#options,
      ...TIMING,
      ...(watch?.isUrgent === true ? { liveMs: URGENT_MS } : {}),
      live,
      // Use the store listing of the catalogue, so that catalogue and index contain the same recordings.
      store: { list: () => catalog.stored() },
      catalog: { find: (id) => catalog.lookUp(id) },
      start: async (signal) => {
        await this.#prepared;
        const writer = await this.#startWriter(place, signal);
        if (watch !== undefined) await writer.ask('watch', watch.rules);
        return writer;
      },
      ...(watch === undefined ? {} : { matched: (recording, matches) => watch.matched(recording, matches) }),
    });
  }

  /** Starts the writer. A damaged index is deleted, because it can be rebuilt from the recordings. */
  async #startWriter(place: IndexPlace, signal: AbortSignal): Promise<IndexClient> {
    const unusable = this.#unusable;
    this.#unusable = undefined;
    if (unusable !== undefined && (await this.#places.discard(place, unusable)))
      this.#reportDamaged(unusable);
    try {
      return this.#watched(await startIndexClient({ ...place, mayWrite: true }, signal));
    } catch (error) {
      signal.throwIfAborted();
      if (!(await this.#places.discard(place, error))) throw error;
      this.#reportDamaged(error);
      return this.#watched(await startIndexClient({ ...place, mayWrite: true }, signal));
    }
  }

  #reportDamaged(error: unknown): void {
    this.#options.log.error({ error: errorText(error) }, 'the search index is damaged and is rebuilt');
  }

  /** Returns a client that remembers errors of the writer. The next writer may have to start with an empty index. */
  #watched(client: IndexClient): IndexClient {
    return {
      get isStopped() {
        return client.isStopped;
      },
      pid: client.pid,
      ask: async (operation, ask) => {
        try {
          return await client.ask(operation, ask);
        } catch (error) {
          this.#unusable = error;
          throw error;
        }
      },
      kill: () => client.kill(),
      close: () => client.close(),
    };
  }

  async #build(building: Indexer): Promise<void> {
    do {
      if ((await Promise.race([building.settled(), this.#closing.promise])) === 'closing') return;
    } while ((await building.progress()).state !== 'ready');
    const swapped = Promise.withResolvers<void>();
    this.#swap = swapped.promise;
    try {
      await Promise.allSettled(this.#asked);
      await building.close();
      await this.#indexer.close();
      await this.#places.swap();
      this.#options.log.info('the search index was rebuilt');
    } finally {
      this.#building = undefined;
      this.#indexer = this.#start(this.#places.current, this.#options.live);
      this.#swap = undefined;
      swapped.resolve();
    }
  }

  async #answer<T>(kind: QueryOperation, ask: () => Promise<T>): Promise<T> {
    const { metrics, now } = this.#options;
    const began = now();
    while (this.#swap !== undefined) await this.#swap;
    const asked = ask();
    this.#asked.add(asked);
    let code: string | undefined;
    try {
      return await asked;
    } catch (error) {
      code = error instanceof TailcastError ? error.code : undefined;
      // Rebuild the index here, because the writer does not read old files and would not notice the damage.
      if ('directory' in this.#places.current && isDamaged(error)) this.rebuild();
      throw error;
    } finally {
      this.#asked.delete(asked);
      metrics.asked(kind, (now() - began) / 1000, code);
    }
  }
}
