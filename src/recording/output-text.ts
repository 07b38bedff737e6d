/**
 * Splits the bytes of one output stream into the texts of asciicast events. Joins a UTF-8 character that is
 * split over two chunks. Splits output that is too long for one event, but never inside a character.
 */

/** Called for each event. The bytes are a view that is valid only during the call. */
export type EmitText = (bytes: Uint8Array) => void;

/**
 * Minimum size of a long chunk, in bytes. A character that is split between two chunks gets its own event if the second
 * chunk is long. Joining the character with that chunk would copy the chunk.
 */
const MUCH_BYTES = 4 * 1024;

/** State of one output stream between two chunks. */
export class OutputText {
  readonly #maxLineBytes: number;
  /** First bytes of an incomplete character; at most three. */
  #tail: Uint8Array = EMPTY;

  /** @param maxLineBytes maximum number of bytes of output in one event */
  constructor(maxLineBytes: number) {
    this.#maxLineBytes = maxLineBytes;
  }

  /**
   * Splits one chunk.
   * @param isBulk returns true for binary output. The last bytes of such a chunk are not kept, even if they
   * look like an incomplete character, because joining them with the next chunk would copy that chunk
   */
  push(bytes: Uint8Array, emit: EmitText, isBulk: (bytes: Uint8Array) => boolean = () => false): void {
    const all = bytes.length < MUCH_BYTES ? this.#behindTail(bytes) : this.#endCharacter(bytes, emit);
    const cut = all.length - incompleteTail(all);
    const whole = cut < all.length && isBulk(all.subarray(0, cut)) ? all.length : cut;
    this.#tail = whole === all.length ? EMPTY : new Uint8Array(all.subarray(whole));
    for (let start = 0; start < whole;) {
      const end = lineEnd(all, start, whole, this.#maxLineBytes);
      emit(all.subarray(start, end));
      start = end;
    }
  }

  /** Returns the kept bytes of an incomplete character and the chunk, joined. */
  #behindTail(bytes: Uint8Array): Uint8Array {
    return this.#tail.length === 0 ? bytes : Buffer.concat([this.#tail, bytes]);
  }

  /**
   * Completes the kept character with the first bytes of the chunk, and emits it.
   * @returns the rest of the chunk
   */
  #endCharacter(bytes: Uint8Array, emit: EmitText): Uint8Array {
    const [lead] = this.#tail;
    if (lead === undefined) return bytes;
    const missing = sequenceLength(lead) - this.#tail.length;
    let count = 0;
    while (count < missing && isContinuation(bytes[count] ?? 0)) count += 1;
    emit(Buffer.concat([this.#tail, bytes.subarray(0, count)]));
    return bytes.subarray(count);
  }

  /** Emits the kept bytes of an incomplete character. Called at the end of the stream. */
  flush(emit: EmitText): void {
    const tail = this.#tail;
    this.#tail = EMPTY;
    if (tail.length > 0) emit(tail);
  }
}

const EMPTY = new Uint8Array(0);

/**
 * Returns the end of an event that starts at `start`. The end is moved back if it would split a character.
 */
function lineEnd(bytes: Uint8Array, start: number, whole: number, maxLineBytes: number): number {
  const end = start + maxLineBytes;
  if (end >= whole) return whole;
  for (let back = 0; back <= 3; back += 1) {
    if (end - back > start && !isContinuation(bytes[end - back] ?? 0)) return end - back;
  }
  return end;
}

/** Returns the number of bytes at the end of `bytes` that belong to an incomplete character: 0 to 3. */
function incompleteTail(bytes: Uint8Array): number {
  const longest = Math.min(3, bytes.length);
  for (let back = 1; back <= longest; back += 1) {
    const byte = bytes[bytes.length - back] ?? 0;
    if (!isContinuation(byte)) return sequenceLength(byte) > back ? back : 0;
  }
  return 0;
}

function isContinuation(byte: number): boolean {
  return (byte & 0xc0) === 0x80;
}

/** Returns the length of the UTF-8 sequence that starts with this byte (RFC 3629 §3); 1 for other bytes. */
function sequenceLength(lead: number): number {
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  return lead >= 0xc2 && lead < 0xe0 ? 2 : 1;
}
