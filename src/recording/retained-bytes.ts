/**
 * The bytes of an upload that the recorder has not acknowledged yet, kept so that they can be sent again elsewhere.
 * Offsets count from the first byte of the session's recording. Not bounded here: the upload asks its writers to wait.
 */
export class RetainedBytes {
  readonly #pieces: Uint8Array[] = [];
  #head = 0;
  #start = 0;
  #end = 0;

  /** Offset of the first byte that is still kept: everything before it is acknowledged. */
  get start(): number {
    return this.#start;
  }

  /** Offset behind the last byte. */
  get end(): number {
    return this.#end;
  }

  get size(): number {
    return this.#end - this.#start;
  }

  push(bytes: Uint8Array): void {
    this.#pieces.push(bytes);
    this.#end += bytes.length;
  }

  /** Forgets everything before `offset`. An offset behind the end forgets all, one before the start nothing. */
  release(offset: number): void {
    let left = Math.min(offset, this.#end) - this.#start;
    if (left <= 0) return;
    this.#start += left;
    while (left > 0) {
      const piece = this.#pieces[this.#head];
      if (piece === undefined) break;
      if (piece.length > left) {
        this.#pieces[this.#head] = piece.subarray(left);
        break;
      }
      left -= piece.length;
      this.#head += 1;
    }
    if (this.#head > 64 && this.#head * 2 > this.#pieces.length) {
      this.#pieces.splice(0, this.#head);
      this.#head = 0;
    } else if (this.#head === this.#pieces.length) {
      this.#pieces.length = 0;
      this.#head = 0;
    }
  }

  /** Takes everything out, as one piece in memory of its own: small pieces hold on to larger blocks. */
  take(): Uint8Array {
    const all = Buffer.allocUnsafeSlow(this.size);
    let at = 0;
    for (const piece of this.pieces()) {
      all.set(piece, at);
      at += piece.length;
    }
    this.release(this.#end);
    return all;
  }

  /** Everything that is kept, in order. */
  pieces(): readonly Uint8Array[] {
    return this.#pieces.slice(this.#head);
  }
}
