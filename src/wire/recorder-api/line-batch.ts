/**
 * Batch of encoded asciicast events. The gateway uses it for uploads, the recorder for its spool. Output in
 * UTF-8 is escaped without converting it to a string.
 */
import { encodeCastEvent } from '../asciicast/event.ts';
import { escapeJson } from '../asciicast/json-escape.ts';
import { encodeLossy, LOSSY_SLACK_BYTES, MAX_ESCAPED_BYTES } from '../asciicast/lossy-text.ts';
import { GrowingBytes } from '../growing-bytes.ts';
import { printableRuns } from '../printable-runs.ts';

/** Text after the data of an event. */
const LINE_END = ']\n';

/**
 * Form of output that is not valid UTF-8. `text`: invalid bytes become U+FFFD. `exact`: an annotation before
 * the event also contains the exact bytes. `bulk`: only the annotation contains the exact bytes, and the event
 * contains their number and the printable text inside them, for views, search and alerts.
 */
export type OutputForm = 'text' | 'exact' | 'bulk';

/** Returns true if the bytes are valid UTF-8. */
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

  /** Adds complete lines. */
  text(lines: string): void {
    this.#bytes.utf8(lines);
  }

  /** Adds complete lines. */
  lines(lines: Uint8Array): void {
    this.#bytes.bytes(lines);
  }

  /** Adds an output event. */
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

  /** Returns all added bytes and empties the batch. The result is valid until the next addition. */
  take(): Uint8Array {
    return this.#bytes.take();
  }

  /** Like `take`, but returns pieces. */
  takePieces(): readonly Uint8Array[] {
    return [this.take()];
  }

  /** Adds the annotation with the exact bytes of the next event. */
  #exact(bytes: Uint8Array): void {
    // `encodeAnnotation` is not used, because its check of the base64 takes 20 times as long as the encoding.
    this.#bytes.latin1(`{"kind":"raw","base64":"${bufferOf(bytes).toString('base64')}"}\n`);
  }
}

/** Returns the text before the data of an event. */
function eventStart(seconds: number): string {
  return encodeCastEvent(seconds, 'o', '').slice(0, -`""${LINE_END}`.length);
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
