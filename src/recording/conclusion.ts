/**
 * The bytes with which a server says how the process ended. They are kept from the client until they are proved: what was
 * cut off before, or may have been, has another end.
 */
export class Conclusion {
  #chunk: Uint8Array = new Uint8Array(0);
  #from: number | undefined;
  #bytes = 0;

  /** Bytes that were pushed from its beginning on; 0 when there is none, or it is given free. */
  get bytes(): number {
    return this.#bytes;
  }

  /** What is read next is in `chunk`. */
  reading(chunk: Uint8Array): void {
    this.#chunk = chunk;
  }

  /** It begins with the frame whose payload, `headerBytes` behind its beginning, begins with `payload`. */
  begins(payload: Uint8Array, headerBytes: number): void {
    this.#from ??= payload.byteOffset - this.#chunk.byteOffset - headerBytes;
  }

  /** The chunk is read. */
  read(): void {
    const { length } = this.#chunk;
    this.#chunk = new Uint8Array(0);
    if (this.#bytes > 0) this.#bytes += length;
    else if (this.#from !== undefined && this.#from < length) {
      this.#bytes = length - this.#from;
      this.#from = Number.POSITIVE_INFINITY;
    }
  }

  free(): void {
    this.#bytes = 0;
  }

  /**
   * All was delivered but the last `unsent` bytes.
   * @param bytes what `bytes` was when no more had been pushed
   * @returns whether it was among the delivered, or was none of them
   */
  delivered(unsent: number, bytes: number): boolean {
    if (bytes > 0 && unsent >= bytes) return false;
    if (bytes > 0) this.free();
    return true;
  }
}
