import { mkdir, mkdtemp, open, readdir, rm, truncate, writeFile, type FileHandle } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import {
  openEventBatches,
  type EventBatches,
  type EventBatchOptions,
  type ReadWaiting,
} from '../../../src/tsrecorder/events/event-batches.ts';
import {
  createEventSearch,
  type EventQuery,
  type EventSearch,
} from '../../../src/tsrecorder/events/event-query.ts';
import { batchPrefix, batchTime, signBatch } from '../../../src/tsrecorder/evidence/signed-batch.ts';
import { generateSigningKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import type { RecordingStore } from '../../../src/tsrecorder/store/store.ts';

const DAY = '2026-07-29';
const time = (second: number): string => `${DAY}T10:44:4${second}.000000001Z`;
const nameOf = (second: number): string => `${batchPrefix(DAY)}${time(second)}_0123.ndjson`;

interface Bench {
  readonly store: RecordingStore;
  /** Directory of the store. */
  readonly stored: string;
  /** Directory of batches that are not stored yet. */
  readonly directory: string;
  readonly failures: () => number;
  open(more?: Partial<EventBatchOptions>): Promise<EventBatches>;
  search(onOversized?: (name: string) => void, from?: RecordingStore): Promise<EventSearch>;
}

/** Creates a store and functions to open event batches; by default, each event is a batch of its own. */
async function createBench(): Promise<Bench> {
  const root = await mkdtemp(join(tmpdir(), 'event-batches-'));
  const directory = join(root, 'spool');
  await mkdir(directory);
  const store = await createDiskStore(join(root, 'store'));
  const opened: EventBatches[] = [];
  let failures = 0;
  onTestFinished(async () => {
    for (const batches of opened) await batches.close();
  });
  const bench: Bench = {
    store,
    stored: join(root, 'store'),
    directory,
    failures: () => failures,
    async open(more = {}) {
      const batches = await openEventBatches({
        directory,
        store,
        recorder: '0123',
        periodMs: 60_000,
        maxBatchBytes: 1,
        retryMs: 10,
        sign: (_, lines) => lines,
        onStored: async () => undefined,
        log: createSilentLogger(),
        onFailure: () => (failures += 1),
        ...more,
      });
      opened.push(batches);
      return batches;
    },
    async search(onOversized = () => undefined, from = store) {
      return createEventSearch(from, await bench.open(), new Map(), () => Date.parse(time(9)), onOversized);
    },
  };
  return bench;
}

const storedIn = async ({ store }: Bench, name: string): Promise<string | undefined> => {
  const content = await store.readDocument(name);
  return content && Buffer.from(content).toString();
};

describe('batches of events', () => {
  it('are stored when the store is available again', async () => {
    const bench = await createBench();
    let down = true;
    const putDocument: RecordingStore['putDocument'] = async (name, content) => {
      if (down) throw new TailcastError('STORE_FAILED', 'EIO');
      await bench.store.putDocument(name, content);
    };
    const batches = await bench.open({ store: { ...bench.store, putDocument } });
    await batches.append(time(1), '{"a":1}');
    await expect.poll(bench.failures).toBeGreaterThan(2);
    down = false;
    await expect.poll(() => storedIn(bench, nameOf(1))).toBe('{"a":1}\n');
    await expect.poll(() => readdir(bench.directory)).toEqual([]);
  });

  it('acknowledge only events that are on the disk', async () => {
    const bench = await createBench();
    const batches = await bench.open();
    await rm(bench.directory, { recursive: true });
    await expect(batches.append(time(1), '{}')).rejects.toMatchObject({ code: 'STORE_FAILED' });
    await mkdir(bench.directory);
    await batches.append(time(2), '{"b":2}');
    await expect.poll(() => storedIn(bench, nameOf(2))).toBe('{"b":2}\n');
  });

  it.each([
    ['another length', 'something else\n'],
    ['the same length', '{"a":2}\n'],
  ])('stay in the spool when the store has other content of %s under their name', async (_, other) => {
    const bench = await createBench();
    await bench.store.putDocument(nameOf(1), Buffer.from(other));
    for (const at of [1, 2])
      await writeFile(join(bench.directory, nameOf(at).slice(batchPrefix(DAY).length)), `{"a":${at}}\n`);
    const batches = await bench.open();
    await expect.poll(bench.failures).toBeGreaterThan(0);
    // the second batch is stored although the first one cannot be stored
    expect(await storedIn(bench, nameOf(2))).toBe('{"a":2}\n');
    expect(await (await batches.waiting()).get(nameOf(1))?.()).toBe('{"a":1}\n');
    expect(await storedIn(bench, nameOf(1))).toBe(other);
  });

  it('that the store already contains are removed from the spool', async () => {
    const bench = await createBench();
    await bench.store.putDocument(nameOf(1), Buffer.from('{"a":1}\n'));
    await writeFile(join(bench.directory, nameOf(1).slice(batchPrefix(DAY).length)), '{"a":1}\n');
    await bench.open();
    await expect.poll(() => readdir(bench.directory)).toEqual([]);
    expect(bench.failures()).toBe(0);
  });

  it('that the store contains with a signature of an earlier key get the new signature', async () => {
    const bench = await createBench();
    const lines = Buffer.from('{"a":1}\n');
    await bench.store.putDocument(nameOf(1), signBatch(nameOf(1), lines, generateSigningKey()));
    await writeFile(join(bench.directory, nameOf(1).slice(batchPrefix(DAY).length)), lines);
    const key = generateSigningKey();
    await bench.open({ sign: (name, content) => signBatch(name, content, key) });
    await expect.poll(() => readdir(bench.directory)).toEqual([]);
    expect(await storedIn(bench, nameOf(1))).toContain(key.public.id);
  });

  it('are stored even if the store does not permit the replacement of an earlier batch', async () => {
    const bench = await createBench();
    const lines = Buffer.from('{"a":1}\n');
    await bench.store.putDocument(nameOf(1), signBatch(nameOf(1), lines, generateSigningKey()));
    for (const second of [1, 2])
      await writeFile(join(bench.directory, nameOf(second).slice(batchPrefix(DAY).length)), lines);
    const retained: (boolean | undefined)[] = [];
    const replaceDocument: RecordingStore['replaceDocument'] = async (_name, _content, retain) => {
      retained.push(retain);
      throw new TailcastError('STORE_FAILED', 'AccessDenied');
    };
    const key = generateSigningKey();
    const batches = await bench.open({
      store: { ...bench.store, replaceDocument },
      sign: (name, content) => signBatch(name, content, key),
    });
    await expect.poll(bench.failures).toBeGreaterThan(0);
    await batches.close();
    expect(await storedIn(bench, nameOf(2))).toContain(key.public.id);
    expect([retained[0], [...(await batches.waiting()).keys()]]).toEqual([true, [nameOf(1)]]);
  });

  it('are not stored while they are being created', async () => {
    const bench = await createBench();
    let down = true;
    const putDocument: RecordingStore['putDocument'] = async (name, content) => {
      if (down) throw new TailcastError('STORE_FAILED', 'EIO');
      await bench.store.putDocument(name, content);
    };
    const batches = await bench.open({ store: { ...bench.store, putDocument }, maxBatchBytes: 10 });
    await batches.append(time(1), '{"first":1}');
    await expect.poll(bench.failures).toBeGreaterThan(0);
    // delays the sync of the folder, so the file of the second batch exists and is empty
    const handle = await open(bench.directory);
    const prototype = Object.getPrototypeOf(handle) as FileHandle;
    await handle.close();
    const slow = Promise.withResolvers<void>();
    const sync = vi.spyOn(prototype, 'sync').mockImplementationOnce(() => slow.promise);
    onTestFinished(() => sync.mockRestore());
    const second = batches.append(time(2), '{"b":2}');
    await expect.poll(() => sync.mock.calls.length).toBe(1);
    down = false;
    await expect.poll(() => storedIn(bench, nameOf(1))).toBe('{"first":1}\n');
    slow.resolve();
    await second;
    await batches.close();
    expect(await storedIn(bench, nameOf(2))).toBe('{"b":2}\n');
  });

  it('stay below their size limit if many large events arrive at the same time', async () => {
    const bench = await createBench();
    const batches = await bench.open({ maxBatchBytes: 100 });
    const event = (name: number): string => JSON.stringify({ name, text: 'x'.repeat(40) });
    await Promise.all([1, 2, 3, 4, 5].map((second) => batches.append(time(second), event(second))));
    await batches.append(time(6), JSON.stringify({ text: 'x'.repeat(200) }));
    await batches.close();
    const names = await bench.store.listDocuments(batchPrefix());
    const sizes = await Promise.all(
      names.map(async (name) => (await storedIn(bench, name))?.split('\n').length),
    );
    expect(names).toEqual([nameOf(1), nameOf(2), nameOf(3), nameOf(4), nameOf(5), nameOf(6)]);
    expect(sizes).toEqual([2, 2, 2, 2, 2, 2]);
  });

  it('are stored when their recorder is closed', async () => {
    const bench = await createBench();
    const batches = await bench.open({ maxBatchBytes: 1_000_000 });
    await batches.append(time(1), '{"a":1}');
    expect(await storedIn(bench, nameOf(1))).toBeUndefined();
    await batches.close();
    expect(await storedIn(bench, nameOf(1))).toBe('{"a":1}\n');
  });
});

describe('a search for events', () => {
  it('reads only batches', async () => {
    const bench = await createBench();
    const { store } = bench;
    const event = `{"event":{"type":"t","timestamp":1785321882}}\n`;
    await store.putDocument(nameOf(1), Buffer.from(event));
    await store.putDocument(`${batchPrefix(DAY)}notes.txt`, Buffer.from(event));
    const search = await bench.search();
    const { events } = await search.find({ limit: 10 });
    expect(events.map((text) => JSON.parse(text) as unknown)).toEqual([
      { ...JSON.parse(event), trust: 'unverified', trustReason: 'its batch has no signature' },
    ]);
  });

  it('reads no batch with a long name or in another folder', async () => {
    const bench = await createBench();
    const event = Buffer.from(`{"event":{"type":"t","timestamp":1785321882}}\n`);
    const file = nameOf(1).slice(batchPrefix(DAY).length);
    const long = nameOf(1).replace(/_.*$/, `_${'z'.repeat(190)}.ndjson`);
    for (const name of [
      long,
      `${batchPrefix(DAY)}more/${file}`,
      `${batchPrefix(DAY)}${file.replace(DAY, '2026-01-01')}`,
    ]) {
      expect(batchTime(name)).toBeUndefined();
      await bench.store.putDocument(name, event);
    }
    expect(batchTime(nameOf(1))).toBeDefined();
    const search = await bench.search();
    expect(await search.find({ limit: 10 })).toEqual({ events: [], skipped: [] });
  });

  it('reads only as many batches of the spool as the page needs', async () => {
    const { store } = await createBench();
    const read: string[] = [];
    const waiting = async (): Promise<ReadonlyMap<string, ReadWaiting>> =>
      new Map(
        [1, 2, 3].map((second) => [
          nameOf(second),
          async () => {
            read.push(nameOf(second));
            return `{"event":{"type":"t","timestamp":${1_785_321_880 + second}}}\n`;
          },
        ]),
      );
    const nowMs = (): number => Date.parse(time(9));
    const search = createEventSearch(store, { waiting }, new Map(), nowMs, () => undefined);
    const { events } = await search.find({ limit: 1 });
    expect(events.map((text) => JSON.parse(text).event.timestamp)).toEqual([1_785_321_883]);
    expect(read).toEqual([nameOf(3), nameOf(2)]);
  });

  it('rejects an unreadable cursor instead of starting with the first page', async () => {
    const bench = await createBench();
    const search = await bench.search();
    const long = nameOf(1).replace(/_.*$/, `_${'z'.repeat(190)}.ndjson`);
    for (const cursor of ['', 'x', nameOf(1), `${long}#1`, `events/x#1`, `${nameOf(1)}#x`])
      await expect(search.find({ limit: 10, cursor })).rejects.toMatchObject({ code: 'USAGE' });
    expect(await search.find({ limit: 10, cursor: `${nameOf(1)}#1` })).toEqual({ events: [], skipped: [] });
  });

  it('reaches an event after more unsigned batches with long names than one page reads', async () => {
    const bench = await createBench();
    const { store } = bench;
    await store.putDocument(nameOf(1), Buffer.from(`{"event":{"type":"t","timestamp":1785321882}}\n`));
    for (let count = 0; count <= 200; count++) {
      const began = `${DAY}T23:59:59.${String(999_999_999 - count)}Z`;
      await store.putDocument(`${batchPrefix(DAY)}${began}_${'z'.repeat(190)}.ndjson`, Buffer.from('{}\n'));
      await store.putDocument(`${batchPrefix(DAY)}${began}_${'z'.repeat(32)}.ndjson`, Buffer.from('{}\n'));
    }
    const search = await bench.search();
    let found = 0;
    let cursor: string | undefined;
    for (let pages = 0; pages < 3; pages++) {
      const page = await search.find({ limit: 10, ...(cursor === undefined ? {} : { cursor }) });
      found += page.events.length;
      cursor = page.next;
      if (cursor === undefined) break;
    }
    expect([found, cursor]).toEqual([1, undefined]);
  });

  it('returns only events, and only those within the requested times', async () => {
    const bench = await createBench();
    const at = (second: number): string => `{"event":{"type":"t","timestamp":${1_785_321_880 + second}}}`;
    await bench.store.putDocument(
      nameOf(1),
      Buffer.from(`${at(1)}\n{"other":1}\n${at(5)}\nno JSON\n${at(9)}\n`),
    );
    const search = await bench.search();
    const found = async (query: EventQuery): Promise<readonly string[]> =>
      (await search.find(query)).events.map((text) => text.replace(/,"trust":.*/, '}'));
    expect(await found({ limit: 10 })).toEqual([at(9), at(5), at(1)]);
    const nanoseconds = (second: number): bigint => BigInt(1_785_321_880 + second) * 1_000_000_000n;
    const query = { limit: 10, from: nanoseconds(2), to: nanoseconds(9) };
    expect(await found(query)).toEqual([at(5)]);
  });

  it('skips an oversized batch, reports its name, and finds the other events of the day', async () => {
    const bench = await createBench();
    const event = (second: number): Buffer =>
      Buffer.from(`{"event":{"type":"t","timestamp":${1_785_321_880 + second}}}\n`);
    await bench.store.putDocument(nameOf(1), event(1));
    await bench.store.putDocument(nameOf(3), event(3));
    await bench.store.putDocument(nameOf(2), event(2));
    await truncate(join(bench.stored, nameOf(2)), 65 * 1024 ** 2);
    const oversized: string[] = [];
    const search = await bench.search((name) => oversized.push(name));
    const page = await search.find({ limit: 10 });
    expect([page.events.length, page.skipped, page.next]).toEqual([2, [nameOf(2)], undefined]);
    expect(oversized).toEqual([nameOf(2)]);
  });

  it.each([
    [100_000, 2, []],
    [100_001, 1, [batchPrefix(DAY)]],
  ])('of a day with %i batches finds %i events', async (count, events, skipped) => {
    const bench = await createBench();
    const event = Buffer.from(`{"event":{"type":"t","timestamp":1785321882}}\n`);
    const earlier = nameOf(1).replaceAll('2026-07-29', '2026-07-28');
    for (const name of [nameOf(1), earlier]) await bench.store.putDocument(name, event);
    const others = Array.from({ length: count - 1 }, (_, at) => `${batchPrefix(DAY)}forged-${at}`);
    const listDocuments: RecordingStore['listDocuments'] = async (prefix, maximum = Infinity) => {
      const names = await bench.store.listDocuments(prefix);
      return prefix === batchPrefix(DAY) ? [...names, ...others].slice(0, maximum) : names;
    };
    const oversized: string[] = [];
    const search = await bench.search((name) => oversized.push(name), { ...bench.store, listDocuments });
    const page = await search.find({ limit: 10 });
    expect([page.events.length, page.skipped, page.next]).toEqual([events, skipped, undefined]);
    expect(oversized).toEqual(skipped);
  });

  it('reads a limited number of bytes for one page, and creates no list of a batch of empty lines', async () => {
    const bench = await createBench();
    const event = Buffer.from(`{"event":{"type":"t","timestamp":1785321882}}\n`);
    await bench.store.putDocument(nameOf(1), event);
    const empty = Buffer.alloc(24 * 1024 ** 2, 0x20);
    empty[empty.length - 1] = 0x0a;
    for (const second of [2, 3, 4, 5]) await bench.store.putDocument(nameOf(second), empty);
    const search = await bench.search();
    const first = await search.find({ limit: 10 });
    expect([first.events.length, first.next?.startsWith(nameOf(2))]).toEqual([0, true]);
    const second = await search.find({ limit: 10, cursor: first.next! });
    expect([second.events.length, second.next]).toEqual([1, undefined]);
  });

  it('continues within a batch after the last event of a page', async () => {
    const bench = await createBench();
    const at = (second: number): string => `{"event":{"type":"ü","timestamp":${1_785_321_880 + second}}}`;
    await bench.store.putDocument(nameOf(1), Buffer.from(`${at(1)}\n${at(2)}\n${at(3)}\n`));
    const search = await bench.search();
    const seen: unknown[] = [];
    for (let cursor: string | undefined, first = true; first || cursor !== undefined; first = false) {
      const page = await search.find({ limit: 1, ...(cursor === undefined ? {} : { cursor }) });
      seen.push(...page.events.map((text) => JSON.parse(text).event.timestamp - 1_785_321_880));
      cursor = page.next;
    }
    expect(seen).toEqual([3, 2, 1]);
  });
});
