import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32, zstdDecompressSync } from 'node:zlib';
import { afterAll, describe, expect, it } from 'vitest';
import { planStoreRetention } from '../../../src/tsrecorder/retention/retention-run.ts';
import { createDescriber, storedVersion } from '../../../src/tsrecorder/library/describe-stored.ts';
import { createArchiveStore, type ArchiveFormat } from '../../../src/tsrecorder/store/archive-store.ts';
import { createDiskStore } from '../../../src/tsrecorder/store/disk.ts';
import { createS3Store, S3_LISTING } from '../../../src/tsrecorder/store/s3.ts';
import type { FinishedUpload, RecordingStore } from '../../../src/tsrecorder/store/store.ts';
import { createSealKeys, type SealKeys } from '../../../src/tsrecorder/store/seal-keys.ts';
import { encodeSeekTable, FRAME_BYTES } from '../../../src/wire/archive/seek-table.ts';
import { createRandom } from '../../support/random.ts';
import { createMemoryBucket, type MemoryBucket } from './memory-bucket.ts';
import { describeStore, NODE } from './store-contract.ts';

const folders: string[] = [];
afterAll(() => Promise.all(folders.map((folder) => rm(folder, { recursive: true, force: true }))));

async function openFolder(): Promise<string> {
  const folder = await mkdtemp(join(tmpdir(), 'tsrecorder-archive-'));
  folders.push(folder);
  return folder;
}

const KEY = { nodeId: NODE, time: '2026-07-29T11:50:50.033425744Z' };
const NAME = `${NODE}/${KEY.time}.cast`;
const nowMs = (): number => Date.parse('2026-07-29T12:00:00Z');

const KEYS = createSealKeys([Buffer.alloc(32, 1)]);

function inMemory(
  bucket: MemoryBucket,
  format: ArchiveFormat,
  keys: SealKeys | undefined = KEYS,
): RecordingStore {
  return createArchiveStore(createS3Store({ ...S3_LISTING, bucket, nowMs }), format, keys);
}

describeStore(
  'a directory, archived',
  async () => createArchiveStore(await createDiskStore(await openFolder()), 'zstd'),
  { bigBytes: 3_000_000 },
);
describeStore('a bucket, archived', async () => inMemory(createMemoryBucket(), 'zstd'), {
  bigBytes: 3_000_000,
});
describeStore(
  'a directory, sealed',
  async () => createArchiveStore(await createDiskStore(await openFolder()), 'sealed', KEYS),
  { bigBytes: 3_000_000 },
);
describeStore('a bucket, sealed', async () => inMemory(createMemoryBucket(), 'sealed'), {
  bigBytes: 3_000_000,
});
describeStore(
  'a directory, kept plain where archives could be',
  async () => createArchiveStore(await createDiskStore(await openFolder()), 'plain'),
  { bigBytes: 1_100_000 },
);

async function uploadOf(content: Uint8Array): Promise<FinishedUpload & { readonly folder: string }> {
  const folder = await openFolder();
  const castPath = join(folder, 'upload.cast');
  await writeFile(castPath, content);
  const none = { notesPath: undefined, notesBytes: 0, sessionMark: undefined };
  return { key: KEY, castPath, castBytes: content.length, sidecar: '{}\n', ...none, folder };
}

async function readAll(store: RecordingStore, range?: { start: number; end: number }): Promise<Buffer> {
  return Buffer.concat(await Array.fromAsync(store.read(KEY, 'cast', range)));
}

function textOf(bytes: number): Buffer {
  const line = (at: number): string => `[${at / 1000},"o","line ${at} of a build\\r\\n"]\n`;
  return Buffer.from(Array.from({ length: Math.ceil(bytes / 30) }, (_, at) => line(at)).join('')).subarray(
    0,
    bytes,
  );
}

describe('an archive', () => {
  it.each([0, 1, FRAME_BYTES - 1, FRAME_BYTES, FRAME_BYTES + 1, 2 * FRAME_BYTES])(
    'of %i bytes returns them, and every zstd decompressor can read it',
    async (bytes) => {
      const bucket = createMemoryBucket();
      const store = inMemory(bucket, 'zstd');
      const content = textOf(bytes);
      const { folder, ...upload } = await uploadOf(content);
      await store.finish(upload);
      expect(await readdir(folder)).toEqual(['upload.cast']);
      const { content: stored } = bucket.objects.get(NAME)!;
      expect(stored.equals(content)).toBe(false);
      // the second reader is a new store without any state from the write
      for (const reader of [store, inMemory(bucket, 'plain')]) {
        expect((await readAll(reader)).equals(content)).toBe(true);
        expect(await reader.stat(KEY, 'cast')).toMatchObject({ bytes, storedBytes: stored.length });
      }
      if (bytes > 0) expect(zstdDecompressSync(stored).equals(content)).toBe(true);
    },
  );

  it.each(['zstd', 'sealed'] as const)(
    'reads any range (%s), and from the store only the needed frames',
    async (format) => {
      const bucket = createMemoryBucket();
      const random = createRandom(7);
      const content = textOf(5 * FRAME_BYTES + 1234);
      await inMemory(bucket, format).finish(await uploadOf(content));
      const reader = inMemory(bucket, 'plain');
      for (let round = 0; round < 200; round += 1) {
        const start = random.below(content.length + 10);
        const end = start + random.below(2 * FRAME_BYTES);
        expect((await readAll(reader, { start, end })).equals(content.subarray(start, end))).toBe(true);
      }
      const inner = createS3Store({ ...S3_LISTING, bucket, nowMs });
      const ranges: number[] = [];
      const counting = createArchiveStore(
        {
          ...inner,
          read: (key, kind, range) => (ranges.push(range!.end - range!.start), inner.read(key, kind, range)),
        },
        'plain',
        KEYS,
      );
      await readAll(counting, { start: FRAME_BYTES, end: FRAME_BYTES + 1 });
      const { content: stored } = bucket.objects.get(NAME)!;
      expect(ranges.at(-1)).toBeLessThan(stored.length / 4);
    },
  );

  it('is much smaller than text and repeated bytes, and little larger than random bytes', async () => {
    const random = createRandom(3);
    const share = async (content: Buffer): Promise<number> => {
      const bucket = createMemoryBucket();
      await inMemory(bucket, 'zstd').finish(await uploadOf(content));
      return bucket.objects.get(NAME)!.content.length / content.length;
    };
    expect(await share(textOf(1_000_000))).toBeLessThan(0.2);
    expect(await share(Buffer.alloc(1_000_000, '\\u0000'))).toBeLessThan(0.001);
    const noise = Buffer.from(random.bytes(600_000));
    expect(await share(noise)).toBeLessThan(1.001);
  });

  it.each([
    ['zstd', 16],
    ['sealed', 0],
  ] as const)(
    'returns no wrong byte if a bit has changed (%s), and is refused if its end is missing',
    async (format, unnoticed) => {
      const bucket = createMemoryBucket();
      const content = textOf(300);
      await inMemory(bucket, format).finish(await uploadOf(content));
      const { content: whole } = bucket.objects.get(NAME)!;
      const read = async (stored: Buffer): Promise<unknown> => {
        bucket.objects.set(NAME, { content: stored, modifiedAtMs: 0 });
        return readAll(inMemory(bucket, 'plain')).then(
          (bytes) => (bytes.equals(content) ? 'unchanged' : 'other bytes'),
          (error: unknown) => (error as { code?: string }).code,
        );
      };
      expect(await read(whole)).toBe('unchanged');
      const outcomes = new Map<unknown, string[]>();
      const note = (outcome: unknown, what: string): void =>
        void outcomes.set(outcome, [...(outcomes.get(outcome) ?? []), what]);
      for (let bit = 0; bit < whole.length * 8; bit += 1) {
        const changed = Buffer.from(whole);
        changed[bit >> 3]! ^= 1 << (bit & 7);
        note(await read(changed), `bit ${bit}`);
      }
      for (let bytes = 1; bytes < whole.length; bytes += 1)
        note(await read(whole.subarray(0, bytes)), `cut at ${bytes}`);
      note(await read(Buffer.concat([whole, Buffer.from([0])])), 'one byte more');
      note(await read(Buffer.concat([whole, whole])), 'twice');
      expect(outcomes.get('ARCHIVE_DAMAGED')!.length).toBeGreaterThan(whole.length * 8);
      // some bits of a frame header give only the memory size, or are unused, so changes of them have no effect
      expect(outcomes.get('unchanged')?.length ?? 0).toBeLessThanOrEqual(unnoticed);
      // damage can change the key id of a sealed archive or make the archive invalid; readers get no byte in both cases
      const refused = format === 'sealed' ? ['ARCHIVE_DAMAGED', 'ARCHIVE_SEALED'] : ['ARCHIVE_DAMAGED'];
      expect([...outcomes.keys()].filter((outcome) => outcome !== 'unchanged')).toEqual(
        expect.arrayContaining(refused),
      );
      expect(outcomes.size).toBe(refused.length + (unnoticed > 0 ? 1 : 0));
    },
  );

  it('also stores notes, which contain the exact bytes of binary output', async () => {
    const bucket = createMemoryBucket();
    const { folder, ...upload } = await uploadOf(textOf(1000));
    const notes = Buffer.from(`{"exact":"${Buffer.alloc(300_000).toString('base64')}"}\n`);
    const notesPath = join(folder, 'upload.notes');
    await writeFile(notesPath, notes);
    await inMemory(bucket, 'zstd').finish({ ...upload, notesPath, notesBytes: notes.length });
    expect((await readdir(folder)).toSorted()).toEqual(['upload.cast', 'upload.notes']);
    const store = inMemory(bucket, 'plain');
    expect(await store.stat(KEY, 'notes')).toMatchObject({ bytes: notes.length });
    expect(Buffer.concat(await Array.fromAsync(store.read(KEY, 'notes'))).equals(notes)).toBe(true);
    const part = await Array.fromAsync(store.read(KEY, 'notes', { start: 0, end: 10 }));
    expect(Buffer.concat(part).toString()).toBe('{"exact":"');
    expect(bucket.objects.get(NAME.replace('.cast', '.notes'))!.content.length).toBeLessThan(1000);
  });

  it('that is removed while it is read does not exist', async () => {
    const store = await createDiskStore(await openFolder());
    const removing: RecordingStore = {
      ...store,
      stat: async () => ({ bytes: 10_000, modifiedAtMs: 1 }),
      // simulates a file that is removed after the first call
      read: (key, kind, range) => store.read(key, kind, range),
    };
    expect(await createArchiveStore(removing, 'zstd').stat(KEY, 'cast')).toBeUndefined();
  });

  it('that is damaged does not affect the list of the others', async () => {
    const bucket = createMemoryBucket();
    const store = inMemory(bucket, 'zstd');
    await store.finish(await uploadOf(textOf(300)));
    const { content } = bucket.objects.get(NAME)!;
    bucket.objects.set(NAME, { content: content.subarray(0, -1), modifiedAtMs: 0 });
    expect(await inMemory(bucket, 'zstd').list()).toHaveLength(1);
    expect(await inMemory(bucket, 'zstd').stat(KEY, 'cast')).toMatchObject({ bytes: content.length - 1 });
  });
});

describe('a store with archives', () => {
  it('reads plain recordings, and completes recordings that another format has started', async () => {
    for (const [before, after] of [
      ['plain', 'zstd'],
      ['zstd', 'plain'],
      ['sealed', 'zstd'],
      ['plain', 'sealed'],
      ['sealed', 'sealed'],
    ] as const) {
      const bucket = createMemoryBucket();
      const content = textOf(10_000);
      const upload = await uploadOf(content);
      await inMemory(bucket, before).finish(upload);
      const { content: stored } = bucket.objects.get(NAME)!;
      const store = inMemory(bucket, after);
      await store.finish(upload);
      expect(bucket.objects.get(NAME)!.content).toBe(stored);
      expect((await readAll(store)).equals(content)).toBe(true);
      await expect(store.finish(await uploadOf(textOf(9_999)))).rejects.toMatchObject({
        code: 'UPLOAD_CONFLICT',
      });
    }
  });

  it('lists a recording with its size in the store, so that its version is known without a read', async () => {
    const bucket = createMemoryBucket();
    await inMemory(bucket, 'zstd').finish(await uploadOf(textOf(10_000)));
    const store = inMemory(bucket, 'plain');
    const [listed] = await store.list();
    expect(listed!.stat?.bytes).toBe(bucket.objects.get(NAME)!.content.length);
    const stat = (): Promise<never> => Promise.reject(new Error('the store was asked'));
    const version = await storedVersion({ ...store, stat }, listed!);
    const described = await createDescriber(store, 10)(listed!);
    expect(described?.entry.version).toBe(version);
  });

  it('counts the used space, not the uncompressed bytes, when it removes the oldest', async () => {
    for (const open of [
      async () => inMemory(createMemoryBucket(), 'zstd'),
      async () => createArchiveStore(await createDiskStore(await openFolder()), 'zstd'),
    ]) {
      const store = await open();
      await store.finish(await uploadOf(textOf(100_000)));
      const plan = (maxBytes: number) => planStoreRetention(store, { maxBytes }, nowMs());
      expect((await plan(50_000)).remove).toEqual([]);
      expect((await plan(100)).remove).toHaveLength(1);
    }
  });
});

describe('a sealed archive', () => {
  const OTHER = createSealKeys([Buffer.alloc(32, 2)]);

  async function sealed(content: Buffer, notes?: Buffer): Promise<MemoryBucket> {
    const bucket = createMemoryBucket();
    const { folder, ...upload } = await uploadOf(content);
    const notesPath = notes === undefined ? undefined : join(folder, 'upload.notes');
    if (notes !== undefined && notesPath !== undefined) await writeFile(notesPath, notes);
    await inMemory(bucket, 'sealed').finish({ ...upload, notesPath, notesBytes: notes?.length ?? 0 });
    return bucket;
  }

  it('contains no plain text, and equal content is stored differently', async () => {
    const content = Buffer.from(Buffer.alloc(1000, 'a secret that repeats itself ').toString() + '\n');
    const noise = Buffer.from(createRandom(5).bytes(5000));
    const bucket = await sealed(content, noise);
    for (const [name, plain] of [
      [NAME, content],
      [NAME.replace('.cast', '.notes'), noise],
    ] as const) {
      const stored = bucket.objects.get(name)!.content;
      expect(stored.includes('secret')).toBe(false);
      for (let at = 0; at + 16 <= plain.length; at += 16)
        expect(stored.includes(plain.subarray(at, at + 16))).toBe(false);
    }
    expect((await sealed(content)).objects.get(NAME)!.content).not.toEqual(bucket.objects.get(NAME)!.content);
  });

  it('can be listed, measured and removed without its key, but not read', async () => {
    const content = textOf(FRAME_BYTES + 10);
    const bucket = await sealed(content);
    for (const keys of [OTHER, undefined]) {
      const store = createArchiveStore(createS3Store({ ...S3_LISTING, bucket, nowMs }), 'plain', keys);
      expect(await store.list()).toHaveLength(1);
      expect(await store.stat(KEY, 'cast')).toMatchObject({ bytes: content.length });
      await expect(readAll(store)).rejects.toMatchObject({ code: 'ARCHIVE_SEALED' });
      await expect(readAll(store, { start: 0, end: 1 })).rejects.toMatchObject({ code: 'ARCHIVE_SEALED' });
    }
    await inMemory(bucket, 'plain', OTHER).remove(KEY);
    expect(bucket.objects.has(NAME)).toBe(false);
  });

  it('is opened with any key of the file, and sealed with the first', async () => {
    const bucket = await sealed(textOf(100));
    const both = createSealKeys([Buffer.alloc(32, 2), Buffer.alloc(32, 1)]);
    expect((await readAll(inMemory(bucket, 'sealed', both))).equals(textOf(100))).toBe(true);
    await inMemory(bucket, 'sealed', both).remove(KEY);
    await inMemory(bucket, 'sealed', both).finish(await uploadOf(textOf(100)));
    await expect(readAll(inMemory(bucket, 'plain', KEYS))).rejects.toMatchObject({ code: 'ARCHIVE_SEALED' });
    expect((await readAll(inMemory(bucket, 'plain', OTHER))).equals(textOf(100))).toBe(true);
  });

  it('is not read under the key of another recording, or with reordered or missing frames', async () => {
    const content = textOf(2 * FRAME_BYTES + 10);
    const bucket = await sealed(content);
    const { content: whole } = bucket.objects.get(NAME)!;
    const other = { ...KEY, time: '2026-07-29T11:50:51.033425744Z' };
    bucket.objects.set(`${NODE}/${other.time}.cast`, { content: whole, modifiedAtMs: 0 });
    const store = inMemory(bucket, 'plain');
    await expect(Array.fromAsync(store.read(other, 'cast'))).rejects.toMatchObject({
      code: 'ARCHIVE_DAMAGED',
    });

    // forges a seek table without the key, as an attacker with write access could
    const head = whole.subarray(0, 88);
    const table = whole.subarray(-(8 + 5 * 8 + 9));
    const lengths = [1, 2, 3].map((entry) => table.readUInt32LE(8 + entry * 8));
    const frames = lengths.map((length, index) => {
      const start = 88 + lengths.slice(0, index).reduce((sum, before) => sum + before, 0);
      return whole.subarray(start, start + length);
    });
    const remade = (order: readonly number[]): Buffer => {
      const kept = order.map((at) => ({ compressed: lengths[at]!, plain: at === 2 ? 10 : FRAME_BYTES }));
      const index = encodeSeekTable(kept, crc32, () => whole.subarray(-(table.length + 16), -table.length));
      return Buffer.concat([head, ...order.map((at) => frames[at]!), index]);
    };
    expect(remade([0, 1, 2]).equals(whole)).toBe(true);
    for (const order of [
      [1, 0, 2],
      [0, 2],
      [0, 1],
    ]) {
      bucket.objects.set(NAME, { content: remade(order), modifiedAtMs: 0 });
      await expect(readAll(inMemory(bucket, 'plain')), String(order)).rejects.toMatchObject({
        code: 'ARCHIVE_DAMAGED',
      });
    }
  });

  it('cannot be created without keys', async () => {
    const store = createS3Store({ ...S3_LISTING, bucket: createMemoryBucket(), nowMs });
    expect(() => createArchiveStore(store, 'sealed')).toThrow(/--seal-keys/);
  });
});
