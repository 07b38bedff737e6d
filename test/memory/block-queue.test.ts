import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { BLOCK_BYTES, giveBlock, isLent, lendBlock, takeBlock } from '../../src/memory/block-pool.ts';
import { BlockQueue } from '../../src/memory/block-queue.ts';

describe('block queue', () => {
  it('gives back what it was given, and accounts for each block until it is spent', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.tuple(
            fc.integer({ min: 1, max: 2 * BLOCK_BYTES }),
            fc.integer({ min: 1, max: 90_000 }),
            fc.boolean(),
          ),
          {
            maxLength: 30,
          },
        ),
        (steps) => {
          let kept = 0;
          const queue = new BlockQueue({
            keep: (bytes) => (kept += bytes),
            release: (bytes) => (kept -= bytes),
          });
          const given: Buffer[] = [];
          const taken: Buffer[] = [];
          const take = (max: number): void => {
            const some = queue.take(max);
            if (some === undefined) return;
            taken.push(Buffer.from(some.bytes));
            if (some.spent !== undefined) giveBlock(some.spent.fill(0));
          };
          for (const [size, max, lends] of steps) {
            const bytes = randomBytes(size);
            given.push(bytes);
            const lent = lends && size <= BLOCK_BYTES ? lendBlock(size) : undefined;
            lent?.set(bytes);
            queue.push(lent ?? bytes);
            expect(lent === undefined || !isLent(lent)).toBe(true);
            expect(kept).toBeGreaterThanOrEqual(queue.size);
            take(max);
          }
          while (queue.size > 0) take(50_000);
          expect(Buffer.concat(taken).equals(Buffer.concat(given))).toBe(true);
          expect(kept).toBe(0);
        },
      ),
      { numRuns: 100 },
    );
  });

  it('shows where copies are, and they stay until they are taken', () => {
    const queue = new BlockQueue();
    const all = randomBytes(3 * BLOCK_BYTES + 10);
    const copies = [...queue.copy(all.subarray(0, 100)), ...queue.copy(all.subarray(100))];
    expect(Buffer.concat(copies).equals(all)).toBe(true);
    expect(Buffer.concat(queue.views()).equals(all)).toBe(true);
  });

  it('gives no block out that was disowned', () => {
    const queue = new BlockQueue();
    queue.copy(randomBytes(BLOCK_BYTES + 10));
    queue.disown();
    queue.copy(randomBytes(10));
    const spent = [queue.take(BLOCK_BYTES), queue.take(BLOCK_BYTES), queue.take(BLOCK_BYTES)];
    expect(spent.map((taken) => [taken?.bytes.length, taken?.spent === undefined])).toEqual([
      [BLOCK_BYTES, true],
      [10, true],
      [10, false],
    ]);
  });

  it('keeps no block for what is small and alone', () => {
    let kept = 0;
    const queue = new BlockQueue({ keep: (bytes) => (kept += bytes), release: (bytes) => (kept -= bytes) });
    queue.push(Buffer.from('a key'));
    expect(kept).toBe(5);
    queue.push(Buffer.from('another'));
    expect(kept).toBe(BLOCK_BYTES);
    expect(Buffer.from(queue.take(100)!.bytes).toString()).toBe('a keyanother');
    expect(kept).toBe(0);
  });
});

describe('takeBlock of a block queue', () => {
  it('returns full blocks of pieces of any size, and does not reuse memory that a reader may reference', () => {
    fc.assert(
      fc.property(
        fc.array(fc.tuple(fc.integer({ min: 1, max: BLOCK_BYTES }), fc.boolean()), { maxLength: 20 }),
        fc.integer({ min: 0, max: 10_000 }),
        (chunks, early) => {
          let used = 0;
          const queue = new BlockQueue({
            keep: (bytes) => void (used += bytes),
            release: (bytes) => void (used -= bytes),
          });
          const given = chunks.map(([size]) => randomBytes(size));
          for (const [index, chunk] of given.entries()) {
            const lent = chunks[index]![1] ? lendBlock(chunk.length) : Buffer.alloc(chunk.length);
            chunk.copy(lent);
            queue.push(lent);
          }
          const all = Buffer.concat(given);
          const first = early === 0 ? undefined : queue.take(early);
          const taken: Buffer[] = first === undefined ? [] : [Buffer.from(first.bytes)];
          const start = first?.bytes.length ?? 0;
          for (let block = queue.takeBlock(); block !== undefined; block = queue.takeBlock()) {
            taken.push(Buffer.from(block));
            used -= BLOCK_BYTES;
            giveBlock(block.fill(0));
          }
          expect(queue.size).toBeLessThan(BLOCK_BYTES);
          if (first !== undefined) expect(all.subarray(0, start).equals(first.bytes)).toBe(true);
          taken.push(Buffer.from(queue.takeCopy(BLOCK_BYTES)));
          expect(Buffer.concat(taken).equals(all)).toBe(true);
          expect(used).toBe(0);
        },
      ),
    );
  });
});

describe('block pool', () => {
  it('gives a block out again', () => {
    const block = takeBlock();
    giveBlock(block);
    expect(takeBlock()).toBe(block);
  });
});
