/**
 * The bytes with which a server reports how the process exited. The relay holds them back until the end of the stream
 * is proved, because output that was cut off must not end with a successful exit status.
 */
export class Conclusion {
  #chunk: Uint8Array = new Uint8Array(0);
  #from: number | undefined;
  #bytes = 0;

  /** Number of bytes since the start of the conclusion; 0 if there is none, or after `free`. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Sets the chunk that is parsed next. */
  reading(chunk: Uint8Array): void {
    this.#chunk = chunk;
  }

  /** Marks the start of the conclusion: the frame with this payload and a header of `headerBytes` bytes. */
  begins(payload: Uint8Array, headerBytes: number): void {
    this.#from ??= payload.byteOffset - this.#chunk.byteOffset - headerBytes;
  }

  /** Ends the chunk that `reading` set. */
  read(): void {
    const { length } = this.#chunk;
    this.#chunk = new Uint8Array(0);
    if (this.#bytes > 0) this.#bytes += length;
    else if (this.#from !== undefined && this.#from < length) {
      this.#bytes = length - this.#from;
      this.#from = Number.POSITIVE_INFINITY;
    }
  }

  /** Forgets the conclusion: the relay may deliver its bytes. */
  free(): void {
    this.#bytes = 0;
  }

  /**
   * Reports that everything except the last `unsent` bytes was delivered.
   * @param bytes value of `bytes` at the time of the last push
   * @returns false if the conclusion is among the undelivered bytes
   */
  delivered(unsent: number, bytes: number): boolean {
    if (bytes > 0 && unsent >= bytes) return false;
    if (bytes > 0) this.free();
    return true;
  }
}
