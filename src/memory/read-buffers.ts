/**
 * Memory for what is read from the API server. Every read lands in one buffer shared by all connections and is moved
 * out at once. Larger pieces go to blocks that are used again when the client's socket has taken them: without that a
 * 50 MB list is 50 MB of garbage outside the heap, and collecting it took a quarter of the CPU time.
 *
 * A piece from `take` is the caller's until the event is over; whoever hands it to a stream beyond that gives `releaseOf`
 * as the write's callback. A piece that is never released (a destroyed socket) is left to the garbage collector.
 *
 * NOTE: module state, unlike anything else here: one buffer per process is the point, and Node reads into it on the only
 * thread there is.
 */

/** The plain text of one TLS record (RFC 8446 §5.1): no read is larger. */
const BLOCK_BYTES = 16 * 1024;
/** Below this, a slice of Node's own pool is cheaper than keeping count. */
const SMALL_BYTES = 2 * 1024;
/** Free blocks that are kept; 8 MB. */
const MAX_FREE = 512;

interface Block {
  readonly bytes: Buffer;
  /** Uses that have not ended: the event itself, and every write. */
  uses: number;
  readonly release: () => void;
}

const free: Block[] = [];
const blocks = new WeakMap<ArrayBufferLike, Block>();

/** What every connection reads into. */
export const SHARED_READ_BUFFER = Buffer.allocUnsafeSlow(BLOCK_BYTES);

/** Moves the first `length` bytes out of the shared buffer. */
export function take(length: number): Buffer {
  if (length < SMALL_BYTES) {
    const piece = Buffer.allocUnsafe(length);
    SHARED_READ_BUFFER.copy(piece, 0, 0, length);
    return piece;
  }
  const block = free.pop() ?? createBlock();
  block.uses = 1;
  SHARED_READ_BUFFER.copy(block.bytes, 0, 0, length);
  return length === BLOCK_BYTES ? block.bytes : block.bytes.subarray(0, length);
}

/** Ends the use that `take` began. */
export function give(piece: Uint8Array): void {
  blocks.get(piece.buffer)?.release();
}

/** Whether somebody is to `give` the piece. */
export function isPooled(piece: Uint8Array): boolean {
  return blocks.has(piece.buffer);
}

/** Begins one more use of the piece; the result ends it. Undefined when the piece needs no counting. */
export function releaseOf(piece: Buffer): (() => void) | undefined {
  const block = blocks.get(piece.buffer);
  if (block === undefined) return undefined;
  block.uses += 1;
  return block.release;
}

function createBlock(): Block {
  const bytes = Buffer.allocUnsafeSlow(BLOCK_BYTES);
  const block: Block = {
    bytes,
    uses: 0,
    release: () => {
      block.uses -= 1;
      if (block.uses === 0 && free.length < MAX_FREE) free.push(block);
    },
  };
  blocks.set(bytes.buffer, block);
  return block;
}
