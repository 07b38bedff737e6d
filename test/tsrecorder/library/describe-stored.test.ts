import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import { createDescriber } from '../../../src/tsrecorder/library/describe-stored.ts';
import { marksOf } from '../../../src/tsrecorder/library/scope.ts';
import { createS3Store } from '../../../src/tsrecorder/store/s3.ts';
import type { RecordingStore } from '../../../src/tsrecorder/store/store.ts';
import { STORED_HEADER } from '../recorder-rig.ts';
import { createMemoryBucket, type MemoryBucket } from '../store/memory-bucket.ts';

const KEY = { nodeId: 'nGATE1CNTRL', time: '2026-07-29T11:50:50.123456789Z' };

/**
 * Creates a store with one recording that another program wrote. `beforeRead` is called before each read of the
 * recording.
 */
async function storeOfOne(): Promise<{
  readonly store: RecordingStore;
  readonly hooks: { beforeRead: () => void };
  readonly bucket: MemoryBucket;
}> {
  const bucket = createMemoryBucket();
  await bucket.put(`${KEY.nodeId}/${KEY.time}.cast`, Buffer.from(`${STORED_HEADER}[1.5,"o","x"]\n`));
  const store = createS3Store({ bucket, nowMs: () => 0, recentMs: 0, fullListMs: 0 });
  const hooks = { beforeRead: (): void => undefined };
  return {
    hooks,
    bucket,
    store: {
      ...store,
      read(...request) {
        hooks.beforeRead();
        return store.read(...request);
      },
    },
  };
}

describe('the description of a stored recording', () => {
  it('is computed again if the store failed', async () => {
    const { store, hooks } = await storeOfOne();
    const describeIt = createDescriber(store, 10);
    hooks.beforeRead = () => {
      throw new TailcastError('STORE_FAILED', 'S3 answered 503 SlowDown');
    };
    expect((await describeIt({ key: KEY, hasSidecar: false }))?.entry.recording.state).toBe('damaged');
    hooks.beforeRead = () => undefined;
    expect((await describeIt({ key: KEY, hasSidecar: false }))?.entry.recording).toMatchObject({
      state: 'completed',
      durationSeconds: 1.5,
    });
  });

  it('fails after an error of the program, which does not count as damage', async () => {
    const { store, hooks } = await storeOfOne();
    const describeIt = createDescriber(store, 10);
    const ask = (): Promise<unknown> => describeIt({ key: KEY, hasSidecar: false });
    for (const fault of [new TypeError('Array.fromAsync is not a function'), new ReferenceError('no name')]) {
      hooks.beforeRead = () => {
        throw fault;
      };
      await expect(ask()).rejects.toBe(fault);
    }
    hooks.beforeRead = () => undefined;
    expect(await ask()).toMatchObject({ entry: { recording: { state: 'completed' } } });
  });

  it('is the same in whatever pieces the recording is read', async () => {
    const { store } = await storeOfOne();
    const whole = await createDescriber(store, 10)({ key: KEY, hasSidecar: false });
    const inBytes: RecordingStore = {
      ...store,
      async *read(...request) {
        for await (const chunk of store.read(...request)) for (const byte of chunk) yield Uint8Array.of(byte);
      },
    };
    const found = await createDescriber(inBytes, 10)({ key: KEY, hasSidecar: false });
    expect(found?.entry.recording.durationSeconds).toBe(1.5);
    expect(found?.entry.recording).toEqual(whole?.entry.recording);
  });

  it('is empty if the recording was removed while it was read', async () => {
    const { store, hooks, bucket } = await storeOfOne();
    hooks.beforeRead = () => bucket.objects.clear();
    expect(await createDescriber(store, 10)({ key: KEY, hasSidecar: false })).toBeUndefined();
  });

  it('is cached for a limited number of recordings', async () => {
    const { store, hooks, bucket } = await storeOfOne();
    const other = { nodeId: 'nGATE2CNTRL', time: KEY.time };
    await bucket.put(`${other.nodeId}/${other.time}.cast`, Buffer.from(`${STORED_HEADER}[2,"o","x"]\n`));
    const readsOf = async (
      describeIt: ReturnType<typeof createDescriber>,
      key: typeof KEY,
    ): Promise<boolean> => {
      let reads = 0;
      hooks.beforeRead = () => (reads += 1);
      await describeIt({ key, hasSidecar: false });
      return reads > 0;
    };
    const one = createDescriber(store, 1);
    expect(await readsOf(one, KEY)).toBe(true);
    expect(await readsOf(one, KEY)).toBe(false);
    expect(await readsOf(one, other)).toBe(true);
    expect(await readsOf(one, KEY)).toBe(true);
    const two = createDescriber(store, 2);
    expect(await readsOf(two, KEY)).toBe(true);
    expect(await readsOf(two, other)).toBe(true);
    expect(await readsOf(two, KEY)).toBe(false);
  });

  it('is cached up to a total size, because other writers choose the size of each', async () => {
    const { store, hooks, bucket } = await storeOfOne();
    const keys = Array.from({ length: 80 }, (_, at) => ({ ...KEY, nodeId: `nGATE${at}CNTRL` }));
    const long = STORED_HEADER.replace('sh -i', 'x'.repeat(1_000_000));
    for (const { nodeId, time } of keys)
      await bucket.put(`${nodeId}/${time}.cast`, Buffer.from(`${long}[2,"o","x"]\n`));
    const read = new Set<number>();
    const describeIt = createDescriber(store, 10_000);
    const isRead = async (at: number): Promise<boolean> => {
      read.clear();
      hooks.beforeRead = () => void read.add(at);
      await describeIt({ key: keys[at]!, hasSidecar: false });
      return read.size > 0;
    };
    for (const at of keys.keys()) expect(await isRead(at)).toBe(true);
    for (const at of keys.keys()) if (at >= 40) expect(await isRead(at), String(at)).toBe(false);
    expect(await isRead(0)).toBe(true);
  });

  it.each([
    ['101 tags', '"srcNodeTags":' + JSON.stringify(Array.from({ length: 101 }, (_, at) => `tag:t${at}`))],
    ['long tags', '"srcNodeTags":' + JSON.stringify(['tag:ops', `tag:${'x'.repeat(8192)}`])],
    ['a long user', `"srcNodeUser":"${'a'.repeat(8193)}"`],
    ['a long namespace', `"kubernetes":{"Namespace":"${'n'.repeat(8193)}"}`],
  ])('has no access marks if the header names %s', async (_, member) => {
    const { store, bucket } = await storeOfOne();
    const header = `{"version":2,"width":80,"height":24,"tailcastCluster":"east","srcNode":"laptop",${member}}\n`;
    await bucket.put(`${KEY.nodeId}/${KEY.time}.cast`, Buffer.from(`${header}[2,"o","x"`));
    const { recording } = (await createDescriber(store, 10)({ key: KEY, hasSidecar: false }))!.entry;
    expect(marksOf(recording)).toEqual([]);
    expect(recording.source).toEqual({ node: 'laptop', nodeId: '' });
    expect(recording.problem).toMatch(
      /^the header has too many tags or too long names.*; the recording ends inside/,
    );
  });

  it('has all access marks of a header with 100 tags', async () => {
    const { store, bucket } = await storeOfOne();
    const tags = Array.from({ length: 100 }, (_, at) => `tag:t${at}`);
    const header = JSON.stringify({ version: 2, width: 80, height: 24, srcNodeTags: tags });
    await bucket.put(`${KEY.nodeId}/${KEY.time}.cast`, Buffer.from(`${header}\n[2,"o","x"]\n`));
    const { recording } = (await createDescriber(store, 10)({ key: KEY, hasSidecar: false }))!.entry;
    expect(marksOf(recording)).toEqual(tags);
    expect(recording).not.toHaveProperty('problem');
  });
});
