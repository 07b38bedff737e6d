/**
 * Blocks of memory that are used again, for what waits for a connection, a disk or a recorder. What waits outlives V8's young
 * generation; as buffers of its own it is freed only when the whole heap is marked, which V8 does every 20 MB or so: half of the
 * CPU time of a relayed flood. Copied into such a block, it lets what was read die young, see `stream-garbage`.
 *
 * V8 does not count the blocks: their memory is shared, as if with other threads. What it counts outside of its heap makes it
 * mark the whole heap for every 64 MB more, and while blocks and what is read together went up and down it did so for each few MB: a recorded
 * flood had 22 marks where it now has one. So whoever does not give a block back says so, and enough of these have the heap looked through.
 *
 * NOTE: module state: free blocks serve everything in the process.
 */
import { collectAll, collectsEarly } from './stream-garbage.ts';

export const BLOCK_BYTES = 64 * 1024;
/** Half of the blocks that nobody wanted for so long are given back to the system: one flood often follows another. */
const TIDY_MS = 30_000;
/** Blocks that were dropped and make up so much are collected at once, and so much when it is tidied. */
const MOST_DROPPED_BYTES = 64 * 1024 * 1024;
const WORTH_COLLECTING_BYTES = 4 * 1024 * 1024;

const free: Buffer[] = [];
const lent = new WeakMap<ArrayBufferLike, { readonly block: Buffer; readonly bytes: number }>();
/** The fewest that were free since it was last looked. */
let least = 0;
/** Not collected, of which V8 does not know. */
let droppedBytes = 0;
let timer: NodeJS.Timeout | undefined;

/** A block with anything in it: the caller's until it is given back, or dropped. */
export function takeBlock(): Buffer {
  const block = free.pop();
  least = Math.min(least, free.length);
  if (block !== undefined) return block;
  if (!collectsEarly()) return Buffer.allocUnsafeSlow(BLOCK_BYTES);
  return Buffer.from(new SharedArrayBuffer(BLOCK_BYTES));
}

/**
 * Memory for `bytes`, at most a block, that goes with its block: it belongs to whoever gets this view and adopts the block. A block that
 * nobody adopts is left to the garbage collector.
 */
export function lendBlock(bytes: number): Buffer {
  const block = takeBlock();
  lent.set(block.buffer, { block, bytes });
  return block.subarray(0, bytes);
}

/** Whether a block is lent with this view. */
export function isLent(view: Uint8Array): boolean {
  return lent.get(view.buffer)?.bytes === view.length;
}

/** The block that is lent with this view, which nobody else can adopt then; undefined when none is, or it is a part of the view that was lent. */
export function adoptBlock(view: Uint8Array): Buffer | undefined {
  if (!isLent(view)) return undefined;
  const block = lent.get(view.buffer)?.block;
  lent.delete(view.buffer);
  return block;
}

/** Nobody looks at the block any more. */
export function giveBlock(block: Buffer): void {
  free.push(block);
  timer ??= setInterval(tidy, TIDY_MS).unref();
}

/** So many blocks are not given back: somebody may look at them for ever. */
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
