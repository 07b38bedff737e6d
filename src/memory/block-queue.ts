/**
 * A queue of pending bytes in reusable blocks.
 *
 * ```
 *   take ◄── │··taken··│waiting│  │waiting│ … │waiting│··room··│ ◄── push
 * ```
 *
 * `take` returns a view of a block. A block is *spent* when all its bytes were taken. The caller that took
 * the last bytes must return the block to the pool after the last use of its views. Until a block is spent,
 * its full size counts as used memory.
 */
import { adoptBlock, BLOCK_BYTES, dropBlocks, giveBlock, takeBlock } from './block-pool.ts';
import { copyBytes } from './copy-bytes.ts';

/** Maximum size of a chunk that stays in its own buffer while it is the only pending chunk. */
const SMALL_BYTES = 4 * 1024;

export interface Taken {
  readonly bytes: Uint8Array;
  /** The block of which `take` has just removed the last bytes, if any. */
  readonly spent: Buffer | undefined;
}

/** Receives changes of the used memory, in bytes. */
export interface BlockAccount {
  keep(bytes: number): void;
  release(bytes: number): void;
}

const NO_ACCOUNT: BlockAccount = { keep() {}, release() {} };

interface Piece {
  readonly memory: Uint8Array;
  /** Block of the piece; undefined if the piece is a chunk in its own buffer. */
  block: Buffer | undefined;
  from: number;
  to: number;
  /** True if a reader may still reference a part of the memory. */
  isShared?: boolean;
}

export class BlockQueue {
  readonly #account: BlockAccount;
  readonly #pieces: Piece[] = [];
  #size = 0;

  constructor(account: BlockAccount = NO_ACCOUNT) {
    this.#account = account;
  }

  /** Pending bytes. */
  get size(): number {
    return this.#size;
  }

  /**
   * Adds a chunk. If the queue is empty, a small chunk stays in its own buffer. The caller must then no longer write to
   * this buffer. If the chunk is in a lent block, the queue adopts the block. If this block is mostly empty, its bytes
   * are copied and the block is returned to the pool.
   * @returns false if the chunk stays in its own buffer
   */
  push(chunk: Uint8Array): boolean {
    const block = adoptBlock(chunk);
    if (block !== undefined && chunk.length >= BLOCK_BYTES / 2) {
      const from = chunk.byteOffset;
      this.#add({ memory: block, block, from, to: from + chunk.length });
      return true;
    }
    const copied = block !== undefined || !this.isSingle(chunk);
    if (copied) this.copy(chunk);
    else this.#add({ memory: chunk, block: undefined, from: 0, to: chunk.length });
    if (block !== undefined) giveBlock(block);
    return copied;
  }

  /** Returns true if a chunk of this length would stay in its own buffer. */
  isSingle({ length }: Pick<Uint8Array, 'length'>): boolean {
    return this.#pieces.length === 0 && length < SMALL_BYTES;
  }

  /** Appends a copy of `chunks` to the queue, in blocks. @returns the views of the copy */
  copy(...chunks: readonly Uint8Array[]): readonly Uint8Array[] {
    const copies: Uint8Array[] = [];
    let piece: Piece | undefined;
    let from = 0;
    for (const chunk of chunks) {
      for (let at = 0; at < chunk.length;) {
        if (piece === undefined || piece.to === BLOCK_BYTES) {
          if (piece !== undefined) copies.push(piece.memory.subarray(from, piece.to));
          piece = this.#roomy();
          from = piece.to;
        }
        const count = Math.min(BLOCK_BYTES - piece.to, chunk.length - at);
        copyBytes(count === chunk.length ? chunk : chunk.subarray(at, at + count), piece.memory, piece.to);
        piece.to += count;
        this.#size += count;
        at += count;
      }
    }
    if (piece !== undefined) copies.push(piece.memory.subarray(from, piece.to));
    return copies;
  }

  /** Adds a full block. */
  pushBlock(block: Buffer): void {
    this.#add({ memory: block, block, from: 0, to: BLOCK_BYTES });
  }

  /**
   * Removes the next bytes as a full block and makes the caller its owner. The memory of the block still counts as
   * used. Returns undefined if the queue has less than a block.
   */
  takeBlock(): Buffer | undefined {
    const [first] = this.#pieces;
    if (this.#size < BLOCK_BYTES) return undefined;
    if (first?.block === undefined || first.to - first.from < BLOCK_BYTES) {
      this.#account.keep(BLOCK_BYTES);
      return this.#moveTo(takeBlock());
    }
    this.#pieces.shift();
    this.#size -= BLOCK_BYTES;
    return first.block;
  }

  /** Puts blocks from `takeBlock` back to the front of the queue. */
  unshiftBlocks(blocks: readonly Buffer[]): void {
    this.#pieces.unshift(...blocks.map((block) => ({ memory: block, block, from: 0, to: BLOCK_BYTES })));
    this.#size += blocks.length * BLOCK_BYTES;
  }

  /** Removes and returns at most `max` bytes of one block. Returns undefined if the queue is empty. */
  take(max: number): Taken | undefined {
    const [first] = this.#pieces;
    if (first === undefined) return undefined;
    first.isShared = true;
    return this.#remove(first, max);
  }

  /** Removes at most `max` bytes and returns a copy. */
  takeCopy(max: number): Uint8Array {
    return this.#moveTo(Buffer.allocUnsafe(Math.min(max, this.#size)));
  }

  /** Returns views of all pending bytes, in order. */
  views(): readonly Uint8Array[] {
    return this.#pieces.map(({ memory, from, to }) => memory.subarray(from, to));
  }

  /** Marks all current blocks as not reusable, because a reader may still reference them. */
  disown(): void {
    dropBlocks(this.#pieces.filter(({ block }) => block !== undefined).length);
    for (const piece of this.#pieces) piece.block = undefined;
  }

  /** Removes all pending bytes. */
  clear(): void {
    for (const { block, memory, isShared } of this.#pieces.splice(0)) {
      this.#account.release(memory.length);
      // if bytes of a block were taken, a reader may still reference them, so the block is not reused
      if (block === undefined) continue;
      if (isShared === true) dropBlocks(1);
      else giveBlock(block);
    }
    this.#size = 0;
  }

  /** Removes at most `max` bytes of the first piece. */
  #remove(first: Piece, max: number): Taken {
    const bytes = first.memory.subarray(first.from, Math.min(first.to, first.from + max));
    first.from += bytes.length;
    this.#size -= bytes.length;
    if (first.from < first.to) return { bytes, spent: undefined };
    this.#pieces.shift();
    this.#account.release(first.memory.length);
    return { bytes, spent: first.block };
  }

  /** Moves bytes to `target` until it is full. The queue must have enough bytes. @returns `target` */
  #moveTo(target: Buffer): Buffer {
    for (let at = 0; at < target.length;) {
      const [first] = this.#pieces;
      if (first === undefined) break;
      const { bytes, spent } = this.#remove(first, target.length - at);
      copyBytes(bytes, target, at);
      at += bytes.length;
      if (spent === undefined) continue;
      if (first.isShared === true) dropBlocks(1);
      else giveBlock(spent);
    }
    return target;
  }

  /** Returns a block with free space as the last piece. Adds one if necessary. */
  #roomy(): Piece {
    const last = this.#pieces.at(-1);
    if (last?.block !== undefined && last.to < BLOCK_BYTES) return last;
    const block = takeBlock();
    const lone = this.#pieces.length === 1 && last !== undefined && last.memory.length < SMALL_BYTES;
    if (!lone) return this.#add({ memory: block, block, from: 0, to: 0 });
    // the chunk in its own buffer is copied into a block together with the next chunk
    this.#pieces.length = 0;
    this.#account.release(last.memory.length);
    this.#size -= last.to - last.from;
    copyBytes(last.memory.subarray(last.from, last.to), block, 0);
    return this.#add({ memory: block, block, from: 0, to: last.to - last.from });
  }

  #add(piece: Piece): Piece {
    this.#account.keep(piece.memory.length);
    this.#pieces.push(piece);
    this.#size += piece.to - piece.from;
    return piece;
  }
}
