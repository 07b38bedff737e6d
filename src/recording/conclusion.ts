/**
 * Tracks the *conclusion*: the bytes with which a server reports how the process exited. The relay holds these bytes
 * back until it is proved that the stream is complete, because truncated output must not end with a successful exit
 * status.
 */
export class Conclusion {
  #chunk: Uint8Array = new Uint8Array(0);
  #from: number | undefined;
  #bytes = 0;

  /** Number of bytes since the start of the conclusion; 0 if no conclusion has started, and after `free`. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Sets the chunk that is parsed next. */
  reading(chunk: Uint8Array): void {
    this.#chunk = chunk;
  }

  /**
   * Marks the frame that contains `payload` as the start of the conclusion. The frame header has `headerBytes` bytes.
   */
  begins(payload: Uint8Array, headerBytes: number): void {
    this.#from ??= payload.byteOffset - this.#chunk.byteOffset - headerBytes;
  }

  /** Called when the chunk that was passed to `reading` is parsed completely. */
  read(): void {
    const { length } = this.#chunk;
    this.#chunk = new Uint8Array(0);
    if (this.#bytes > 0) this.#bytes += length;
    else if (this.#from !== undefined && this.#from < length) {
      this.#bytes = length - this.#from;
      this.#from = Number.POSITIVE_INFINITY;
    }
  }

  /** Allows the relay to deliver the bytes of the conclusion. */
  free(): void {
    this.#bytes = 0;
  }

  /**
   * Called when all bytes except the last `unsent` bytes were delivered.
   * @param bytes value of `bytes` when the output mark (`OutputMark`) was created
   * @returns false if the conclusion is still undelivered
   */
  delivered(unsent: number, bytes: number): boolean {
    if (bytes > 0 && unsent >= bytes) return false;
    if (bytes > 0) this.free();
    return true;
  }
}
