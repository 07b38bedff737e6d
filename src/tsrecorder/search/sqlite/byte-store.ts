/**
 * Pending bytes in one reusable block of memory. If the bytes were separate strings and buffers, garbage collection
 * would take 10 % of the CPU time of an index build.
 */

/** Position of bytes in a store. */
export interface Stored {
  readonly start: number;
  readonly end: number;
}

const FIRST_BYTES = 1024 ** 2;
/** Maximum size of the block that is kept for reuse, in bytes. */
const KEPT_BYTES = 32 * 1024 ** 2;

/** A growing store of bytes. */
export class ByteStore {
  #bytes = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #size = 0;

  /** Number of bytes in the store. */
  get size(): number {
    return this.#size;
  }

  /** Adds a text in UTF-8. */
  addText(text: string): Stored {
    this.#grow(text.length * 3);
    return this.#added(this.#bytes.write(text, this.#size));
  }

  add(bytes: Uint8Array): Stored {
    this.#grow(bytes.length);
    this.#bytes.set(bytes, this.#size);
    return this.#added(bytes.length);
  }

  /** Returns a view that is valid until the next addition. */
  get({ start, end }: Stored): Uint8Array {
    return this.#bytes.subarray(start, end);
  }

  /** Truncates the store to `size` bytes. */
  cut(size: number): void {
    this.#size = Math.min(this.#size, size);
    if (this.#size === 0 && this.#bytes.length > KEPT_BYTES)
      this.#bytes = Buffer.allocUnsafeSlow(FIRST_BYTES);
  }

  #added(length: number): Stored {
    const start = this.#size;
    this.#size += length;
    return { start, end: this.#size };
  }

  #grow(length: number): void {
    const wanted = this.#size + length;
    if (wanted <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(wanted, this.#bytes.length * 2));
    this.#bytes.copy(larger, 0, 0, this.#size);
    this.#bytes = larger;
  }
}
