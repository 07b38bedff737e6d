import { randomBytes } from 'node:crypto';
import { describe, expect, it } from 'vitest';
import { BLOCK_BYTES, takeBlock } from '../../src/memory/block-pool.ts';
import { RetainedBytes } from '../../src/recording/retained-bytes.ts';

describe('unacknowledged bytes', () => {
  it('are the bytes after the last acknowledgement, unchanged', () => {
    const kept = new RetainedBytes(false);
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

  it('release their memory only after they were written, and if no lost connection uses it', () => {
    const memoryOf = (act: (kept: RetainedBytes) => void): boolean => {
      const kept = new RetainedBytes(false);
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

  it('release memory that was acknowledged before it was written, after the write', () => {
    const kept = new RetainedBytes(false);
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

  it('that were added together are contiguous', () => {
    const kept = new RetainedBytes(false);
    const all = randomBytes(BLOCK_BYTES + 30_000);
    const pieces = kept.push(all.subarray(0, 13), all.subarray(13, 40_000), all.subarray(40_000));
    expect(pieces.map(({ length }) => length)).toEqual([BLOCK_BYTES, 30_000]);
    expect(Buffer.concat(pieces).equals(all)).toBe(true);
  });
});
