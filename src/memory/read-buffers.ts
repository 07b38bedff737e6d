/**
 * Memory for data from the API server. All connections read into one shared buffer, from which each piece of data is
 * copied immediately. Larger pieces are copied to blocks, which are reused after the client's socket has written the
 * data. Without reuse, a 50 MB list would create 50 MB of garbage outside of the heap. In a test, the collection of
 * this garbage took a quarter of the CPU time.
 *
 * The caller of `take` may use the piece until it calls `give`. To pass the piece to a stream, the caller must use
 * `releaseOf` as the callback of the write. The garbage collector frees a piece that is never released, for example
 * because its socket was destroyed.
 *
 * NOTE: The state is global to the module, because the process has one read buffer and one thread.
 */

/** Size of the read buffer: the maximum plain text of a TLS record (RFC 8446 §5.1). No read is larger. */
const BLOCK_BYTES = 16 * 1024;
/**
 * Minimum size of a piece that is copied into a reusable block. For smaller pieces, a slice of Node.js's own pool is
 * cheaper.
 */
const SMALL_BYTES = 2 * 1024;
/** Maximum number of free blocks; in total, they have 8 MB. */
const MAX_FREE = 512;

interface Block {
  readonly bytes: Buffer;
  /** Number of operations that use the block at present: the read event, and each pending write. */
  uses: number;
  readonly release: () => void;
}

const free: Block[] = [];
const blocks = new WeakMap<ArrayBufferLike, Block>();

/** The read buffer of all connections. */
export const SHARED_READ_BUFFER = Buffer.allocUnsafeSlow(BLOCK_BYTES);

/** Copies the first `length` bytes out of the shared buffer. */
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

/** Ends the use that `take` started. */
export function give(piece: Uint8Array): void {
  blocks.get(piece.buffer)?.release();
}

/** True if the caller must return the piece with `give`. */
export function isPooled(piece: Uint8Array): boolean {
  return blocks.has(piece.buffer);
}

/**
 * Counts another use of the piece, and returns the function that ends this use. Returns undefined if the piece is not
 * in a reusable block.
 */
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
