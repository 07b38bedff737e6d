import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { markName, SESSIONS_FOLDER } from '../../../src/tsrecorder/store/key.ts';
import { createS3Store, S3_LISTING } from '../../../src/tsrecorder/store/s3.ts';
import { createMemoryBucket, type MemoryBucket } from './memory-bucket.ts';
import { describeStore } from './store-contract.ts';

const nowMs = (): number => Date.parse('2026-07-29T12:00:00Z');

describeStore(
  'a bucket in memory',
  async () => createS3Store({ ...S3_LISTING, bucket: createMemoryBucket(), nowMs }),
  { bigBytes: 3_000_000 },
);

describe('a bucket', () => {
  it('rejects an upload whose cast another program has stored without notes and sidecar', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tsrecorder-s3-'));
    const path = join(folder, 'cast');
    await writeFile(path, 'cast\n');
    const key = { nodeId: 'n1', time: '2026-07-29T11:50:50.000000001Z' };
    const bucket = createMemoryBucket();
    await bucket.put(`n1/${key.time}.cast`, Buffer.from('cast\n'));
    const store = createS3Store({ ...S3_LISTING, bucket, nowMs });
    const files = { castPath: path, castBytes: 5, notesPath: path, notesBytes: 5 };
    const upload = { key, ...files, sidecar: '{}', sessionMark: undefined };
    await expect(store.finish(upload)).rejects.toMatchObject({ code: 'UPLOAD_CONFLICT' });
    await rm(folder, { recursive: true });
  });
});

describe('listing documents of a bucket', () => {
  it('leaves out folder markers and names that no recorder writes', async () => {
    const bucket = createMemoryBucket();
    const store = createS3Store({ ...S3_LISTING, bucket, nowMs });
    await store.putDocument('.holds/a.json', Buffer.from('{}'));
    for (const name of ['.holds/', '.holds/a b', '.holds/a.json~', '.holds/sub/'])
      await bucket.put(name, Buffer.from('x'));
    expect(await store.listDocuments('.holds/')).toEqual(['.holds/a.json']);
  });
});

describe('listing a bucket', () => {
  it('requests new recordings each time, and old ones periodically', async () => {
    const bucket = createMemoryBucket(undefined, 2);
    let now = Date.parse('2026-07-29T12:00:00Z');
    const store = createS3Store({ bucket, nowMs: () => now, recentMs: 3_600_000, fullListMs: 60_000 });
    const put = (name: string): Promise<void> => bucket.put(`n1/${name}.cast`, Buffer.from('x'));
    const times = async (): Promise<string[]> => (await store.list()).map(({ key }) => key.time).toSorted();
    // the reference (tsrecorder) trims zeros at the end of the fraction
    await put('2026-07-29T11:50:50.5Z');
    await put('2026-07-28T11:00:00Z');
    await put('2026-07-29T11:00:00Z');
    expect(await times()).toEqual(['2026-07-28T11:00:00Z', '2026-07-29T11:00:00Z', '2026-07-29T11:50:50.5Z']);
    await put('2026-07-29T11:59:00.000000001Z');
    await put('2026-07-01T00:00:00.000000001Z');
    bucket.objects.delete('n1/2026-07-29T11:00:00Z.cast');
    expect(await times()).toEqual([
      '2026-07-28T11:00:00Z',
      '2026-07-29T11:50:50.5Z',
      '2026-07-29T11:59:00.000000001Z',
    ]);
    now += 60_000;
    expect(await times()).toContain('2026-07-01T00:00:00.000000001Z');
  });

  it('has the mark of each recording that another recorder stores in the meantime', async () => {
    const bucket = createMemoryBucket();
    const key = { nodeId: 'n1', time: '2026-07-29T11:50:50.000000001Z' };
    const mark = 'a'.repeat(32);
    const object = { content: Buffer.from('x'), modifiedAtMs: 0 };
    bucket.objects.set('n1/2026-07-29T11:00:00.000000001Z.cast', object);
    bucket.before = (request, prefix) => {
      if (request !== 'list' || prefix !== 'n1/') return;
      bucket.objects.set(SESSIONS_FOLDER + markName(key, mark), object);
      bucket.objects.set(`n1/${key.time}.cast`, object);
    };
    const store = createS3Store({ ...S3_LISTING, bucket, nowMs });
    expect((await store.list()).map(({ sessionMark }) => sessionMark)).toEqual([undefined, mark]);
  });

  it.each([0, 60_000])('tolerates a removal in between, %d ms after the first', async (laterMs) => {
    const bucket = createMemoryBucket();
    let now = nowMs();
    let removed = Promise.resolve();
    const slow: MemoryBucket = {
      ...bucket,
      async *list(query) {
        for await (const page of bucket.list(query)) {
          yield page;
          if (query.prefix === 'n1/') await removed;
        }
      },
    };
    const store = createS3Store({
      bucket: slow,
      nowMs: () => now,
      recentMs: 3_600_000,
      fullListMs: 60_000,
    });
    const old = { nodeId: 'n1', time: '2026-07-01T00:00:00Z' };
    await bucket.put(`n1/${old.time}.cast`, Buffer.from('x'));
    expect(await store.list()).toHaveLength(1);
    now += laterMs;
    const { promise, resolve } = Promise.withResolvers<void>();
    removed = promise;
    const listing = store.list();
    await new Promise(setImmediate);
    removed = Promise.resolve();
    await store.remove(old);
    resolve();
    await listing;
    expect(await store.list()).toEqual([]);
  });

  it('does not read the events of a node, however many there are', async () => {
    const bucket = createMemoryBucket();
    const store = createS3Store({ ...S3_LISTING, bucket, nowMs });
    await store.putEvent({ nodeId: 'n1', time: '2026-07-29T11:50:50.000000001Z' }, '{}\n');
    const prefixes: string[] = [];
    bucket.before = (_request, name) => prefixes.push(name);
    expect(await store.list()).toEqual([]);
    expect(prefixes).not.toContain('n1/events/');
  });

  it('repeats a finish from the beginning if it failed at any step', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tsrecorder-s3-'));
    const path = join(folder, 'cast');
    await writeFile(path, 'cast\n');
    const upload = {
      key: { nodeId: 'n1', time: '2026-07-29T11:50:50.000000001Z' },
      castPath: path,
      castBytes: 5,
      notesPath: path,
      notesBytes: 5,
      sidecar: '{}',
      sessionMark: '0123456789abcdef0123456789abcdef',
    };
    for (let failing = 0; ; failing += 1) {
      const bucket = createMemoryBucket();
      const store = createS3Store({ ...S3_LISTING, bucket, nowMs });
      let requests = 0;
      bucket.before = () => {
        requests += 1;
        if (requests === failing + 1) throw new Error('broken');
      };
      const failed = await store.finish(upload).then(
        () => false,
        () => true,
      );
      bucket.before = () => undefined;
      if (failed) {
        // the list does not contain the failed upload, which is incomplete
        expect(await store.list()).toEqual([]);
        await store.finish(upload);
      }
      expect(await store.list()).toMatchObject([{ hasSidecar: true, sessionMark: upload.sessionMark }]);
      // a removal that fails at any step keeps the recording listed, and leaves no object when it is repeated
      requests = 0;
      bucket.before = () => {
        requests += 1;
        if (requests === failing + 1) throw new Error('broken');
      };
      const isRemoved = await store.remove(upload.key).then(
        () => true,
        () => false,
      );
      bucket.before = () => undefined;
      if (!isRemoved) {
        expect(await store.list()).toMatchObject([{ key: upload.key }]);
        await store.remove(upload.key);
      }
      expect([...bucket.objects.keys()]).toEqual([]);
      if (!failed) break;
    }
    await rm(folder, { recursive: true });
  });
});
