/**
 * A recorder sends notifications at any time during a comparison of store and index. After the comparison, the index
 * must equal the store.
 */
import fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { EXTRACTOR } from '../../../src/search/search-index.ts';
import type { CatalogEntry } from '../../../src/tsrecorder/library/catalog-entry.ts';
import type { IndexClient } from '../../../src/tsrecorder/search/index-client.ts';
import type { IndexerOptions } from '../../../src/tsrecorder/search/index-progress.ts';
import { Indexer } from '../../../src/tsrecorder/search/indexer.ts';
import { createSearchMetrics } from '../../../src/tsrecorder/search/search-metrics.ts';
import {
  formatTime,
  parseRecordingId,
  recordingId,
  recordingKey,
} from '../../../src/tsrecorder/store/key.ts';
import type { StoredRecording } from '../../../src/tsrecorder/store/store.ts';
import { turnsDuring } from '../../support/loop-turns.ts';

const START = BigInt(Date.parse('2026-02-03T04:05:06Z')) * 1_000_000n;
const VERSION = `1.${EXTRACTOR}.off`;
const nextTurn = (): Promise<void> => new Promise((resolve) => void setImmediate(resolve));

const idAt = (at: number): string =>
  recordingId({ nodeId: `n${at % 3}`, time: formatTime(START + BigInt(at) * 1_000_000n) });

/** A simulated store. */
class FakeStore {
  readonly ids: Set<string>;
  /** Number of event-loop turns that a listing takes. The listing contains the ids that existed at its start. */
  turns = 0;
  lists = 0;

  constructor(ids: Iterable<string>) {
    this.ids = new Set(ids);
  }

  async list(): Promise<readonly StoredRecording[]> {
    const listed = [...this.ids].flatMap((id): readonly StoredRecording[] => {
      const key = parseRecordingId(id);
      return key === undefined ? [] : [{ key, hasSidecar: true }];
    });
    for (let turn = 0; turn < this.turns; turn += 1) await nextTurn();
    this.lists += 1;
    return listed;
  }

  async find(id: string): Promise<CatalogEntry | undefined> {
    const key = parseRecordingId(id);
    if (key === undefined || !this.ids.has(id)) return undefined;
    const node = { node: 'n', nodeId: 'n' };
    return {
      key,
      version: '1',
      resizeOrder: 'columnsFirst',
      pieces: [],
      live: undefined,
      recording: {
        id,
        key: recordingKey(key),
        startedAt: key.time,
        state: 'completed',
        kind: 'exec',
        width: 80,
        height: 24,
        bytes: 0,
        source: node,
        destination: node,
      },
    };
  }
}

interface Asked {
  readonly doc?: { readonly names: { readonly id: string }; readonly version: string };
  readonly ids?: readonly string[];
  readonly after?: string;
  readonly limit?: number;
}

/** An index in this process. Writes are visible after a flush. */
class FakeIndex {
  readonly versions: Map<string, string>;
  readonly #written = new Set<string>();
  readonly isStopped = false;
  readonly pid = 0;
  closed = false;
  compared = 0;
  /** Called before each page of ids. */
  beforePage: () => Promise<unknown> = nextTurn;

  constructor(ids: Iterable<string>) {
    this.versions = new Map(Array.from(ids, (id) => [id, VERSION]));
  }

  get client(): IndexClient {
    return this as unknown as IndexClient;
  }

  async ask(operation: string, asked: Asked | null): Promise<unknown> {
    const { ids = [], after = '', limit = 0 } = asked ?? {};
    switch (operation) {
      case 'ids':
        return this.#page(after, limit);
      case 'put':
        for (const { names, version } of asked as unknown as NonNullable<Asked['doc']>[])
          if (this.versions.get(names.id) !== version) this.#written.add(names.id);
        return [];
      case 'flush':
        for (const id of this.#written) this.versions.set(id, VERSION);
        this.#written.clear();
        return null;
      case 'remove':
        for (const id of ids) this.versions.delete(id);
        return null;
      default:
        return null;
    }
  }

  async #page(after: string, limit: number): Promise<unknown> {
    await this.beforePage();
    const ids = [...this.versions.keys()].toSorted().filter((id) => id > after);
    if (ids.length < limit) this.compared += 1;
    return ids.slice(0, limit).map((id) => ({ id, version: this.versions.get(id) }));
  }

  kill(): void {
    this.closed = true;
  }

  async close(): Promise<void> {
    this.closed = true;
  }
}

function open(store: FakeStore, index: FakeIndex, options: Partial<IndexerOptions> = {}): Indexer {
  const indexer = new Indexer({
    store,
    catalog: store,
    live: () => [],
    text: 'off',
    start: async () => index.client,
    now: () => 0,
    liveMs: 5,
    reconcileMs: 1e9,
    restartMs: 1,
    metrics: createSearchMetrics(),
    log: createSilentLogger(),
    ...options,
  });
  onTestFinished(() => indexer.close());
  return indexer;
}

describe('a notification during a comparison of store and index', () => {
  const change = fc.record({
    kind: fc.constantFrom('stored', 'removed'),
    at: fc.nat(2999),
    turns: fc.nat(4),
  });

  it('is not lost', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(change, { maxLength: 12 }),
        fc.constantFrom(0, 1, 2),
        fc.nat(3),
        async (changes, shift, turns) => {
          // at the start, some stored sessions are not in the index, and some indexed sessions are no longer stored
          const all = Array.from({ length: 3000 }, (_, at) => at);
          const store = new FakeStore(all.filter((at) => (at + shift) % 3 > 0).map(idAt));
          store.turns = turns;
          const index = new FakeIndex(all.filter((at) => (at + shift) % 3 < 2).map(idAt));
          const indexer = open(store, index);
          for (const { kind, at, turns: later } of changes) {
            for (let turn = 0; turn < later; turn += 1) await nextTurn();
            const id = idAt(at);
            if (kind === 'stored') {
              store.ids.add(id);
              indexer.stored(id);
            } else {
              store.ids.delete(id);
              indexer.removed([id]);
            }
            // a stored session that is not in the index must be pending, because lists would otherwise omit the session
            const pending = indexer.pending();
            if (pending !== undefined && store.ids.has(id) && !index.versions.has(id))
              expect(pending.has(id)).toBe(true);
          }
          await indexer.settled();
          expect([...index.versions.keys()].toSorted()).toEqual([...store.ids].toSorted());
          expect(indexer.pending()?.size).toBe(0);
          await indexer.close();
        },
      ),
      { numRuns: 40 },
    );
  });

  it('leaves the recording pending until it is written, whether it was listed or not', async () => {
    const store = new FakeStore([idAt(1)]);
    const index = new FakeIndex([idAt(1), idAt(2)]);
    const paged = Promise.withResolvers<void>();
    const goOn = Promise.withResolvers<void>();
    index.beforePage = () => {
      paged.resolve();
      return goOn.promise;
    };
    const indexer = open(store, index);
    await paged.promise;
    // the listing of the store does not contain the first session, and the index has an earlier version of the second
    // one
    for (const at of [3, 2]) {
      store.ids.add(idAt(at));
      indexer.stored(idAt(at));
    }
    store.ids.delete(idAt(1));
    indexer.removed([idAt(1)]);
    expect(indexer.pending()).toBeUndefined();
    goOn.resolve();
    await indexer.settled();
    expect([...index.versions.keys()].toSorted()).toEqual([idAt(3), idAt(2)]);
  });

  it('does not delay the close of the index', async () => {
    const store = new FakeStore(Array.from({ length: 20_000 }, (_, at) => idAt(at)));
    const waiting = open(store, new FakeIndex([]), { store: { list: () => new Promise(() => undefined) } });
    await nextTurn();
    await waiting.close();
    expect(waiting.pending()).toBeUndefined();
    const index = new FakeIndex([]);
    const paged = Promise.withResolvers<void>();
    index.beforePage = async () => paged.resolve();
    const indexer = open(store, index);
    await paged.promise;
    await indexer.close();
    expect([indexer.pending(), index.versions.size, index.closed]).toEqual([undefined, 0, true]);
  });

  it('lets the event loop turn', async () => {
    const ids = Array.from({ length: 20_000 }, (_, at) => idAt(at));
    const store = new FakeStore(ids);
    const index = new FakeIndex(ids.slice(1));
    index.beforePage = async () => undefined;
    let nowMs = 0;
    const indexer = open(store, index, { now: () => nowMs });
    await indexer.settled();
    expect([...index.versions.keys()].toSorted()).toEqual(ids.toSorted());
    // advances the clock, so that the indexer starts its hourly comparison
    const compared = Promise.withResolvers<void>();
    index.beforePage = async () => compared.resolve();
    const turns = await turnsDuring(async () => {
      nowMs += 1e9;
      await compared.promise;
      await expect.poll(() => index.compared).toBe(2);
    });
    expect(turns).toBeGreaterThanOrEqual(20);
    expect(indexer.pending()?.size).toBe(0);
  });
});
