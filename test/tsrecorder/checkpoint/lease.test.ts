import { mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { Lease } from '../../../src/tsrecorder/checkpoint/lease.ts';
import { RECORDERS_FOLDER } from '../../../src/tsrecorder/checkpoint/segments.ts';
import { createMemoryBucket, type MemoryBucket } from '../store/memory-bucket.ts';

const LEASE_MS = 1_000;

let nowMs = 0;
let bucket: MemoryBucket;
beforeEach(() => {
  nowMs = 5_000;
  bucket = createMemoryBucket(() => nowMs);
});

const newSpool = (): Promise<string> => mkdtemp(join(tmpdir(), 'tsrecorder-lease-'));

async function open(spoolDirectory?: string): Promise<Lease> {
  return Lease.open({
    bucket,
    spoolDirectory: spoolDirectory ?? (await newSpool()),
    leaseMs: LEASE_MS,
    monotonicMs: () => nowMs,
  });
}

describe('a lease on the sessions of a shared bucket', () => {
  it('keeps its name over a restart, and has another one elsewhere', async () => {
    const spool = await newSpool();
    const { name } = await open(spool);
    expect(name).toMatch(/^[0-9a-f]{16}$/);
    expect((await open(spool)).name).toBe(name);
    expect((await open()).name).not.toBe(name);
  });

  it('is lost when it was not renewed for as long as it lasts, and not a moment before', async () => {
    const [own, other] = [await open(), await open()];
    await other.renew();
    const owners = new Set([own.name, other.name]);
    expect(await own.lost(owners)).toEqual([]);
    nowMs += LEASE_MS - 1;
    await own.renew();
    expect(await own.lost(owners)).toEqual([]);
    nowMs += 1;
    await own.renew();
    expect(await own.lost(owners)).toEqual([other.name]);
    await other.renew();
    expect(await own.lost(owners)).toEqual([]);
  });

  it('is lost when nobody ever wrote it, and means nothing to who owns nothing', async () => {
    const own = await open();
    await own.renew();
    expect(await own.lost(new Set(['0123456789abcdef']))).toEqual(['0123456789abcdef']);
    expect(await own.lost(new Set())).toEqual([]);
  });

  it('that somebody claimed is another one from then on, here and after a restart', async () => {
    const spool = await newSpool();
    const [own, other] = [await open(spool), await open()];
    expect(await own.renew()).toBe(true);
    const before = own.name;
    await other.claim(before);
    expect([await other.holds(before), await own.holds(before)]).toEqual([true, false]);
    expect(await own.renew()).toBe(false);
    expect(own.name).not.toBe(before);
    expect(await readFile(join(spool, 'recorder'), 'utf8')).toBe(own.name);
    expect(await own.renew()).toBe(true);
    expect(await other.holds(before)).toBe(true);
    await other.forget(before);
    expect([...bucket.objects.keys()]).toEqual([RECORDERS_FOLDER + own.name]);
  });

  it('that was renewed too slowly may have been claimed meanwhile: it is another one', async () => {
    const own = await open();
    await own.renew();
    const before = own.name;
    bucket.before = (request) => {
      if (request === 'put') nowMs += LEASE_MS / 4 + 1;
    };
    expect(await own.renew()).toBe(false);
    expect(own.name).not.toBe(before);
  });

  it('does not take a store that fails for one that holds nothing', async () => {
    const own = await open();
    await own.renew();
    const before = own.name;
    bucket.before = (request) => {
      if (request === 'get') throw new Error('the store is away');
    };
    await expect(own.renew()).rejects.toThrow('the store is away');
    expect(own.name).toBe(before);
  });
});
