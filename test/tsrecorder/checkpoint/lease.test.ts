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
    nowMs: () => nowMs,
  });
}

const leaseOf = (name: string): Buffer => bucket.objects.get(RECORDERS_FOLDER + name)!.content;
const replay = (name: string, content: Buffer): Promise<void> => bucket.put(RECORDERS_FOLDER + name, content);

describe('a lease on the sessions of a shared bucket', () => {
  it('keeps its name over a restart, and has another name with another spool', async () => {
    const spool = await newSpool();
    const { name } = await open(spool);
    expect(name).toMatch(/^[0-9a-f]{16}$/);
    expect((await open(spool)).name).toBe(name);
    expect((await open()).name).not.toBe(name);
  });

  it('is lost exactly when it was not renewed for its duration, and not earlier', async () => {
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

  it('is neither lost nor live without a signature by a trusted key', async () => {
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

  it('that was copied to another name is ignored', async () => {
    const [own, other] = [await open(), await open(undefined, keys[1])];
    await other.renew();
    const { content } = bucket.objects.get(RECORDERS_FOLDER + other.name)!;
    await bucket.put(`${RECORDERS_FOLDER}0123456789abcdef`, content);
    nowMs += 2 * LEASE_MS;
    await own.renew();
    expect((await own.read()).lost).toEqual(new Set([other.name]));
  });

  it('that an attacker restores does not make a recorder look alive', async () => {
    const [own, lost] = [await open(), await open(undefined, keys[1], 'b'.repeat(32))];
    const old: Buffer[] = [];
    for (let count = 0; count < 4; count++) {
      await lost.renew();
      await own.renew();
      await own.read();
      old.push(leaseOf(lost.name));
      nowMs += LEASE_MS / 4;
    }
    for (let count = 0; count < 8; count++) {
      await replay(lost.name, old[count % old.length]!);
      await own.renew();
      await own.read();
      nowMs += LEASE_MS / 4;
    }
    expect(await own.read()).toMatchObject({ live: new Set([own.name]), lost: new Set([lost.name]) });
    // After a lease was deleted, an older copy of it must not count as a new lease.
    await bucket.remove(RECORDERS_FOLDER + lost.name);
    await own.renew();
    await own.read();
    await replay(lost.name, old[3]!);
    await own.renew();
    expect(await own.read()).toMatchObject({
      lost: new Set([lost.name]),
      liveLogs: new Set(['a'.repeat(32)]),
    });
  });

  it('of an earlier time does not make a recorder look alive to a recorder that has just started', async () => {
    const lost = await open(undefined, keys[1], 'b'.repeat(32));
    await lost.renew();
    const old = leaseOf(lost.name);
    nowMs += 2 * 3_600_000;
    const own = await open();
    await replay(lost.name, old);
    await own.renew();
    expect(await own.read()).toMatchObject({ live: new Set([own.name]), lost: new Set([lost.name]) });
  });

  it('that an attacker restores does not make a recorder look dead', async () => {
    const [own, other] = [await open(), await open(undefined, keys[1], 'b'.repeat(32))];
    await other.renew();
    const old = leaseOf(other.name);
    for (let count = 0; count < 8; count++) {
      nowMs += LEASE_MS / 4;
      await other.renew();
      await own.renew();
      await own.read();
      await replay(other.name, old);
      expect(await own.read()).toMatchObject({ live: new Set([own.name, other.name]), lost: new Set() });
    }
    expect(await other.renew()).toBe(true);
  });

  it('is not claimed by an earlier claim that an attacker restores', async () => {
    const [first, second] = [await open(), await open(undefined, keys[1])];
    const name = '0123456789abcdef';
    await first.claim(name);
    const old = leaseOf(name);
    nowMs += 1;
    await first.claim(name);
    await second.claim(name);
    await replay(name, old);
    expect([await first.isHeldBy(name), await second.isHeldBy(name)]).toEqual([false, false]);
  });

  it('continues from its last time if the clock was set back before a restart', async () => {
    const [spool, own] = [await newSpool(), await open()];
    const before = await open(spool, keys[1], 'b'.repeat(32));
    await before.renew();
    await own.renew();
    await own.read();
    nowMs -= 500;
    const again = await open(spool, keys[1], 'b'.repeat(32));
    nowMs += LEASE_MS / 4;
    await again.renew();
    await own.renew();
    expect((await own.read()).live).toContain(again.name);
    expect(JSON.parse(leaseOf(again.name).toString().split('\n')[0]!)).toMatchObject({ at: 5_001 });
  });

  it('is found behind more unsigned objects than the limit for leases', async () => {
    const [own, other] = [await open(), await open(undefined, keys[1])];
    for (let count = 0; count < 1200; count++)
      await bucket.put(RECORDERS_FOLDER + String(count).padStart(16, '0'), Buffer.from('x'));
    await own.renew();
    await other.renew();
    expect((await own.read()).live).toEqual(new Set([own.name, other.name]));
    let reads = 0;
    bucket.before = (request) => void (reads += request === 'get' ? 1 : 0);
    await own.read();
    expect(reads).toBeLessThan(10);
  });

  it('is kept although an attacker without a key writes a claim', async () => {
    const own = await open();
    await own.renew();
    const { name } = own;
    await bucket.put(RECORDERS_FOLDER + name, Buffer.from('0123456789abcdef\n'));
    expect(await own.renew()).toBe(true);
    expect(own.name).toBe(name);
  });

  it('that was claimed is replaced by one with a new name, also after a restart', async () => {
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

  it('that was renewed too slowly may have been claimed meanwhile, so it gets a new name', async () => {
    const own = await open();
    await own.renew();
    const before = own.name;
    bucket.before = (request) => {
      if (request === 'put') nowMs += LEASE_MS / 4 + 1;
    };
    expect(await own.renew()).toBe(false);
    expect(own.name).not.toBe(before);
  });

  it('does not treat a failing store as empty', async () => {
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
