import { mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { Lease } from '../../../src/tsrecorder/checkpoint/lease.ts';
import { RECORDERS_FOLDER } from '../../../src/tsrecorder/checkpoint/segments.ts';
import { generateSigningKey } from '../../../src/tsrecorder/evidence/signing-key.ts';
import { createMemoryBucket, type MemoryBucket } from '../store/memory-bucket.ts';

const LEASE_MS = 1_000;

let nowMs = 0;
let bucket: MemoryBucket;
beforeEach(() => {
  nowMs = 5_000;
  bucket = createMemoryBucket(() => nowMs);
});

const newSpool = (): Promise<string> => mkdtemp(join(tmpdir(), 'tsrecorder-lease-'));

const keys = [generateSigningKey(), generateSigningKey()] as const;
const trusted = new Map(keys.map((key) => [key.public.id, key.public] as const));

async function open(spoolDirectory?: string, key = keys[0], log = 'a'.repeat(32)): Promise<Lease> {
  return Lease.open({
    bucket,
    evidence: { log, key },
    trusted,
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
    const [own, other] = [await open(), await open(undefined, keys[1], 'b'.repeat(32))];
    const [a, b] = ['a'.repeat(32), 'b'.repeat(32)];
    await own.renew();
    await other.renew();
    expect(await own.read()).toMatchObject({
      live: new Set([own.name, other.name]),
      liveLogs: new Set([a, b]),
    });
    nowMs += LEASE_MS - 1;
    await own.renew();
    expect((await own.read()).lost).toEqual(new Set());
    nowMs += 1;
    await own.renew();
    expect(await own.read()).toMatchObject({ lost: new Set([other.name]), liveLogs: new Set([a]) });
    await other.renew();
    expect((await own.read()).lost).toEqual(new Set());
  });

  it('is neither lost nor live without the signature of a trusted key', async () => {
    const own = await open();
    const stranger = await open(undefined, generateSigningKey());
    await stranger.renew();
    const made = '0123456789abcdef';
    await bucket.put(RECORDERS_FOLDER + made, Buffer.from(`${made}\n`));
    nowMs += 2 * LEASE_MS;
    await own.renew();
    expect(await own.read()).toMatchObject({
      live: new Set([own.name]),
      lost: new Set(),
      signed: new Set([own.name]),
    });
  });

  it('of one recorder is not that of another one: neither is a lease that was copied', async () => {
    const [own, other] = [await open(), await open(undefined, keys[1])];
    await other.renew();
    const { content } = bucket.objects.get(RECORDERS_FOLDER + other.name)!;
    await bucket.put(`${RECORDERS_FOLDER}0123456789abcdef`, content);
    nowMs += 2 * LEASE_MS;
    await own.renew();
    expect((await own.read()).lost).toEqual(new Set([other.name]));
  });

  it('is kept although somebody without a key writes a claim', async () => {
    const own = await open();
    await own.renew();
    const { name } = own;
    await bucket.put(RECORDERS_FOLDER + name, Buffer.from('0123456789abcdef\n'));
    expect(await own.renew()).toBe(true);
    expect(own.name).toBe(name);
  });

  it('that somebody claimed is another one from then on, here and after a restart', async () => {
    const spool = await newSpool();
    const [own, other] = [await open(spool), await open()];
    expect(await own.renew()).toBe(true);
    const before = own.name;
    await other.claim(before);
    expect([await other.isHeldBy(before), await own.isHeldBy(before)]).toEqual([true, false]);
    expect(await own.renew()).toBe(false);
    expect(own.name).not.toBe(before);
    expect(await readFile(join(spool, 'recorder'), 'utf8')).toBe(own.name);
    expect(await own.renew()).toBe(true);
    expect(await other.isHeldBy(before)).toBe(true);
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
