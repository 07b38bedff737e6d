/**
 * Bytes that wait in memory, in order, in blocks that are used again.
 *
 * ```
 *   take ◄── │··taken··│waiting│  │waiting│ … │waiting│··room··│ ◄── push
 * ```
 *
 * What is taken is a view on a block. The block is spent when all of it was taken; whoever took the last of it gives it back
 * when nobody looks at any of its views any more. A block counts as a whole, until it is spent.
 */
import { adoptBlock, BLOCK_BYTES, dropBlocks, giveBlock, takeBlock } from './block-pool.ts';
import { copyBytes } from './copy-bytes.ts';

/** A chunk that waits alone and is smaller stays where it was read. */
const SMALL_BYTES = 4 * 1024;

export interface Taken {
  readonly bytes: Uint8Array;
  /** Nothing of it waits any more. */
  readonly spent: Buffer | undefined;
}

/** Who is told what memory is used. */
export interface BlockAccount {
  keep(bytes: number): void;
  release(bytes: number): void;
}

const NO_ACCOUNT: BlockAccount = { keep() {}, release() {} };

interface Piece {
  readonly memory: Uint8Array;
  /** Undefined: it is no block, but a chunk as it came. */
  block: Buffer | undefined;
  from: number;
  to: number;
}

export class BlockQueue {
  readonly #account: BlockAccount;
  readonly #pieces: Piece[] = [];
  #size = 0;

  constructor(account: BlockAccount = NO_ACCOUNT) {
    this.#account = account;
  }

  /** Bytes that wait. */
  get size(): number {
    return this.#size;
  }

  /**
   * Keeps a chunk: as it is when it is small and alone, and then nobody may write into it any more. A block that is lent with it is kept,
   * or given back when little is in it.
   * @returns false: it is kept as it is
   */
  push(chunk: Uint8Array): boolean {
    const block = adoptBlock(chunk);
    if (block !== undefined && chunk.length >= BLOCK_BYTES / 2) {
      const from = chunk.byteOffset;
      this.#add({ memory: block, block, from, to: from + chunk.length });
      return true;
    }
    const copied = block !== undefined || !this.isAlone(chunk);
    if (copied) this.copy(chunk);
    else this.#add({ memory: chunk, block: undefined, from: 0, to: chunk.length });
    if (block !== undefined) giveBlock(block);
    return copied;
  }

  /** Whether what is so long needs no block. */
  isAlone({ length }: Pick<Uint8Array, 'length'>): boolean {
    return this.#pieces.length === 0 && length < SMALL_BYTES;
  }

  /** Keeps a copy of what is in `chunks` together, in blocks. @returns where it is */
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

  /** Puts a whole block behind what waits. */
  pushBlock(block: Buffer): void {
    this.#add({ memory: block, block, from: 0, to: BLOCK_BYTES });
  }

  /** Takes the next whole block out, for somebody else's account; undefined when what waits next is none. */
  takeBlock(): Buffer | undefined {
    const [first] = this.#pieces;
    if (first?.block === undefined || first.to - first.from < BLOCK_BYTES) return undefined;
    this.#pieces.shift();
    this.#size -= BLOCK_BYTES;
    return first.block;
  }

  /** Puts blocks from `takeBlock` back in front. */
  unshiftBlocks(blocks: readonly Buffer[]): void {
    this.#pieces.unshift(...blocks.map((block) => ({ memory: block, block, from: 0, to: BLOCK_BYTES })));
    this.#size += blocks.length * BLOCK_BYTES;
  }

  /** Takes at most `max` bytes out, and no more than one block has; undefined when nothing waits. */
  take(max: number): Taken | undefined {
    const [first] = this.#pieces;
    if (first === undefined) return undefined;
    const bytes = first.memory.subarray(first.from, Math.min(first.to, first.from + max));
    first.from += bytes.length;
    this.#size -= bytes.length;
    if (first.from < first.to) return { bytes, spent: undefined };
    this.#pieces.shift();
    this.#account.release(first.memory.length);
    return { bytes, spent: first.block };
  }

  /** Takes at most `max` bytes out, as a copy. */
  takeCopy(max: number): Uint8Array {
    const copy = Buffer.allocUnsafe(Math.min(max, this.#size));
    for (let at = 0; at < copy.length;) {
      const taken = this.take(copy.length - at);
      if (taken === undefined) break;
      copyBytes(taken.bytes, copy, at);
      at += taken.bytes.length;
      if (taken.spent !== undefined) giveBlock(taken.spent);
    }
    return copy;
  }

  /** All that waits, in order. */
  views(): readonly Uint8Array[] {
    return this.#pieces.map(({ memory, from, to }) => memory.subarray(from, to));
  }

  /** None of the blocks there are now is used again: somebody may look at them for ever. */
  disown(): void {
    dropBlocks(this.#pieces.filter(({ block }) => block !== undefined).length);
    for (const piece of this.#pieces) piece.block = undefined;
  }

  /** Drops what waits. */
  clear(): void {
    for (const { block, memory, from } of this.#pieces.splice(0)) {
      this.#account.release(memory.length);
      // of a block that was begun, somebody may still have the beginning
      if (block === undefined) continue;
      if (from === 0) giveBlock(block);
      else dropBlocks(1);
    }
    this.#size = 0;
  }

  /** The last block, with room in it. */
  #roomy(): Piece {
    const last = this.#pieces.at(-1);
    if (last?.block !== undefined && last.to < BLOCK_BYTES) return last;
    const block = takeBlock();
    const lone = this.#pieces.length === 1 && last !== undefined && last.memory.length < SMALL_BYTES;
    if (!lone) return this.#add({ memory: block, block, from: 0, to: 0 });
    // what was alone goes where its company goes
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
