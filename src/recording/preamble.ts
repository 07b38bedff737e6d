/**
 * Preamble of a recording: the header and the annotations before the first event. The gateway keeps the preamble until
 * the session ends. A recorder needs the preamble to continue a session whose beginning is at another recorder.
 */
import { FrameReader } from '../wire/recorder-api/upload-frame.ts';

const LINE_FEED = 0x0a;
const OPEN_BRACE = 0x7b;
/** Maximum number of bytes of a preamble. The header can be long, because it contains the command. */
const MAX_BYTES = 4 * 1024 * 1024;

/** Collects the preamble while a recording is written. */
export class Preamble {
  readonly #lines: Uint8Array[] = [];
  #bytes = 0;
  #complete = false;

  get size(): number {
    return this.#bytes;
  }

  /** True if the preamble is complete. Later bytes are ignored. */
  get isComplete(): boolean {
    return this.#complete;
  }

  /** Reads the next complete frames of the recording. */
  push(bytes: Uint8Array): void {
    if (this.#complete) return;
    new FrameReader().push(bytes, {
      lines: (part) => this.lines(part),
      output: () => (this.#complete = true),
      whole: () => undefined,
    });
  }

  /** Reads complete lines. */
  lines(lines: Uint8Array): void {
    let start = 0;
    while (!this.#complete && start < lines.length) {
      const end = lines.indexOf(LINE_FEED, start) + 1;
      if (end === 0 || lines[start] !== OPEN_BRACE || this.#bytes + end - start > MAX_BYTES) {
        this.#complete = true;
        return;
      }
      // Copies the line, because a view would keep the complete, large batch in memory.
      this.#lines.push(new Uint8Array(lines.subarray(start, end)));
      this.#bytes += end - start;
      start = end;
    }
  }

  /** Returns the lines of the preamble that end before byte `offset` of the recording. */
  before(offset: number): Uint8Array {
    const lines: Uint8Array[] = [];
    let bytes = 0;
    for (const line of this.#lines) {
      bytes += line.length;
      if (bytes > offset) break;
      lines.push(line);
    }
    return Buffer.concat(lines);
  }
}
