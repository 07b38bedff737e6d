import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { BLOCK_BYTES, takeBlock } from '../../src/memory/block-pool.ts';
import { RetainedBytes } from '../../src/recording/retained-bytes.ts';

describe('retained bytes', () => {
  it('are those behind the last acknowledgement, as they were when they were given', () => {
    const kept = new RetainedBytes();
    const all = randomBytes(200_000);
    const given = Buffer.from(all);
    for (let at = 0; at < given.length; at += 7_001) {
      const bytes = given.subarray(at, at + 7_001);
      expect(Buffer.concat(kept.push(bytes)).equals(all.subarray(at, at + 7_001))).toBe(true);
      bytes.fill(0);
    }
    kept.release(70_000, kept.end);
    expect([kept.start, kept.end, kept.size]).toEqual([70_000, 200_000, 130_000]);
    expect(Buffer.concat(kept.pieces()).equals(all.subarray(70_000))).toBe(true);
    kept.release(60_000, kept.end);
    expect(Buffer.from(kept.take()).equals(all.subarray(70_000))).toBe(true);
    kept.release(999_999, 0);
    expect([kept.start, kept.end, kept.size]).toEqual([200_000, 200_000, 0]);
  });

  it('give their memory to others only when it is written and no lost connection has it', () => {
    const memoryOf = (act: (kept: RetainedBytes) => void): boolean => {
      const kept = new RetainedBytes();
      const [piece] = kept.push(randomBytes(BLOCK_BYTES));
      act(kept);
      return takeBlock().buffer === piece?.buffer;
    };
    expect(memoryOf((kept) => kept.release(kept.end, kept.end))).toBe(true);
    expect(memoryOf((kept) => kept.release(kept.end, kept.end - 1))).toBe(false);
    const lose = (kept: RetainedBytes): void => {
      kept.disown();
      kept.release(kept.end, kept.end);
    };
    expect(memoryOf(lose)).toBe(false);
  });

  it('give memory to others that was acknowledged before it was written, once it is', () => {
    const kept = new RetainedBytes();
    const [piece] = kept.push(randomBytes(BLOCK_BYTES));
    kept.release(kept.end, 0);
    expect(takeBlock().buffer === piece?.buffer).toBe(false);
    kept.release(kept.end, kept.end);
    expect(takeBlock().buffer === piece?.buffer).toBe(true);
    const [other] = kept.push(randomBytes(BLOCK_BYTES));
    kept.release(kept.end, kept.end - 1);
    kept.disown();
    kept.release(kept.end, kept.end);
    expect(takeBlock().buffer === other?.buffer).toBe(false);
  });

  it('lie together that were given together', () => {
    const kept = new RetainedBytes();
    const all = randomBytes(BLOCK_BYTES + 30_000);
    const pieces = kept.push(all.subarray(0, 13), all.subarray(13, 40_000), all.subarray(40_000));
    expect(pieces.map(({ length }) => length)).toEqual([BLOCK_BYTES, 30_000]);
    expect(Buffer.concat(pieces).equals(all)).toBe(true);
  });
});
