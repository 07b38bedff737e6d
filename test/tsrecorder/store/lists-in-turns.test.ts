/**
 * Lists of stores. Lists must be complete and must not block the event loop; if nothing has changed, a list is the same
 * array as before.
 */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createArchiveStore } from '../../../src/tsrecorder/store/archive-store.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import {
  parseMarkName,
  parseRecordingKey,
  recordingId,
  SESSIONS_FOLDER,
} from '../../../src/tsrecorder/store/key.ts';
import { createS3Store, S3_LISTING } from '../../../src/tsrecorder/store/s3.ts';
import type { RecordingStore, StoredRecording } from '../../../src/tsrecorder/store/store.ts';
import { turnsDuring } from '../../support/loop-turns.ts';
import { createMemoryBucket } from './memory-bucket.ts';

const nowMs = (): number => Date.parse('2026-07-29T12:00:00Z');
const directory = mkdtempSync(join(tmpdir(), 'tsrecorder-lists-'));

const TIMES = [
  '2026-07-29T11:50:50Z',
  '2026-07-29T11:50:50.5Z',
  '2026-07-29T11:50:50.500000000Z',
  '2026-07-29T11:50:50.512345678Z',
  '2026-07-28T11:50:50.000000001Z',
  '2026-02-30T11:50:50Z',
  'notes',
  '',
];
const NODES = ['n1', 'n1_2', 'n%C3%A4', 'n ot', '.hidden'];
const MARKS = ['a', 'b'].map((digit) => digit.repeat(32));

/** Random node and time of a recording; file names in a store consist of these. */
const name = fc.oneof(
  { weight: 6, arbitrary: fc.tuple(fc.constantFrom(...NODES), fc.constantFrom(...TIMES)) },
  { weight: 1, arbitrary: fc.constant(['n1', '2026-07-29T11:50:50Zz'] as const) },
);
const file = fc.oneof(
  {
    weight: 5,
    arbitrary: fc
      .tuple(name, fc.constantFrom('.cast', '.cast', '.json', '.notes', '.part'))
      .map(([[node, time], suffix]) => `${node}/${time}${suffix}`),
  },
  {
    weight: 2,
    arbitrary: fc
      .tuple(fc.constantFrom('n1', 'n1_2'), fc.constantFrom(...TIMES), fc.constantFrom(...MARKS))
      .map(([node, time, mark]) => `${SESSIONS_FOLDER}${node}_${time}~${mark}`),
  },
);
const files = fc.uniqueArray(file, { maxLength: 25 });

/** Returns the expected list, from all names. */
function listOf(names: readonly string[]): readonly unknown[] {
  const marks = new Map<string, string>();
  for (const one of names.toSorted()) {
    const parsed = one.startsWith(SESSIONS_FOLDER)
      ? parseMarkName(one.slice(SESSIONS_FOLDER.length))
      : undefined;
    if (parsed !== undefined) marks.set(parsed.id, parsed.mark);
  }
  return names
    .flatMap((one) => {
      const key = parseRecordingKey(one);
      if (key === undefined || one.startsWith('.')) return [];
      const sessionMark = marks.get(recordingId(key));
      const hasSidecar = names.includes(one.replace(/cast$/, 'json'));
      return [{ key, hasSidecar, ...(sessionMark === undefined ? {} : { sessionMark }) }];
    })
    .toSorted(byId);
}

function byId(left: Pick<StoredRecording, 'key'>, right: Pick<StoredRecording, 'key'>): number {
  return recordingId(left.key) < recordingId(right.key) ? -1 : 1;
}

/** Returns the list of the store, reduced to the values that are part of file names. */
async function listed(store: RecordingStore): Promise<readonly unknown[]> {
  const list = await store.list();
  return list.toSorted(byId).map(({ key, hasSidecar, sessionMark }) => ({
    key,
    hasSidecar,
    ...(sessionMark === undefined ? {} : { sessionMark }),
  }));
}

const isUnique = (names: readonly string[]): readonly string[] =>
  // keeps one session mark (after `~`) per recording, because recorders write only one
  names.filter((one, at) => names.findIndex((other) => other.split('~')[0] === one.split('~')[0]) === at);

describe('a store that changes', () => {
  it('lists the content of its folder', async () => {
    let count = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(files, { minLength: 1, maxLength: 4 }), async (steps) => {
        count += 1;
        const root = join(directory, String(count));
        mkdirSync(root);
        const stores = await Promise.all(
          [0, 3_600_000].map((aheadMs) =>
            createDiskStore(root, { readOnly: true, nowMs: () => Date.now() + aheadMs }),
          ),
        );
        for (const names of steps.map(isUnique)) {
          for (const folder of [...NODES, SESSIONS_FOLDER]) {
            rmSync(join(root, folder), { recursive: true, force: true });
            if (names.some((one) => one.startsWith(`${folder}/`.replace('//', '/'))))
              mkdirSync(join(root, folder));
          }
          for (const one of names) writeFileSync(join(root, one), '');
          for (const store of stores) expect(await listed(store)).toEqual(listOf(names));
        }
      }),
      { numRuns: 40 },
    );
  });

  it('lists the content of its bucket, with and without archives', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(files, { minLength: 1, maxLength: 4 }), async (steps) => {
        const bucket = createMemoryBucket(nowMs, 3);
        const store = createS3Store({ ...S3_LISTING, recentMs: 3_600_000, bucket, nowMs });
        const archives = createArchiveStore(store, 'plain');
        for (const names of steps.map(isUnique)) {
          const wanted = new Set(names);
          for (const one of bucket.objects.keys()) if (!wanted.has(one)) bucket.objects.delete(one);
          for (const one of names)
            if (!bucket.objects.has(one)) await bucket.put(one, new Uint8Array(one.length));
          // a removal makes the store list old recordings again, which it otherwise does only periodically
          await store.remove({ nodeId: 'nGONE', time: '2026-01-01T00:00:00Z' });
          expect(await listed(store)).toEqual(listOf(names));
          expect(await listed(archives)).toEqual(listOf(names));
          const [first, again] = [await archives.list(), await archives.list()];
          expect(again).toBe(first);
          const [some] = first;
          if (some === undefined) continue;
          // the store knows the size of a recording after `stat`
          await archives.stat(some.key, 'cast');
          const more = await archives.list();
          const found = more.find(({ key }) => recordingId(key) === recordingId(some.key));
          expect(found?.stat?.bytes).toBe((await store.stat(some.key, 'cast'))?.bytes);
          expect(more).toHaveLength(first.length);
        }
      }),
      { numRuns: 60 },
    );
  });
});

describe('a store of many recordings', () => {
  const nameAt = (at: number): string =>
    `n${at % 2}/${new Date(Date.parse('2026-07-29T00:00:00Z') + at * 1000).toISOString()}.cast`;

  it('gives concurrent callers one list, and the same array if nothing changed', async () => {
    const root = join(directory, 'many');
    for (const node of ['n0', 'n1']) mkdirSync(join(root, node), { recursive: true });
    for (let at = 0; at < 5000; at += 1) writeFileSync(join(root, nameAt(at)), '');
    const store = await createDiskStore(root, { readOnly: true });
    const lists: (readonly StoredRecording[])[] = [];
    const list = async (): Promise<void> => {
      lists.push(...(await Promise.all([store.list(), store.list()])));
    };
    await list();
    expect(lists[0]).toHaveLength(5000);
    expect(lists[1]).toBe(lists[0]);
    writeFileSync(join(root, nameAt(5001)), '');
    await list();
    expect(lists[2]).toHaveLength(5001);
  });

  it('lets the event loop turn while its bucket is listed, and returns the same array without changes', async () => {
    const bucket = createMemoryBucket(nowMs, 100_000);
    for (let at = 0; at < 20_000; at += 1) await bucket.put(nameAt(at), new Uint8Array());
    const store = createArchiveStore(createS3Store({ ...S3_LISTING, bucket, nowMs }), 'plain');
    const lists: (readonly StoredRecording[])[] = [];
    const list = async (): Promise<void> => void lists.push(await store.list());
    expect(await turnsDuring(list)).toBeGreaterThanOrEqual(40);
    expect(lists[0]).toHaveLength(20_000);
    await list();
    expect(lists[1]).toBe(lists[0]);
    await bucket.put(nameAt(20_001), new Uint8Array());
    expect(await turnsDuring(list)).toBeGreaterThanOrEqual(40);
    expect(lists[2]).toHaveLength(20_001);
  });
});
