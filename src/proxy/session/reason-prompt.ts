/** Reads the reason for a session: a line that the user types on a terminal. */
import { safeLine } from '../../safe-text.ts';
import { MAX_REASON_LENGTH } from '../../wire/recorder-api/session-order.ts';

const ENTER: ReadonlySet<number> = new Set([0x0d, 0x0a]);
const BACKSPACE: ReadonlySet<number> = new Set([0x08, 0x7f]);
const MAX_CHARACTER_BYTES = 4;
const MAX_LINE_BYTES = 4 * MAX_REASON_LENGTH;

/** Result of processing typed bytes. */
export interface Typed {
  /** Text for the terminal. */
  readonly echo: string;
  /** The typed line; set after Enter. Enter on an empty line is ignored. */
  readonly reason?: string;
  /** Bytes after Enter, for the program. */
  readonly rest: Uint8Array;
}

export class ReasonPrompt {
  readonly #line = Buffer.alloc(MAX_LINE_BYTES);
  /** Number of bytes in the line. */
  #length = 0;

  /** Processes typed bytes. Call this function until it returns a reason. */
  read(bytes: Uint8Array): Typed {
    let echo = '';
    for (const [at, byte] of bytes.entries()) {
      if (ENTER.has(byte)) {
        const reason = this.#text.trim();
        if (reason !== '') return { echo: `${echo}\r\n`, reason, rest: bytes.slice(at + 1) };
        this.#length = 0;
      } else if (BACKSPACE.has(byte)) {
        if (this.#length > 0) echo += '\b \b';
        this.#length = this.#last.start;
      } else if (byte >= 0x20 && this.#length < MAX_LINE_BYTES) {
        this.#line[this.#length] = byte;
        this.#length += 1;
        // a character of several bytes is echoed after its last byte
        const { text } = this.#last;
        if (text !== '\ufffd') echo += safeLine(text);
      }
    }
    return { echo, rest: new Uint8Array(0) };
  }

  /**
   * Last character of the line; U+FFFD for invalid UTF-8. Decodes only the last bytes, because decoding the complete
   * line for each typed byte would block the event loop.
   */
  get #last(): { readonly text: string; readonly start: number } {
    const end = this.#length;
    let start = Math.max(0, end - 1);
    while (start > 0 && end - start < MAX_CHARACTER_BYTES && isContinuation(this.#line[start])) start -= 1;
    const [text = '', ...others] = this.#line.toString('utf8', start, end);
    return others.length === 0 ? { text, start } : { text: '\ufffd', start: end - 1 };
  }

  get #text(): string {
    return safeLine(this.#line.toString('utf8', 0, this.#length)).slice(0, MAX_REASON_LENGTH);
  }
}

/** Returns true for a byte that continues a UTF-8 character. */
function isContinuation(byte = 0): boolean {
  return (byte & 0xc0) === 0x80;
}
