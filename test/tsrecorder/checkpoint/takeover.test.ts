import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { Lease } from '../../../src/tsrecorder/checkpoint/lease.ts';
import { segmentName, sessionFolder } from '../../../src/tsrecorder/checkpoint/segments.ts';
import { createTakeover } from '../../../src/tsrecorder/checkpoint/takeover.ts';
import { recordingId, type RecordingKey } from '../../../src/tsrecorder/store/key.ts';
import { createS3Store } from '../../../src/tsrecorder/store/s3.ts';
import { createMemoryBucket } from '../store/memory-bucket.ts';

const LOST = 'fedcba9876543210';
const LEASE_MS = 1_000;
const KEY: RecordingKey = { nodeId: 'nGATE1CNTRL', time: '2026-07-29T10:44:42.000000001Z' };

interface Site {
  readonly bucket: ReturnType<typeof createMemoryBucket>;
  /** Time goes by, for everybody. */
  wait(ms: number): void;
  recorder(): Promise<{
    readonly lease: Lease;
    readonly look: () => Promise<void>;
    readonly spools: () => Promise<readonly string[]>;
    /** What was taken over; each waits for `finish`. */
    readonly adopted: string[];
    readonly finish: () => void;
  }>;
}

/** A bucket in which a recorder that is lost has left one session. */
async function createSite(): Promise<Site> {
  let nowMs = 5_000;
  const bucket = createMemoryBucket(() => nowMs);
  const folder = sessionFolder(LOST, KEY);
  await bucket.put(segmentName(folder, 'cast', 0), Buffer.from('header\n'));
  await bucket.put(segmentName(folder, 'notes', 0), Buffer.from('meta\n'));
  return {
    bucket,
    wait: (ms) => (nowMs += ms),
    async recorder() {
      const spoolDirectory = await mkdtemp(join(tmpdir(), 'takeover-'));
      onTestFinished(() => rm(spoolDirectory, { recursive: true }));
      const lease = await Lease.open({ bucket, spoolDirectory, leaseMs: LEASE_MS, monotonicMs: () => nowMs });
      const own = await readdir(spoolDirectory);
      const adopted: string[] = [];
      const finished = Promise.withResolvers<void>();
      const look = createTakeover({
        bucket,
        store: createS3Store({ bucket, nowMs: () => nowMs, recentMs: 0, fullListMs: 0 }),
        lease,
        spoolDirectory,
        live: () => [],
        adopt: (key) => {
          adopted.push(recordingId(key));
          return finished.promise;
        },
        leaseMs: LEASE_MS,
        monotonicMs: () => nowMs,
        log: createSilentLogger(),
        onAdopted: () => undefined,
      });
      const spools = async (): Promise<readonly string[]> =>
        (await readdir(spoolDirectory)).filter((name) => !own.includes(name)).toSorted();
      return { lease, look, adopted, spools, finish: () => finished.resolve() };
    },
  };
}

describe('a session that a lost recorder left', () => {
  it('is taken over when the claim has stood for half a lease, and then once', async () => {
    const site = await createSite();
    const own = await site.recorder();
    await own.look();
    site.wait(LEASE_MS / 2 - 1);
    await own.look();
    expect(own.adopted).toEqual([]);
    site.wait(1);
    await own.look();
    expect(own.adopted).toEqual([recordingId(KEY)]);
    expect(await own.spools()).toHaveLength(2);
    // while it is being brought into the store
    site.wait(100);
    await own.look();
    await own.look();
    expect(own.adopted).toHaveLength(1);
    expect([...site.bucket.objects.keys()].some((name) => name.startsWith('.open/'))).toBe(true);
    own.finish();
    await expect
      .poll(() => [...site.bucket.objects.keys()].filter((name) => name.startsWith('.open/')))
      .toEqual([]);
  });

  it('is left to the one of two that claimed it last', async () => {
    const site = await createSite();
    const [first, second] = [await site.recorder(), await site.recorder()];
    await first.look();
    // both have seen that it is lost, and the other was slower
    await second.lease.claim(LOST);
    site.wait(LEASE_MS / 2);
    await first.look();
    expect(first.adopted).toEqual([]);
    expect(await first.spools()).toEqual([]);
  });

  it('is as it was', async () => {
    const site = await createSite();
    const own = await site.recorder();
    await own.look();
    site.wait(LEASE_MS / 2);
    await own.look();
    expect((await own.spools()).map((name) => name.slice(name.lastIndexOf('.')))).toEqual([
      '.cast',
      '.notes',
    ]);
  });
});
