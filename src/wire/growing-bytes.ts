/** Buffer that grows when bytes are appended, and whose memory is reused. */

const FIRST_BYTES = 4 * 1024;
const KEPT_BYTES = 256 * 1024;

export class GrowingBytes {
  #memory: Buffer = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #length = 0;
  readonly #keptBytes: number;

  /** @param keptBytes maximum size of memory that is kept for reuse. Larger memory is released. */
  constructor(keptBytes = KEPT_BYTES) {
    this.#keptBytes = keptBytes;
  }

  get length(): number {
    return this.#length;
  }

  /** All appended bytes. The result is valid until the next append. */
  get all(): Uint8Array {
    return this.#memory.subarray(0, this.#length);
  }

  utf8(text: string): void {
    this.#reserve(3 * text.length);
    this.#length += this.#memory.write(text, this.#length, 'utf8');
  }

  /** Appends a text that contains only Latin-1 characters. */
  latin1(text: string): void {
    this.#reserve(text.length);
    this.#length += this.#memory.write(text, this.#length, 'latin1');
  }

  bytes(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#memory.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  /**
   * Calls `write` with memory that has space for `most` more bytes, and with the offset at which to write.
   * `write` returns the offset after its last byte.
   */
  write(most: number, write: (memory: Buffer, at: number) => number): void {
    this.#reserve(most);
    this.#length = write(this.#memory, this.#length);
  }

  /** Returns all appended bytes and empties the buffer. The result is valid until the next append. */
  take(): Uint8Array {
    const taken = this.all;
    this.cut(0);
    return taken;
  }

  /** Removes all bytes after the first `length` bytes. */
  cut(length: number): void {
    this.#length = length;
    if (length === 0 && this.#memory.length > this.#keptBytes)
      this.#memory = Buffer.allocUnsafeSlow(FIRST_BYTES);
  }

  #reserve(more: number): void {
    const needed = this.#length + more;
    if (needed <= this.#memory.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(needed, 2 * this.#memory.length));
    this.#memory.copy(larger, 0, 0, this.#length);
    this.#memory = larger;
  }
}
