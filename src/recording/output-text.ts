/**
 * Bytes of one output stream → the bytes of cast lines. It holds all that lines depend on from one to the next. A character cut in two by the wire is put together again, and
 * what is too long for a line is cut between characters.
 */

/** Called per line, with a view that is valid during the call. */
export type EmitText = (bytes: Uint8Array) => void;

/** The end of a character that was cut before so much output has a line of its own: with what follows it, that would be copied. */
const MUCH_BYTES = 4 * 1024;

export class OutputText {
  readonly #maxLineBytes: number;
  /** The first bytes of a character whose rest has not come yet: at most three. */
  #tail: Uint8Array = EMPTY;

  /** @param maxLineBytes most bytes of output in one line; longer output is cut between characters */
  constructor(maxLineBytes: number) {
    this.#maxLineBytes = maxLineBytes;
  }

  /**
   * @param isBulk whether nobody reads these bytes as text: then what looks like the first bytes of a character at their end is no reason to
   *   put all of the next ones together with them, which copies those
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

  /** @returns them behind what was left of a character */
  #behindTail(bytes: Uint8Array): Uint8Array {
    return this.#tail.length === 0 ? bytes : Buffer.concat([this.#tail, bytes]);
  }

  /** Emits a character that was cut, with what ends it. @returns what follows */
  #endCharacter(bytes: Uint8Array, emit: EmitText): Uint8Array {
    const [lead] = this.#tail;
    if (lead === undefined) return bytes;
    const missing = sequenceLength(lead) - this.#tail.length;
    let count = 0;
    while (count < missing && isContinuation(bytes[count] ?? 0)) count += 1;
    emit(Buffer.concat([this.#tail, bytes.subarray(0, count)]));
    return bytes.subarray(count);
  }

  /** The stream is over: what is left of a character is emitted as it is. */
  flush(emit: EmitText): void {
    const tail = this.#tail;
    this.#tail = EMPTY;
    if (tail.length > 0) emit(tail);
  }
}

const EMPTY = new Uint8Array(0);

/** The end of a line that starts at `start`, moved back so that it does not fall inside a character. */
function lineEnd(bytes: Uint8Array, start: number, whole: number, maxLineBytes: number): number {
  const end = start + maxLineBytes;
  if (end >= whole) return whole;
  for (let back = 0; back <= 3; back += 1) {
    if (end - back > start && !isContinuation(bytes[end - back] ?? 0)) return end - back;
  }
  return end;
}

/** How many bytes at the end are the beginning of a character whose other bytes are missing: 0 to 3. */
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

/** Length of the UTF-8 sequence a lead byte announces (RFC 3629 §3); 1 for bytes that announce nothing. */
function sequenceLength(lead: number): number {
  if (lead >= 0xf0 && lead <= 0xf4) return 4;
  if (lead >= 0xe0 && lead < 0xf0) return 3;
  return lead >= 0xc2 && lead < 0xe0 ? 2 : 1;
}
