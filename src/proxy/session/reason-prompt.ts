/** Reads the reason for a session: a line that the user types on a terminal. */
import { safeLine } from '../../safe-text.ts';
import { MAX_REASON_LENGTH } from '../../wire/recorder-api/session-order.ts';

const ENTER = /[\r\n]/;
const BACKSPACE = /[\b\x7f]/;
const MAX_LINE_BYTES = 4 * MAX_REASON_LENGTH;

/** Result of typed bytes. */
export interface Typed {
  /** Text for the terminal. */
  readonly echo: string;
  /** The typed line; set after Enter. Enter on an empty line is ignored. */
  readonly reason?: string;
  /** Bytes after Enter, for the program. */
  readonly rest: Uint8Array;
}

export class ReasonPrompt {
  #line: Buffer = Buffer.alloc(0);

  /** Processes typed bytes. Call it until it returns a reason. */
  read(bytes: Uint8Array): Typed {
    let echo = '';
    for (const [at, byte] of bytes.entries()) {
      const key = String.fromCharCode(byte);
      if (ENTER.test(key)) {
        const reason = this.#text.trim();
        if (reason !== '') return { echo: `${echo}\r\n`, reason, rest: bytes.slice(at + 1) };
      } else if (BACKSPACE.test(key)) {
        if (this.#line.length > 0) echo += '\b \b';
        this.#line = Buffer.from(Array.from(this.#line.toString()).slice(0, -1).join(''));
      } else if (byte >= 0x20 && this.#line.length < MAX_LINE_BYTES) {
        this.#line = Buffer.concat([this.#line, Uint8Array.of(byte)]);
        // the echo of a character with several bytes follows its last byte
        const last = Array.from(this.#line.toString()).at(-1) ?? '';
        if (last !== '\ufffd') echo += safeLine(last);
      }
    }
    return { echo, rest: new Uint8Array(0) };
  }

  get #text(): string {
    return safeLine(this.#line.toString()).slice(0, MAX_REASON_LENGTH);
  }
}
