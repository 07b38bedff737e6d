/**
 * Bytes of an upload that another recorder may need: the preamble, and all unacknowledged bytes. Offsets
 * count from the first byte of the recording. The delivery window limits the size by making writers wait.
 */
import { dropBlocks, giveBlock } from '../memory/block-pool.ts';
import { BlockQueue } from '../memory/block-queue.ts';
import { copyBytes } from '../memory/copy-bytes.ts';
import { Preamble } from './preamble.ts';

export class RetainedBytes {
  readonly preamble = new Preamble();
  readonly #frames: boolean;
  readonly #queue = new BlockQueue();
  #start = 0;
  /**
   * Acknowledged blocks that the connection may still read. `end` is the offset after the last byte of the
   * block.
   */
  #lent: { readonly end: number; readonly block: Buffer }[] = [];

  /**
   * @param frames true if the recording consists of frames. Recordings of asciicast lines are never continued, so they
   *   need no preamble
   */
  constructor(frames: boolean) {
    this.#frames = frames;
  }

  /** Offset of the first unacknowledged byte. */
  get start(): number {
    return this.#start;
  }

  /** Offset after the last byte. */
  get end(): number {
    return this.#start + this.#queue.size;
  }

  get size(): number {
    return this.#queue.size;
  }

  /** Keeps a copy of the bytes. @returns views of the copy, which stay valid until `release` */
  push(...bytes: readonly Uint8Array[]): readonly Uint8Array[] {
    const length = bytes.reduce((sum, piece) => sum + piece.length, 0);
    if (length === 0) return [];
    if (this.#frames && !this.preamble.isComplete) this.preamble.push(Buffer.concat(bytes, length));
    if (!this.#queue.isSingle({ length })) return this.#queue.copy(...bytes);
    const copy = Buffer.concat(bytes, length);
    this.#queue.push(copy);
    return [copy];
  }

  /**
   * Forgets the bytes before `offset`.
   * @param written the connection no longer reads the memory before this offset, so only that memory is reused now
   */
  release(offset: number, written: number): void {
    while (this.#start < offset) {
      const taken = this.#queue.take(offset - this.#start);
      if (taken === undefined) break;
      this.#start += taken.bytes.length;
      if (taken.spent !== undefined) this.#lent.push({ end: this.#start, block: taken.spent });
    }
    while ((this.#lent[0]?.end ?? Infinity) <= written) {
      const spent = this.#lent.shift();
      if (spent !== undefined) giveBlock(spent.block);
    }
  }

  /** Prevents the reuse of the memory of all kept bytes, because a closed connection may still read it. */
  disown(): void {
    this.#queue.disown();
    dropBlocks(this.#lent.splice(0).length);
  }

  /** Removes all bytes and returns one copy of them, because views of the bytes would keep larger blocks in memory. */
  take(): Uint8Array {
    const all = Buffer.allocUnsafeSlow(this.size);
    let at = 0;
    for (const piece of this.pieces()) {
      copyBytes(piece, all, at);
      at += piece.length;
    }
    this.release(this.end, 0);
    this.disown();
    return all;
  }

  /** Returns views of all bytes that start at `offset`, in order. */
  pieces(offset = this.#start): readonly Uint8Array[] {
    let skip = offset - this.#start;
    if (skip <= 0) return this.#queue.views();
    const rest: Uint8Array[] = [];
    for (const piece of this.#queue.views()) {
      if (skip < piece.length) rest.push(piece.subarray(skip));
      skip = Math.max(0, skip - piece.length);
    }
    return rest;
  }
}
