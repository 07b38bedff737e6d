/**
 * The beginning of a recording, kept as long as the session: the object lines before the first event. A recorder that
 * takes a session over without having its beginning needs them to know what it records.
 */
import { FrameReader } from '../wire/recorder-api/upload-frame.ts';

const LINE_FEED = 0x0a;
const OPEN_BRACE = 0x7b;
/** The header may be long, for it may hold a command; the lines after it are not. */
const MAX_BYTES = 4 * 1024 * 1024;

export class Preamble {
  readonly #frames: boolean;
  readonly #lines: Uint8Array[] = [];
  #bytes = 0;
  #complete = false;

  /** @param frames whether the recording is frames, and not lines */
  constructor(frames = false) {
    this.#frames = frames;
  }

  get size(): number {
    return this.#bytes;
  }

  /** Whether nothing that comes is looked at any more. */
  get isComplete(): boolean {
    return this.#complete;
  }

  /** Looks at whole lines or frames of the recording, in order. */
  push(bytes: Uint8Array): void {
    if (this.#complete) return;
    if (!this.#frames) return this.lines(bytes);
    new FrameReader().push(bytes, {
      lines: (part) => this.lines(part),
      output: () => (this.#complete = true),
      whole: () => undefined,
    });
  }

  /** Looks at whole lines of it. */
  lines(lines: Uint8Array): void {
    let start = 0;
    while (!this.#complete && start < lines.length) {
      const end = lines.indexOf(LINE_FEED, start) + 1;
      if (end === 0 || lines[start] !== OPEN_BRACE || this.#bytes + end - start > MAX_BYTES) {
        this.#complete = true;
        return;
      }
      // a copy: the batch it stands in is large and released soon
      this.#lines.push(new Uint8Array(lines.subarray(start, end)));
      this.#bytes += end - start;
      start = end;
    }
  }

  /** As much of it as lies before byte `offset` of the lines. */
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
