/**
 * The bytes of an upload that the recorder has not acknowledged yet, kept so that they can be sent again elsewhere.
 * Offsets count from the first byte of the session's recording. Not bounded here: the upload asks its writers to wait.
 */
import { dropBlocks, giveBlock } from '../memory/block-pool.ts';
import { BlockQueue } from '../memory/block-queue.ts';
import { copyBytes } from '../memory/copy-bytes.ts';

export class RetainedBytes {
  readonly #queue = new BlockQueue();
  #start = 0;
  /** Blocks of what is acknowledged that the connection may still look at: up to `end`. */
  #lent: { readonly end: number; readonly block: Buffer }[] = [];

  /** Offset of the first byte that is still kept: everything before it is acknowledged. */
  get start(): number {
    return this.#start;
  }

  /** Offset behind the last byte. */
  get end(): number {
    return this.#start + this.#queue.size;
  }

  get size(): number {
    return this.#queue.size;
  }

  /** Keeps a copy of them together. @returns where it is, in pieces that stay as they are until they are released */
  push(...bytes: readonly Uint8Array[]): readonly Uint8Array[] {
    const length = bytes.reduce((sum, piece) => sum + piece.length, 0);
    if (!this.#queue.isAlone({ length })) return this.#queue.copy(...bytes);
    const copy = Buffer.concat(bytes, length);
    this.#queue.push(copy);
    return [copy];
  }

  /**
   * Forgets everything before `offset`. An offset behind the end forgets all, one before the start nothing.
   * @param written nobody looks at what is before this offset any more: its memory is used again, that of the rest with a later call
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

  /** Somebody may look at what is kept, or was until now, for ever: its memory is not used again. */
  disown(): void {
    this.#queue.disown();
    dropBlocks(this.#lent.splice(0).length);
  }

  /** Takes everything out, as one piece in memory of its own: small pieces hold on to larger blocks. */
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

  /** Everything that is kept from `offset` on, in order. */
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
