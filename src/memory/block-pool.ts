/**
 * Reusable blocks of memory for pending data of connections, disks and recorders. Pending data outlives V8's young
 * generation. In separate buffers V8 would free the memory only when it marks the complete heap, about every 20 MB.
 * Marking took half of the CPU time of a relayed flood. Data that is copied into a block frees its original buffer
 * early, see `stream-garbage`.
 *
 * Blocks are shared memory, because V8 does not count it. Memory outside of the heap that V8 counts makes it mark the
 * heap for every 64 MB, in a recorded flood 22 times instead of once. The pool therefore counts dropped blocks, and
 * starts a collection after a number of them.
 *
 * NOTE: module state, because one pool of free blocks serves the process.
 */
import { collectAll, collectsEarly } from './stream-garbage.ts';

export const BLOCK_BYTES = 64 * 1024;
/** Half of the blocks that were unused for this time are freed; floods often follow each other. */
const TIDY_MS = 30_000;
/** Dropped bytes above which a collection starts immediately, or at the next tidy-up. */
const MOST_DROPPED_BYTES = 64 * 1024 * 1024;
const WORTH_COLLECTING_BYTES = 4 * 1024 * 1024;

const free: Buffer[] = [];
const lent = new WeakMap<ArrayBufferLike, { readonly block: Buffer; readonly bytes: number }>();
/** Minimum number of free blocks since the last tidy-up. */
let least = 0;
/** Dropped memory that was not collected yet; V8 does not count it. */
let droppedBytes = 0;
let timer: NodeJS.Timeout | undefined;

/** Returns a block with arbitrary content. The caller owns it until `giveBlock` or `dropBlocks`. */
export function takeBlock(): Buffer {
  const block = free.pop();
  least = Math.min(least, free.length);
  if (block !== undefined) return block;
  if (!collectsEarly()) return Buffer.allocUnsafeSlow(BLOCK_BYTES);
  return Buffer.from(new SharedArrayBuffer(BLOCK_BYTES));
}

/**
 * Returns a view of `bytes`, at most one block. The receiver of the view takes the block over with `adoptBlock`;
 * otherwise the garbage collector frees it.
 */
export function lendBlock(bytes: number): Buffer {
  const block = takeBlock();
  lent.set(block.buffer, { block, bytes });
  return block.subarray(0, bytes);
}

/** True if the view owns a block that can be adopted. */
export function isLent(view: Uint8Array): boolean {
  return lent.get(view.buffer)?.bytes === view.length;
}

/**
 * Returns the block of this view and makes the caller its owner; undefined if the view owns none, or is only a
 * part of the lent view.
 */
export function adoptBlock(view: Uint8Array): Buffer | undefined {
  if (!isLent(view)) return undefined;
  const block = lent.get(view.buffer)?.block;
  lent.delete(view.buffer);
  return block;
}

/** Returns a block to the pool. The caller must not use its views any more. */
export function giveBlock(block: Buffer): void {
  free.push(block);
  timer ??= setInterval(tidy, TIDY_MS).unref();
}

/** Counts blocks that are never returned to the pool, because a reader may still reference them. */
export function dropBlocks(count: number): void {
  if (count === 0 || !collectsEarly()) return;
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
