/**
 * Pool of reusable memory blocks for pending data of connections, disks and recorders. Pending data lives longer than
 * V8's young generation. Without blocks, V8 would free the buffers of this data only when it marks the complete heap.
 * While bulk output was relayed, this marking took half of the CPU time. Once data is copied into a block, the original
 * buffer can be freed early, see `stream-garbage`.
 *
 * Blocks are shared memory (`SharedArrayBuffer`), which V8 does not count. V8 marks the heap each time the counted
 * memory outside the heap has grown by some tens of megabytes. In a test with recorded bulk output, V8 marked the heap
 * 22 times when it counted the blocks, and once when it did not. V8 also does not count dropped blocks (blocks that
 * never return to the pool). The pool therefore counts them, and starts a garbage collection when their size reaches a
 * limit.
 *
 * NOTE: The state is global to the module, because one pool serves the process.
 */
import { collectAll } from './stream-garbage.ts';

export const BLOCK_BYTES = 64 * 1024;
/**
 * Interval of the tidy-up. Each tidy-up frees half of the blocks that were unused since the previous tidy-up. The pool
 * keeps the other half, because bulk output often occurs repeatedly.
 */
const TIDY_MS = 30_000;
/** Number of dropped bytes at which a garbage collection starts immediately. */
const MOST_DROPPED_BYTES = 64 * 1024 * 1024;
/** Number of dropped bytes at which a garbage collection starts at the next tidy-up. */
const WORTH_COLLECTING_BYTES = 4 * 1024 * 1024;

const free: Buffer[] = [];
const lent = new WeakMap<ArrayBufferLike, { readonly block: Buffer; readonly bytes: number }>();
/** Lowest number of free blocks since the last tidy-up. */
let least = 0;
/** Number of dropped bytes since the last garbage collection. */
let droppedBytes = 0;
let timer: NodeJS.Timeout | undefined;

/** Returns a block with arbitrary content. The caller owns the block until it calls `giveBlock` or `dropBlocks`. */
export function takeBlock(): Buffer {
  const block = free.pop();
  least = Math.min(least, free.length);
  return block ?? Buffer.from(new SharedArrayBuffer(BLOCK_BYTES));
}

/**
 * Returns a view of the first `bytes` bytes of a block from the pool. The receiver of the view can take over the block
 * with `adoptBlock`. Otherwise the garbage collector frees the block.
 */
export function lendBlock(bytes: number): Buffer {
  const block = takeBlock();
  lent.set(block.buffer, { block, bytes });
  return block.subarray(0, bytes);
}

/** True if the view was returned by `lendBlock` and its block was not adopted. */
export function isLent(view: Uint8Array): boolean {
  return lent.get(view.buffer)?.bytes === view.length;
}

/**
 * Returns the block of this view and makes the caller its owner. Returns undefined if the view does not come from
 * `lendBlock`, is only a part of the lent view, or if its block was already adopted.
 */
export function adoptBlock(view: Uint8Array): Buffer | undefined {
  if (!isLent(view)) return undefined;
  const block = lent.get(view.buffer)?.block;
  lent.delete(view.buffer);
  return block;
}

/** Returns a block to the pool. The caller must not use views of the block any more. */
export function giveBlock(block: Buffer): void {
  free.push(block);
  timer ??= setInterval(tidy, TIDY_MS).unref();
}

/** Counts blocks that are never returned to the pool, because a reader may still reference them. */
export function dropBlocks(count: number): void {
  if (count === 0) return;
  droppedBytes += count * BLOCK_BYTES;
  timer ??= setInterval(tidy, TIDY_MS).unref();
  if (droppedBytes >= MOST_DROPPED_BYTES) collectDropped();
}

function tidy(): void {
  dropBlocks(free.splice(0, Math.ceil(least / 2)).length);
  least = free.length;
  if (droppedBytes >= WORTH_COLLECTING_BYTES) collectDropped();
  if (least > 0) return;
  clearInterval(timer);
  timer = undefined;
}

function collectDropped(): void {
  droppedBytes = 0;
  collectAll();
}
