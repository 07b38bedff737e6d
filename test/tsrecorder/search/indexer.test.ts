/**
 * Requests of the indexer to its index, their order, and its reaction to errors, with a fake store and a fake index.
 */
import { Registry } from 'prom-client';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { EXTRACTOR } from '../../../src/search/search-index.ts';
import type { CatalogEntry } from '../../../src/tsrecorder/library/catalog-entry.ts';
import type { LiveRecording } from '../../../src/tsrecorder/library/live-recording.ts';
import type { IndexClient } from '../../../src/tsrecorder/search/index-client.ts';
import type { IndexerOptions } from '../../../src/tsrecorder/search/index-progress.ts';
import { MAX_QUEUED } from '../../../src/tsrecorder/search/comparison.ts';
import { Indexer } from '../../../src/tsrecorder/search/indexer.ts';
import { createSearchMetrics } from '../../../src/tsrecorder/search/search-metrics.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { parseRecordingId, recordingId } from '../../../src/tsrecorder/store/key.ts';
import { createRig, HEADER, uploadWhole, type Rig } from '../recorder-rig.ts';

type Asked = readonly [operation: string, ask: Record<string, unknown>];

/** A fake index that records its requests. */
class FakeIndex {
  readonly asked: Asked[] = [];
  /** Responses or exceptions that replace the normal ones, by operation. */
  readonly answers = new Map<string, () => unknown>();
  isStopped = false;
  killed = 0;
  closed = 0;

  readonly client = this as unknown as IndexClient;

  async ask(operation: string, ask: Record<string, unknown> | null): Promise<unknown> {
    if (this.isStopped) throw new Error('the process of the index has ended');
    this.asked.push([operation, ask ?? {}]);
    const answer = this.answers.get(operation);
    if (answer !== undefined) return answer();
    if (['ids', 'put'].includes(operation)) return [];
    if (operation === 'begin') return 'begun';
    if (['feed', 'commit', 'finish'].includes(operation)) return { work: 0, isDone: false, matches: [] };
    if (operation === 'status') return { sessions: 3, partial: 1, bytes: 7 };
    return null;
  }

  kill(): void {
    this.killed += 1;
    this.isStopped = true;
  }

  async close(): Promise<void> {
    this.closed += 1;
  }

  of(operation: string): readonly Record<string, unknown>[] {
    return this.asked.filter(([name]) => name === operation).map(([, ask]) => ask);
  }

  /** Ids of the recordings that the indexer started to index, in order. */
  begun(): readonly string[] {
    return this.of('begin').map(({ doc }) => (doc as { names: { id: string } }).names.id);
  }
}

/** Creates a store with recordings, oldest first. */
async function storeWith(...texts: readonly string[]): Promise<{ rig: Rig; ids: readonly string[] }> {
  const rig = await createRig();
  onTestFinished(() => rig[Symbol.asyncDispose]());
  for (const text of texts) await uploadWhole(rig.recorder, `${HEADER}[1,"o","${text}"]\n`);
  const ids = (await rig.list()).map(({ id }) => id).toReversed();
  expect(ids).toHaveLength(texts.length);
  return { rig, ids };
}

async function open(
  rig: Rig,
  start: () => Promise<FakeIndex>,
  options: Partial<IndexerOptions> = {},
): Promise<Indexer> {
  const indexer = new Indexer({
    store: await createDiskStore(rig.directory, { readOnly: true }),
    catalog: rig.recorder.catalog,
    live: () => [],
    text: 'all',
    start: async () => (await start()).client,
    now: () => performance.now(),
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

/** Creates a running session whose bytes and state the test can change. */
function runningSession(stored: CatalogEntry['recording'], durable: string) {
  const recording = { ...stored, state: 'running' } as const;
  const live = {
    key: parseRecordingId(stored.id),
    recording,
    isOpen: () => session.isOpen,
    durable: () => ({ castBytes: session.durable.length }),
  } as LiveRecording;
  const piece = {
    start: 0,
    end: () => session.durable.length,
    async *read({ start, end }: { readonly start: number; readonly end: number }) {
      yield Buffer.from(session.durable.slice(start, end));
    },
    live,
  };
  const entry: CatalogEntry = {
    recording,
    key: live.key,
    resizeOrder: 'columnsFirst',
    pieces: [piece],
    live,
    version: undefined,
  };
  const session = { durable, isOpen: true, live, entry };
  return session;
}

const version = (text: string): unknown => expect.stringMatching(new RegExp(`\\.${EXTRACTOR}\\.${text}$`));

describe('an indexer', () => {
  it('reads a recording again that seemed to grow although it was stored', async () => {
    const { rig, ids } = await storeWith('alpha');
    const { catalog } = rig.recorder;
    let looked = 0;
    const find = async (id: string): Promise<CatalogEntry | undefined> => {
      looked += 1;
      const entry = await catalog.find(id);
      if (looked > 2 || entry === undefined) return entry;
      const { version: _version, ...growing } = entry;
      return { ...growing, version: undefined };
    };
    const index = new FakeIndex();
    const indexer = await open(rig, async () => index, {
      catalog: new Proxy(catalog, { get: (on, name) => (name === 'find' ? find : Reflect.get(on, name)) }),
    });
    await expect.poll(() => index.of('flush').length).toBe(1);
    expect([looked, index.begun()]).toEqual([3, ids]);
    await indexer.settled();
    expect(indexer.pending()?.size).toBe(0);
  });

  it('returns counts that are a few seconds old, and waits for older ones', async () => {
    const { rig } = await storeWith('alpha');
    const index = new FakeIndex();
    let nowMs = 0;
    let sessions = 3;
    index.answers.set('status', () => ({ sessions, partial: 0, bytes: 0 }));
    const indexer = await open(rig, async () => index, { now: () => nowMs });
    await indexer.settled();
    const counts = async (): Promise<number> => (await indexer.progress()).sessions;
    expect(await counts()).toBe(3);
    sessions = 4;
    nowMs += 1500;
    expect(await counts()).toBe(3);
    expect(await counts()).toBe(4);
    sessions = 5;
    nowMs += 3_600_000;
    expect(await counts()).toBe(5);
  });

  it('sends all stored recordings, the newest first, and is ready after the last one', async () => {
    const { rig, ids } = await storeWith('alpha', 'beta', 'gamma');
    const index = new FakeIndex();
    const began = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    index.answers.set('begin', async () => {
      began.resolve();
      await go.promise;
      return 'begun';
    });
    const indexer = await open(rig, async () => index);
    await began.promise;
    expect(await indexer.progress()).toMatchObject({ state: 'building', backlog: 3, sessions: 3, bytes: 7 });
    go.resolve();
    await indexer.settled();
    expect(await indexer.progress()).toMatchObject({ state: 'ready', backlog: 0, lagSeconds: 0 });
    expect(index.begun()).toEqual(ids.toReversed());
    for (const { doc, isLive } of index.of('begin'))
      expect([doc, isLive]).toEqual([
        expect.objectContaining({ version: version('all'), text: 'all' }),
        false,
      ]);
    const keys = index.of('begin').map(({ key }) => key);
    expect(new Set(keys).size).toBe(3);
    // short recordings are sent in one piece, together with their end
    expect(index.of('feed')).toEqual([]);
    expect(index.of('finish').map(({ key }) => key)).toEqual(keys);
    expect(Buffer.from(index.of('finish')[0]!['bytes'] as Uint8Array).toString()).toContain('gamma');
    expect(index.of('remove')).toEqual([]);
  });

  it('sends a long recording in pieces, the last of them with its end', async () => {
    const { rig } = await storeWith('x'.repeat(600_000));
    const index = new FakeIndex();
    const indexer = await open(rig, async () => index);
    await indexer.settled();
    const pieces = [...index.of('feed'), ...index.of('finish')].map(({ bytes }) => bytes as Uint8Array);
    expect(pieces.length).toBeGreaterThan(2);
    for (const piece of pieces.slice(0, -1)) expect(piece.length).toBeGreaterThanOrEqual(65_536);
    const cast = Buffer.concat(pieces).toString();
    expect(cast).toBe(`${cast.split('\n')[0]}\n[1,"o","${'x'.repeat(600_000)}"]\n`);
  });

  it('reads a new recording before older ones, once, and ignores invalid ids', async () => {
    const { rig, ids } = await storeWith('alpha', 'beta', 'gamma');
    const index = new FakeIndex();
    const began = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    index.answers.set('begin', async () => {
      began.resolve();
      await go.promise;
      return 'begun';
    });
    const indexer = await open(rig, async () => index);
    await began.promise;
    indexer.stored(ids[0]!);
    indexer.stored(ids[0]!);
    indexer.stored('no recording');
    expect((await indexer.progress()).backlog).toBe(4);
    go.resolve();
    await indexer.settled();
    expect(index.begun()).toEqual([ids[2], ids[0], ids[1], ids[0]]);
  });

  it('drops changes while its queue is full, and finds them with a comparison afterwards', async () => {
    const { rig, ids } = await storeWith('alpha', 'beta');
    const index = new FakeIndex();
    const began = Promise.withResolvers<void>();
    const go = Promise.withResolvers<void>();
    index.answers.set('begin', async () => {
      began.resolve();
      await go.promise;
      return 'begun';
    });
    onTestFinished(() => go.resolve());
    const store = await createDiskStore(rig.directory, { readOnly: true });
    const listed = (await store.list()).filter(({ key }) => recordingId(key) === ids[0]);
    const registry = new Registry();
    let isAdded = false;
    const indexer = await open(rig, async () => index, {
      store: { list: async () => (isAdded ? store.list() : listed) },
      catalog: { find: async (id) => (ids.includes(id) ? rig.recorder.catalog.find(id) : undefined) },
      metrics: createSearchMetrics(registry),
    });
    await began.promise;
    expect(indexer.pending()).toBeDefined();
    for (let at = 0; at < MAX_QUEUED; at += 1)
      indexer.stored(`nX_2026-01-01T00:00:00.${String(at).padStart(9, '0')}Z`);
    isAdded = true;
    indexer.stored(ids[1]!);
    indexer.removed(['nGONE_2026-01-01T00:00:00Z']);
    expect((await indexer.progress()).backlog).toBe(MAX_QUEUED + 1);
    // lists must not use the index now, because the indexer does not know which recordings the index lacks
    expect(indexer.pending()).toBeUndefined();
    expect(await registry.metrics()).toContain('tailcast_search_queue_dropped_total 1\n');
    go.resolve();
    await indexer.settled();
    expect(index.begun()).toContain(ids[1]);
    expect(await indexer.progress()).toMatchObject({ state: 'ready', backlog: 0 });
    expect(indexer.pending()?.size).toBe(0);
  });

  it('sends no recordings that the index has, and none if only names are indexed', async () => {
    const { rig } = await storeWith('alpha');
    const index = new FakeIndex();
    index.answers.set('begin', () => 'same');
    await (await open(rig, async () => index)).settled();
    expect(index.asked.map(([operation]) => operation)).toEqual(['ids', 'begin', 'flush', 'tidy']);
    const names = new FakeIndex();
    await (await open(rig, async () => names, { text: 'off' })).settled();
    expect(names.asked.map(([operation]) => operation)).toEqual(['ids', 'put', 'flush', 'tidy']);
  });

  it('keeps recordings of the current version, and removes those that the store lacks', async () => {
    const { rig, ids } = await storeWith('alpha', 'beta');
    const gone = 'nGONE_2026-01-01T00:00:00Z';
    const index = new FakeIndex();
    index.answers.set('ids', () => [
      { id: ids[0], version: `1.${EXTRACTOR}.all` },
      { id: ids[1], version: `1.${EXTRACTOR}.commands` },
      { id: gone, version: `1.${EXTRACTOR}.all` },
    ]);
    const indexer = await open(rig, async () => index);
    await indexer.settled();
    expect(index.begun()).toEqual([ids[1]]);
    expect(index.of('remove')).toEqual([{ ids: [gone], compact: true }]);
    indexer.removed([ids[0]!]);
    await indexer.settled();
    expect(index.of('remove')).toEqual([
      { ids: [gone], compact: true },
      { ids: [ids[0]], compact: true },
    ]);
  });

  it('reads recordings again whose version in the store differs, for any upload of a session', async () => {
    const { rig, ids } = await storeWith('alpha', 'beta', 'gamma', 'delta');
    const store = await createDiskStore(rig.directory, { readOnly: true });
    const stored = (await store.list()).map((recording) => ({
      ...recording,
      stat: { bytes: 100, modifiedAtMs: 36 },
    }));
    const index = new FakeIndex();
    const version = (own: string): string => `${own}.${EXTRACTOR}.all`;
    index.answers.set('ids', () => [
      { id: ids[0], version: version('2s-10s') },
      { id: ids[1], version: version('2s-11s') },
      { id: ids[2], version: version('99-99s-2s-10s') },
      { id: ids[3], version: version('99-99s-12s-10s') },
    ]);
    const indexer = await open(rig, async () => index, { store: { list: async () => stored } });
    await indexer.settled();
    expect(index.begun()).toEqual([ids[3], ids[1]]);
  });

  it('removes recordings that the catalogue does not find', async () => {
    const { rig, ids } = await storeWith('alpha');
    const index = new FakeIndex();
    const indexer = await open(rig, async () => index, { catalog: { find: async () => undefined } });
    await expect.poll(() => index.of('remove')).toEqual([{ ids, compact: true }]);
    expect(index.begun()).toEqual([]);
    await indexer.settled();
  });

  it('sends running sessions up to the durable bytes, commits each time, and drops them at their end', async () => {
    const { rig } = await storeWith('alpha');
    const [stored] = await rig.list();
    const session = runningSession(stored!, 'first ');
    const index = new FakeIndex();
    index.answers.set('ids', () => [{ id: stored!.id, version: `1.${EXTRACTOR}.all` }]);
    await open(rig, async () => index, {
      live: () => [session.live],
      catalog: { find: async () => session.entry },
    });
    const fed = () => Buffer.concat(index.of('commit').map(({ bytes }) => bytes as Uint8Array)).toString();
    await expect.poll(() => index.of('commit').length).toBe(1);
    expect(fed()).toBe('first ');
    session.durable = 'first second';
    await expect.poll(() => index.of('commit').length).toBe(2);
    expect(fed()).toBe('first second');
    expect(index.of('feed')).toEqual([]);
    session.isOpen = false;
    await expect.poll(() => index.of('drop')).toEqual([{ key: index.of('begin')[0]!['key'] }]);
    expect(index.of('begin')).toMatchObject([{ isLive: true, doc: { names: { state: 'running' } } }]);
    expect(index.killed).toBe(0);
  });

  it.each(['begin', 'finish', 'flush'])(
    'is not ready while a read recording is not written to the index: %s',
    async (operation) => {
      const { rig } = await storeWith('alpha', 'beta');
      const index = new FakeIndex();
      const taken = Promise.withResolvers<unknown>();
      let asked = 0;
      index.answers.set(operation, () => {
        asked += 1;
        return taken.promise;
      });
      const indexer = await open(rig, async () => index);
      onTestFinished(() => taken.resolve([]));
      await expect.poll(() => asked).toBe(1);
      expect(await indexer.progress()).toMatchObject({ state: 'building', backlog: 2 });
      taken.resolve(operation === 'begin' ? 'same' : []);
      await indexer.settled();
      expect(await indexer.progress()).toMatchObject({ state: 'ready', backlog: 0 });
    },
  );

  it('reports the delay of running sessions, while the index is busy and while there is no index', async () => {
    const { rig } = await storeWith('alpha');
    const [stored] = await rig.list();
    const session = runningSession(stored!, 'first ');
    let nowMs = 0;
    let commit: Promise<unknown> = Promise.resolve([]);
    const ill = new FakeIndex();
    ill.answers.set('ids', () => [{ id: stored!.id, version: `1.${EXTRACTOR}.all` }]);
    ill.answers.set('commit', () => commit);
    let starts = 0;
    let running: readonly LiveRecording[] = [session.live];
    const indexer = await open(
      rig,
      async () => {
        starts += 1;
        if (starts > 1) throw new Error('no index');
        return ill;
      },
      {
        now: () => nowMs,
        live: () => running,
        catalog: { find: async () => session.entry },
      },
    );
    const stuck = Promise.withResolvers<unknown>();
    const removing = Promise.withResolvers<unknown>();
    onTestFinished(() => [stuck, removing].forEach(({ resolve }) => resolve([])));
    const lag = async (): Promise<number> => (await indexer.progress()).lagSeconds;
    await expect.poll(() => ill.of('commit').length).toBe(1);
    await expect.poll(lag).toBe(0);
    commit = stuck.promise;
    session.durable = 'first second ';
    await expect.poll(() => ill.of('commit').length).toBe(2);
    nowMs = 7000;
    expect(await lag()).toBe(7);
    // completes the delayed commit, and delays a removal instead, so that the lag grows again
    stuck.resolve([]);
    await expect.poll(lag).toBe(0);
    ill.answers.set('remove', () => removing.promise);
    indexer.removed(['gone']);
    await expect.poll(() => ill.of('remove').length).toBe(1);
    session.durable = 'first second third';
    await expect
      .poll(async () => {
        nowMs += 1000;
        return (await lag()) > 3;
      })
      .toBe(true);
    const before = await lag();
    removing.reject(new Error('no room'));
    await expect.poll(async () => (await indexer.progress()).problem).toBe('no index');
    nowMs += 10_000;
    expect(await lag()).toBeGreaterThanOrEqual(before + 10);
    running = [];
    await expect.poll(lag).toBe(0);
  });

  it('reports its progress although the process that counts does not respond', async () => {
    const { rig } = await storeWith('alpha');
    const index = new FakeIndex();
    let nowMs = 0;
    const indexer = await open(rig, async () => index, { now: () => nowMs });
    await indexer.settled();
    expect((await indexer.progress()).sessions).toBe(3);
    nowMs += 3_600_000;
    const never = Promise.withResolvers<unknown>();
    index.answers.set('status', () => never.promise);
    expect(await indexer.progress()).toMatchObject({ state: 'ready', sessions: 3 });
    nowMs += 3_600_000;
    never.reject(new Error('refused'));
    expect((await indexer.progress()).sessions).toBe(3);
  });

  it('compares again after its interval, and not before', async () => {
    const { rig } = await storeWith('alpha');
    const index = new FakeIndex();
    let now = 0;
    const indexer = await open(rig, async () => index, { now: () => now, reconcileMs: 100 });
    await indexer.settled();
    now = 99;
    indexer.removed([]);
    await indexer.settled();
    expect(index.of('ids')).toHaveLength(1);
    now = 100;
    await expect.poll(() => index.of('ids').length).toBe(2);
  });

  it('skips an unreadable recording, reports it, and continues with the next', async () => {
    const { rig, ids } = await storeWith('alpha', 'beta');
    const index = new FakeIndex();
    let ends = 0;
    index.answers.set('finish', () => {
      ends += 1;
      if (ends === 1) throw new Error('unreadable');
      return [];
    });
    const indexer = await open(rig, async () => index);
    await indexer.settled();
    const [first, second] = index.of('begin').map(({ key }) => key);
    expect(index.of('drop')).toEqual([{ key: first }]);
    expect(index.of('finish').map(({ key }) => key)).toEqual([first, second]);
    expect(index.begun()).toEqual(ids.toReversed());
    expect(index.killed).toBe(0);
    expect((await indexer.progress()).state).toBe('ready');
  });

  it('reports an error of the index, and starts again with a new process', async () => {
    const { rig, ids } = await storeWith('alpha');
    const indexes = [new FakeIndex(), new FakeIndex()];
    const [ill, well] = indexes as [FakeIndex, FakeIndex];
    const again = Promise.withResolvers<void>();
    ill.answers.set('finish', () => {
      ill.isStopped = true;
      throw new Error('it has ended');
    });
    let started = 0;
    const indexer = await open(rig, async () => {
      started += 1;
      if (started === 2) await again.promise;
      return indexes[started - 1]!;
    });
    await expect.poll(async () => (await indexer.progress()).state).toBe('unavailable');
    expect(await indexer.progress()).toMatchObject({ problem: 'it has ended', sessions: 0 });
    expect(ill.killed).toBe(1);
    again.resolve();
    await expect.poll(() => well.of('finish').length).toBe(1);
    expect(well.begun()).toEqual(ids);
    expect(started).toBe(2);
    const progress = await indexer.progress();
    expect(progress.problem).toBeUndefined();
    expect(progress.sessions).toBe(3);
  });

  it('is settled also if a recording was stored while somebody waited', async () => {
    const { rig, ids } = await storeWith('alpha', 'beta');
    const index = new FakeIndex();
    const indexer = await open(rig, async () => index);
    const settled = indexer.settled();
    for (const id of ids) indexer.stored(id);
    indexer.removed([]);
    await settled;
    expect(indexer.pending()?.size).toBe(0);
    await indexer.settled();
  });

  it('tries again if no process can be started', async () => {
    const { rig } = await storeWith('alpha');
    const index = new FakeIndex();
    let started = 0;
    const indexer = await open(rig, async () => {
      started += 1;
      if (started < 3) throw new Error('no room');
      return index;
    });
    await indexer.settled();
    expect(started).toBe(3);
    await indexer.close();
    expect(index.closed).toBe(1);
    expect(index.killed).toBe(0);
  });
});
