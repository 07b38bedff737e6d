/**
 * Bytes that wait to be written, in one piece of memory that is used again and again. As strings and buffers of their own they are copied
 * and marked by who collects garbage: it was a tenth of the CPU of building an index.
 */

/** Where something is in a store. */
export interface Stored {
  readonly start: number;
  readonly end: number;
}

const FIRST_BYTES = 1024 ** 2;
/** More than this is given back once it is not needed. */
const KEPT_BYTES = 32 * 1024 ** 2;

/** Grows as it is filled. */
export class ByteStore {
  #bytes = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #size = 0;

  /** Bytes that are in it. */
  get size(): number {
    return this.#size;
  }

  /** A text in UTF-8. */
  addText(text: string): Stored {
    this.#makeRoom(text.length * 3);
    return this.#added(this.#bytes.write(text, this.#size));
  }

  add(bytes: Uint8Array): Stored {
    this.#makeRoom(bytes.length);
    this.#bytes.set(bytes, this.#size);
    return this.#added(bytes.length);
  }

  /** Not a copy: good until something is added. */
  get({ start, end }: Stored): Uint8Array {
    return this.#bytes.subarray(start, end);
  }

  /** Forgets what is beyond so many bytes. */
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

  #makeRoom(length: number): void {
    const wanted = this.#size + length;
    if (wanted <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(wanted, this.#bytes.length * 2));
    this.#bytes.copy(larger, 0, 0, this.#size);
    this.#bytes = larger;
  }
}
