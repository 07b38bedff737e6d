import { constants, PerformanceObserver } from 'node:perf_hooks';
import { setImmediate as turn } from 'node:timers/promises';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import {
  adoptBlock,
  BLOCK_BYTES,
  dropBlocks,
  giveBlock,
  isLent,
  lendBlock,
  takeBlock,
} from '../../src/memory/block-pool.ts';

const MB = 1024 * 1024;
/** One entry for each full garbage collection: true if our code requested the collection, false if V8 started it. */
let whole: boolean[];
let observer: PerformanceObserver;

beforeEach(() => {
  whole = [];
  observer = new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      const { kind, flags = 0 } = Reflect.get(entry, 'detail') as { kind?: number; flags?: number };
      if (kind !== constants.NODE_PERFORMANCE_GC_MAJOR) continue;
      whole.push((flags & constants.NODE_PERFORMANCE_GC_FLAGS_FORCED) !== 0);
    }
  });
  observer.observe({ entryTypes: ['gc'] });
});
afterEach(() => {
  observer.disconnect();
  vi.useRealTimers();
});

it('has no heap looked through because blocks are many', async () => {
  const kept: Buffer[] = [];
  for (let index = 0; index < (256 * MB) / BLOCK_BYTES; index += 1) {
    kept.push(takeBlock());
    if (index % 16 === 0) await turn();
  }
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(whole).toEqual([]);
  for (const block of kept) giveBlock(block);
});

it('gives the memory of dropped blocks back, at once when they are many', async () => {
  const before = process.memoryUsage().arrayBuffers;
  let blocks = Array.from({ length: (64 * MB) / BLOCK_BYTES }, takeBlock);
  const some = blocks.length - 1;
  dropBlocks(some);
  await new Promise((resolve) => setTimeout(resolve, 100));
  expect(whole).not.toContain(true);
  blocks = [];
  dropBlocks(1);
  await expect.poll(() => whole).toContain(true);
  await expect.poll(() => process.memoryUsage().arrayBuffers - before).toBeLessThan(8 * MB);
});

it('gives back what nobody wants, by and by', async () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  vi.resetModules();
  const pool = await import('../../src/memory/block-pool.ts');
  for (const block of Array.from({ length: (32 * MB) / BLOCK_BYTES }, pool.takeBlock)) pool.giveBlock(block);
  const before = process.memoryUsage().arrayBuffers;
  // the first check keeps blocks that were used recently
  await vi.advanceTimersByTimeAsync(60_000);
  vi.useRealTimers();
  await expect.poll(() => whole).toContain(true);
  await expect.poll(() => before - process.memoryUsage().arrayBuffers).toBeGreaterThan(12 * MB);
});

it('lends a block to one, with the whole of what was lent', () => {
  const view = lendBlock(100);
  expect([view.length, isLent(view), isLent(view.subarray(1)), isLent(Buffer.alloc(100))]).toEqual([
    100,
    true,
    false,
    false,
  ]);
  expect(adoptBlock(view.subarray(0, 50))).toBeUndefined();
  const block = adoptBlock(view);
  expect([block?.length, block?.buffer === view.buffer]).toEqual([BLOCK_BYTES, true]);
  expect(adoptBlock(view)).toBeUndefined();
});
