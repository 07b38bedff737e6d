import { randomBytes } from 'node:crypto';
import { mkdtemp, readdir } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import { until } from '../../support/until.ts';
import { DrainRate } from '../../../src/proxy/session/drain-rate.ts';
import { ElasticBuffer } from '../../../src/proxy/session/elastic-buffer.ts';
import { BLOCK_BYTES, giveBlock } from '../../../src/memory/block-pool.ts';
import { Shares } from '../../../src/memory/shares.ts';
import { openSpillFile, type SpillFile } from '../../../src/proxy/session/spill-file.ts';

const MEMORY = 2 * BLOCK_BYTES;

/**
 * Takes bytes from the buffer, and returns a copy. Fills a spent block with zeros and returns the block to the pool, so
 * that tests detect later reads of the block.
 */
function take(buffer: ElasticBuffer, max: number, together = false): Buffer | undefined {
  const taken = buffer.take(max, together);
  if (taken === undefined) return undefined;
  const copy = Buffer.from(taken.bytes);
  if (taken.spent !== undefined) giveBlock(taken.spent.fill(0));
  return copy;
}

function open(
  options: {
    readonly diskBytes?: number;
    readonly shares?: { readonly memory: Shares; readonly disk: Shares };
    readonly user?: string;
    readonly memoryBytes?: number;
    readonly openFile?: () => Promise<SpillFile>;
  } = {},
) {
  const { shares = { memory: new Shares(1 << 26), disk: new Shares(1 << 26) } } = options;
  const reported: string[] = [];
  let wake = Promise.withResolvers<void>();
  const report = (what: string): void => {
    reported.push(what);
    wake.resolve();
    wake = Promise.withResolvers();
  };
  const buffer = new ElasticBuffer({
    limits: { memoryBytes: () => options.memoryBytes ?? MEMORY, diskBytes: options.diskBytes ?? 1 << 25 },
    ...shares,
    user: options.user ?? 'alice',
    openFile: options.openFile ?? (() => openSpillFile(tmpdir())),
    ready: () => report('ready'),
    room: () => report('room'),
    limitReached: (limit) => report(`limitReached: ${limit}`),
    fileLost: (error) => report(`file lost: ${(error as Error).message}`),
    failed: (error) => report(`failed: ${(error as Error).message}`),
  });
  onTestFinished(() => buffer.close());
  const takeAll = async (): Promise<Buffer> => {
    const pieces: Uint8Array[] = [];
    while (buffer.size > 0) {
      const next = wake.promise;
      const piece = take(buffer, 100_000);
      if (piece === undefined) await next;
      else pieces.push(piece);
    }
    return Buffer.concat(pieces);
  };
  return { buffer, ...shares, reported, takeAll, changed: () => wake.promise };
}

/** Opens a spill file whose reads or writes fail while the test sets `fails`. */
async function brittle(fails: { write?: boolean; read?: boolean }): Promise<SpillFile> {
  const file = await openSpillFile(tmpdir());
  return {
    ...file,
    write: (block, bytes) =>
      fails.write === true ? Promise.reject(new Error('ENOSPC')) : file.write(block, bytes),
    read: (block) => (fails.read === true ? Promise.reject(new Error('EIO')) : file.read(block)),
  };
}

describe('elastic buffer', () => {
  it.each([
    ['', {}],
    [', with scarce memory and disk', { blocks: [2, 8] }],
    [', with scarce memory and a file that cannot be written', { blocks: [2, 8], write: true }],
  ] as const)(
    'returns everything in order, in pieces of any size, through memory and file%s',
    async (_, given) => {
      const {
        blocks,
        write = false,
      }: { readonly blocks?: readonly [number, number]; readonly write?: boolean } = given;
      const scarce = (): Parameters<typeof open>[0] => ({
        ...(blocks === undefined
          ? {}
          : {
              shares: {
                memory: new Shares(blocks[0] * BLOCK_BYTES),
                disk: new Shares(blocks[1] * BLOCK_BYTES),
              },
            }),
        ...(write ? { openFile: () => brittle({ write }) } : {}),
      });
      await fc.assert(
        fc.asyncProperty(
          fc.array(fc.tuple(fc.integer({ min: 1, max: 90_000 }), fc.boolean(), fc.boolean()), {
            maxLength: 40,
          }),
          async (steps) => {
            const { buffer, memory, disk, takeAll } = open(scarce());
            const pushed: Buffer[] = [];
            const taken: Uint8Array[] = [];
            for (const [size, takes, together] of steps) {
              const chunk = randomBytes(size);
              pushed.push(chunk);
              buffer.push(chunk);
              if (takes) taken.push(take(buffer, size, together) ?? new Uint8Array(0));
              if (takes) await new Promise((resolve) => setImmediate(resolve));
            }
            taken.push(await takeAll());
            expect(Buffer.concat(taken).equals(Buffer.concat(pushed))).toBe(true);
            expect(memory.bytes).toBe(0);
            buffer.close();
            expect(disk.bytes).toBe(0);
          },
        ),
        { numRuns: 30 },
      );
    },
  );

  it('uses returned disk space even if it was not full when the space was refused', async () => {
    const shares = { memory: new Shares(1 << 26), disk: new Shares(128 * BLOCK_BYTES) };
    const other = open({ shares, memoryBytes: BLOCK_BYTES, diskBytes: 1 << 26 });
    other.buffer.push(randomBytes(130 * BLOCK_BYTES));
    await until(() => shares.disk.spaceOf('alice') < BLOCK_BYTES);
    const { buffer } = open({ shares, memoryBytes: 8 * BLOCK_BYTES });
    for (let blocks = 0; blocks < 8; blocks += 1) buffer.push(randomBytes(BLOCK_BYTES));
    buffer.push(randomBytes(BLOCK_BYTES / 2));
    take(buffer, BLOCK_BYTES);
    take(buffer, BLOCK_BYTES);
    buffer.push(randomBytes(BLOCK_BYTES / 2));
    expect(buffer.full).toBe(false);
    other.buffer.close();
    for (let blocks = 0; blocks < 3; blocks += 1) buffer.push(randomBytes(BLOCK_BYTES));
    await until(() => !buffer.full && buffer.onDisk > 0);
  });

  it('reports that the memory of the user is exhausted, although the file has space', async () => {
    const shares = { memory: new Shares(16 * BLOCK_BYTES), disk: new Shares(1 << 26) };
    const other = open({ shares, memoryBytes: 32 * BLOCK_BYTES, diskBytes: 0 });
    while (shares.memory.spaceOf('alice') > 0) other.buffer.push(randomBytes(BLOCK_BYTES));
    const { buffer, reported } = open({ shares, memoryBytes: 8 * BLOCK_BYTES });
    buffer.push(randomBytes(4 * BLOCK_BYTES));
    expect(buffer.full).toBe(true);
    expect(reported).toContain('limitReached: userMemory');
    await until(() => !buffer.full);
  });

  it('returns a single chunk unchanged', () => {
    const { buffer } = open();
    const chunk = Buffer.from('as it is');
    buffer.push(chunk);
    expect(buffer.take(100)).toEqual({ bytes: chunk, spent: undefined });
  });

  it('is full when its file is full, and has space again after a part was taken', async () => {
    const { buffer, reported, takeAll, changed } = open({ diskBytes: 4 * BLOCK_BYTES });
    const given: Buffer[] = [];
    while (!reported.includes('limitReached: session')) {
      if (buffer.full) {
        await changed();
        continue;
      }
      given.push(randomBytes(50_000));
      buffer.push(given.at(-1)!);
    }
    expect(buffer.size).toBeLessThanOrEqual(4 * BLOCK_BYTES + 2 * MEMORY + 50_000);
    expect((await takeAll()).equals(Buffer.concat(given))).toBe(true);
    expect(reported).toContain('room');
    expect(buffer.full).toBe(false);
  });

  it('continues in memory when the disk is full, loses nothing, and reports the error once', async () => {
    const { buffer, reported, takeAll, changed } = open({ openFile: () => brittle({ write: true }) });
    const given = randomBytes(6 * BLOCK_BYTES);
    for (let at = 0; at < given.length; at += 40_000) buffer.push(given.subarray(at, at + 40_000));
    while (!reported.includes('file lost: ENOSPC')) await changed();
    expect(reported).toContain('limitReached: session');
    expect((await takeAll()).equals(given)).toBe(true);
    expect(buffer.full).toBe(false);
    buffer.push(randomBytes(6 * BLOCK_BYTES));
    expect(buffer.full).toBe(true);
    expect(reported.filter((what) => what.startsWith('file lost'))).toHaveLength(1);
  });

  it('works without a file that cannot be created', async () => {
    const { reported, buffer, takeAll, changed } = open({ openFile: () => openSpillFile('/does/not/exist') });
    const given = randomBytes(6 * BLOCK_BYTES);
    buffer.push(given);
    while (reported.length === 0) await changed();
    expect(reported[0]).toContain('ENOENT');
    expect((await takeAll()).equals(given)).toBe(true);
  });

  it('reports that the disk does not return what was written', async () => {
    const { reported, buffer, changed } = open({ openFile: () => brittle({ read: true }) });
    buffer.push(randomBytes(BLOCK_BYTES));
    for (let count = 0; count < 6; count += 1) buffer.push(randomBytes(BLOCK_BYTES));
    while (!reported.includes('failed: EIO')) {
      const next = changed();
      if (take(buffer, BLOCK_BYTES) === undefined && !reported.includes('failed: EIO')) await next;
    }
    expect(reported).toContain('failed: EIO');
  });

  it.each([1, 8])('keeps many floods of one user within the share of %s MiB', async (mebibytes) => {
    const memory = new Shares(mebibytes << 20);
    const disk = new Shares(16 << 20);
    const shares = { memory, disk };
    const floods = Array.from({ length: 40 }, () => open({ shares, memoryBytes: 1 << 20 }));
    const given: Buffer[][] = floods.map(() => []);
    const share = 8 << 20;
    let mostMemory = 0;
    while (!floods.every(({ buffer }) => buffer.full) || disk.bytes < share) {
      for (const [index, { buffer }] of floods.entries()) {
        if (buffer.full) continue;
        given[index]!.push(randomBytes(16 * 1024));
        buffer.push(Buffer.from(given[index]!.at(-1)!));
      }
      mostMemory = Math.max(mostMemory, memory.bytes);
      await new Promise((resolve) => setImmediate(resolve));
    }
    expect(mostMemory).toBeLessThanOrEqual((mebibytes << 20) + floods.length * 2 * BLOCK_BYTES);
    // a buffer that is waiting for memory reports the disk limit later, so the test polls
    await until(() => floods.some(({ reported }) => reported.includes('limitReached: userDisk')));
    expect(disk.bytes).toBe(share);
    // another user still has memory and disk
    const other = open({ shares, user: 'bob', memoryBytes: 1 << 20 });
    const bytes = randomBytes(1.5 * BLOCK_BYTES);
    other.buffer.push(bytes);
    await until(() => !other.buffer.full);
    expect((await other.takeAll()).equals(bytes)).toBe(true);
    const drained = await Promise.all(floods.map(({ takeAll }) => takeAll()));
    expect(drained.every((all, index) => all.equals(Buffer.concat(given[index]!)))).toBe(true);
    expect(memory.bytes).toBe(0);
    for (const { buffer } of floods) buffer.close();
    expect(disk.usedBy('alice')).toBe(0);
  });

  it('continues when another session of the user, or another user, returns disk space', async () => {
    const shares = { memory: new Shares(64 << 20), disk: new Shares(128 * BLOCK_BYTES) };
    const bytes = randomBytes(40 * BLOCK_BYTES);
    const fill = (user: string): ReturnType<typeof open> => {
      const opened = open({ shares, user, memoryBytes: BLOCK_BYTES });
      opened.buffer.push(bytes);
      return opened;
    };
    const alice = fill('alice');
    const bob = fill('bob');
    await until(() => shares.disk.bytes === 80 * BLOCK_BYTES);
    const waiting = ['alice', 'carol'].map(fill);
    await until(() => waiting.every(({ buffer }) => buffer.full));
    alice.buffer.close();
    bob.buffer.close();
    await until(() => waiting.every(({ buffer }) => !buffer.full));
    for (const { takeAll } of waiting) expect((await takeAll()).equals(bytes)).toBe(true);
  });
});

describe('spill file', () => {
  it('has no name in the file system', async () => {
    const folder = await mkdtemp(join(tmpdir(), 'tailcast-spill-'));
    const file = await openSpillFile(folder);
    onTestFinished(() => file.close());
    expect(await readdir(folder)).toEqual([]);
    const bytes = randomBytes(BLOCK_BYTES);
    await file.write(3, bytes);
    expect((await file.read(3)).equals(bytes)).toBe(true);
    await file.clear();
    await expect(file.read(3)).rejects.toThrow('shorter');
  });
});

describe('drain rate', () => {
  it('is the amount that was taken in the last period', () => {
    let nowMs = 0;
    const rate = new DrainRate(300, () => nowMs);
    rate.note(100);
    expect(rate.recent).toBe(100);
    nowMs = 350;
    rate.note(10);
    expect(rate.recent).toBe(100);
    nowMs = 700;
    expect(rate.recent).toBe(10);
    nowMs = 2_000;
    expect(rate.recent).toBe(0);
  });
});
