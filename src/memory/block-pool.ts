/**
 * Blocks of memory that are used again, for what waits for a connection, a disk or a recorder. What waits outlives V8's young
 * generation; as buffers of its own it is freed only when the whole heap is marked, which V8 does every 20 MB or so: half of the
 * CPU time of a relayed flood. Copied into such a block, it lets what was read die young, see `stream-garbage`.
 *
 * NOTE: module state: free blocks serve everything in the process.
 */

export const BLOCK_BYTES = 64 * 1024;
/** Half of the blocks that nobody wanted for so long are given back to the system: one flood often follows another. */
const TIDY_MS = 30_000;

const free: Buffer[] = [];
/** The fewest that were free since it was last looked. */
let least = 0;
let timer: NodeJS.Timeout | undefined;

/** A block with anything in it: the caller's until it is given back, or forgotten. */
export function takeBlock(): Buffer {
  const block = free.pop();
  least = Math.min(least, free.length);
  return block ?? Buffer.allocUnsafeSlow(BLOCK_BYTES);
}

/** Nobody looks at the block any more. */
export function giveBlock(block: Buffer): void {
  free.push(block);
  timer ??= setInterval(tidy, TIDY_MS).unref();
}

function tidy(): void {
  free.splice(0, Math.ceil(least / 2));
  least = free.length;
  if (least > 0) return;
  clearInterval(timer);
  timer = undefined;
}
