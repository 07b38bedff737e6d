/**
 * The bytes of an upload that the recorder has not acknowledged yet, kept so that they can be sent again elsewhere.
 * Offsets count from the first byte of the session's recording. Not bounded here: the upload asks its writers to wait.
 */
import { dropBlocks, giveBlock } from '../memory/block-pool.ts';
import { BlockQueue } from '../memory/block-queue.ts';

export class RetainedBytes {
  readonly #queue = new BlockQueue();
  #start = 0;

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

  /** Keeps a copy. @returns where it is, in pieces that stay as they are until they are released */
  push(bytes: Uint8Array): readonly Uint8Array[] {
    if (!this.#queue.isAlone(bytes)) return this.#queue.copy(bytes);
    const copy = Buffer.from(bytes);
    this.#queue.push(copy);
    return [copy];
  }

  /**
   * Forgets everything before `offset`. An offset behind the end forgets all, one before the start nothing.
   * @param written nobody looks at what is before this offset any more, so that its memory can be used again
   */
  release(offset: number, written: number): void {
    while (this.#start < offset) {
      const taken = this.#queue.take(offset - this.#start);
      if (taken === undefined) return;
      this.#start += taken.bytes.length;
      if (taken.spent === undefined) continue;
      if (this.#start <= written) giveBlock(taken.spent);
      else dropBlocks(1);
    }
  }

  /** Somebody may look at what is kept now for ever: its memory is not used again. */
  disown(): void {
    this.#queue.disown();
  }

  /** Takes everything out, as one piece in memory of its own: small pieces hold on to larger blocks. */
  take(): Uint8Array {
    const all = Buffer.allocUnsafeSlow(this.size);
    let at = 0;
    for (const piece of this.pieces()) {
      all.set(piece, at);
      at += piece.length;
    }
    this.release(this.end, 0);
    return all;
  }

  /** Everything that is kept, in order. */
  pieces(): readonly Uint8Array[] {
    return this.#queue.views();
  }
}
