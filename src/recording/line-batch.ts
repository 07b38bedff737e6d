/**
 * Cast lines on their way to the recorder, as bytes. Output that is UTF-8 stays the bytes it was: read as Latin-1,
 * `JSON.stringify` escapes what must be escaped and leaves every other byte alone, and does it on strings of one byte per
 * character even where the text is not. (With characters beyond Latin-1 that takes a sixth of the time: 0.8 ms/MB
 * against 5; for ASCII it saves the tenth that encoding to UTF-8 took.)
 */
import { encodeCastEvent } from '../wire/asciicast/event.ts';
import { encodeLossy, LOSSY_SLACK_BYTES, MAX_ESCAPED_BYTES } from './lossy-text.ts';

const FIRST_BYTES = 4 * 1024;
/** A batch that had to grow beyond this starts small again. */
const KEPT_BYTES = 256 * 1024;
/** What `encodeCastEvent` writes behind the data. */
const LINE_END = ']\n';

export class LineBatch {
  #bytes: Buffer = Buffer.allocUnsafeSlow(FIRST_BYTES);
  #length = 0;

  get length(): number {
    return this.#length;
  }

  /** Adds whole lines. */
  text(lines: string): void {
    this.#reserve(3 * lines.length);
    this.#length += this.#bytes.write(lines, this.#length, 'utf8');
  }

  /** Adds a line of output whose bytes are UTF-8. */
  output(seconds: number, bytes: Uint8Array): void {
    // in pieces: to put a long string together takes as long as to escape it
    this.#latin1(eventStart(seconds));
    this.#latin1(JSON.stringify(bufferOf(bytes).toString('latin1')));
    this.#latin1(LINE_END);
  }

  /** Adds a line of output whose bytes are not; what is not UTF-8 is shown as U+FFFD. */
  lossyOutput(seconds: number, bytes: Uint8Array): void {
    this.#latin1(`${eventStart(seconds)}"`);
    this.#reserve(MAX_ESCAPED_BYTES * bytes.length + LOSSY_SLACK_BYTES);
    this.#length = encodeLossy(bytes, this.#bytes, this.#length);
    this.#latin1(`"${LINE_END}`);
  }

  /** Adds the annotation that holds the exact bytes of the next line. */
  raw(bytes: Uint8Array): void {
    // Not through `encodeAnnotation`, which checks the base64 it is given and so costs 20 times the encoding.
    this.#latin1(`{"kind":"raw","base64":"${bufferOf(bytes).toString('base64')}"}\n`);
  }

  /** Everything that was added, valid until something is added again; the batch is empty. */
  take(): Uint8Array {
    const taken = this.#bytes.subarray(0, this.#length);
    this.#length = 0;
    if (this.#bytes.length > KEPT_BYTES) this.#bytes = Buffer.allocUnsafeSlow(FIRST_BYTES);
    return taken;
  }

  #latin1(text: string): void {
    this.#reserve(text.length);
    this.#length += this.#bytes.write(text, this.#length, 'latin1');
  }

  #reserve(more: number): void {
    const needed = this.#length + more;
    if (needed <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafeSlow(Math.max(needed, 2 * this.#bytes.length));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}

/** What `encodeCastEvent` writes before the data. */
function eventStart(seconds: number): string {
  return encodeCastEvent(seconds, 'o', '').slice(0, -`""${LINE_END}`.length);
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
