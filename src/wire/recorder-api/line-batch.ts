/**
 * Cast lines on their way to the recorder or to its disk, as bytes. Output that is UTF-8 stays the bytes it was, but for what JSON
 * escapes: it never becomes a string.
 */
import { encodeCastEvent } from '../asciicast/event.ts';
import { escapeJson } from '../asciicast/json-escape.ts';
import { encodeLossy, LOSSY_SLACK_BYTES, MAX_ESCAPED_BYTES } from '../asciicast/lossy-text.ts';
import { GrowingBytes } from '../growing-bytes.ts';
import { printableRuns } from '../printable-runs.ts';

/** What `encodeCastEvent` writes behind the data. */
const LINE_END = ']\n';

/**
 * How a line of output is kept where it is not UTF-8: `text` with U+FFFD for what is not; `exact`: also as it is, in an annotation before
 * it; `bulk`: in that annotation, and the line says how much it is and has the text that is inside, so that views, search and alerts
 * find it.
 */
export type OutputForm = 'text' | 'exact' | 'bulk';

/** Whether bytes are UTF-8. */
export type IsUtf8 = (bytes: Uint8Array) => boolean;

export class LineBatch {
  readonly #isUtf8: IsUtf8;
  readonly #bytes = new GrowingBytes();
  readonly #add = (piece: Uint8Array): void => this.#bytes.bytes(piece);

  constructor(isUtf8: IsUtf8) {
    this.#isUtf8 = isUtf8;
  }

  get length(): number {
    return this.#bytes.length;
  }

  /** Adds whole lines. */
  text(lines: string): void {
    this.#bytes.utf8(lines);
  }

  /** Adds whole lines. */
  lines(lines: Uint8Array): void {
    this.#bytes.bytes(lines);
  }

  /** Adds a line of output. */
  output(seconds: number, bytes: Uint8Array, form: OutputForm): void {
    if (form === 'bulk') {
      this.#exact(bytes);
      this.#bytes.utf8(
        encodeCastEvent(seconds, 'o', `[not text: ${bytes.length} B]\r\n${printableRuns(bytes)}`),
      );
      return;
    }
    if (this.#isUtf8(bytes)) {
      this.#bytes.latin1(`${eventStart(seconds)}"`);
      escapeJson(bytes, this.#add);
      this.#bytes.latin1(`"${LINE_END}`);
      return;
    }
    if (form === 'exact') this.#exact(bytes);
    this.#bytes.latin1(`${eventStart(seconds)}"`);
    this.#bytes.write(MAX_ESCAPED_BYTES * bytes.length + LOSSY_SLACK_BYTES, (memory, at) =>
      encodeLossy(bytes, memory, at),
    );
    this.#bytes.latin1(`"${LINE_END}`);
  }

  /** Everything that was added, valid until something is added again; the batch is empty. */
  take(): Uint8Array {
    return this.#bytes.take();
  }

  /** The same in pieces. */
  takePieces(): readonly Uint8Array[] {
    return [this.take()];
  }

  /** The annotation that holds the exact bytes of the next line. */
  #exact(bytes: Uint8Array): void {
    // Not through `encodeAnnotation`, which checks the base64 it is given and so costs 20 times the encoding.
    this.#bytes.latin1(`{"kind":"raw","base64":"${bufferOf(bytes).toString('base64')}"}\n`);
  }
}

/** What `encodeCastEvent` writes before the data. */
function eventStart(seconds: number): string {
  return encodeCastEvent(seconds, 'o', '').slice(0, -`""${LINE_END}`.length);
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
