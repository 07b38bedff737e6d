/**
 * Cuts an upload into its lines: what goes to the `.cast` and what goes to the sidecar.
 *
 * A line that starts with `{` is an object (the header, then annotations) and is handed over whole. Everything else is
 * cast text and is handed over as it comes, in runs as long as possible, so that a line of any length costs no memory.
 * It does not parse JSON, and does not copy: `bytes` of a cast run are views into the pushed chunk.
 */
import { TailcastError } from '../../errors.ts';

export type UploadPiece =
  | {
      readonly kind: 'cast';
      readonly bytes: Uint8Array;
      /** Lines that end in these bytes. */
      readonly linesEnded: number;
      /** Lines that begin in these bytes with something other than `[`, so they are no asciicast events. */
      readonly oddLines: number;
      /** Bytes up to and with the last line end in `bytes`; 0 when no line ends here. */
      readonly wholeBytes: number;
    }
  | {
      readonly kind: 'object';
      /** The whole line with its line feed. */
      readonly line: Uint8Array;
    };

export interface LineLimits {
  /** Longest line of cast text. */
  readonly maxLineBytes: number;
  /** Longest object line: these are held in memory. */
  readonly maxObjectBytes: number;
}

/**
 * A line without its line feed. `event`: it begins and ends like a cast event, so only the line feed may be missing.
 */
export type UnfinishedLine =
  | { readonly kind: 'cast'; readonly event: boolean }
  | { readonly kind: 'object'; readonly line: Uint8Array };

const LINE_FEED = 0x0a;
const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** One per connection of an upload. */
export class LineSplitter {
  readonly #limits: LineLimits;
  /** The object line being collected over several chunks, or undefined outside of one. */
  #object: Collector | undefined;
  #partialBytes = 0;
  #partialIsEvent = false;
  #lastByte: number | undefined;
  #dead = false;

  constructor(limits: LineLimits) {
    this.#limits = limits;
  }

  /** @throws TailcastError `UPLOAD_TOO_LARGE` when a line is longer than its limit; the splitter is dead afterwards. */
  push(chunk: Uint8Array): readonly UploadPiece[] {
    if (this.#dead) throw new TailcastError('UPLOAD_TOO_LARGE', 'the upload was already refused');
    const pieces: UploadPiece[] = [];
    let position = 0;
    while (position < chunk.length) {
      const isObject =
        this.#object !== undefined || (this.#partialBytes === 0 && chunk[position] === OPEN_BRACE);
      position = isObject
        ? this.#takeObject(chunk, position, pieces)
        : this.#takeCast(chunk, position, pieces);
    }
    this.#lastByte = chunk.at(-1) ?? this.#lastByte;
    return pieces;
  }

  /** Bytes since the last line end. */
  get partialBytes(): number {
    return this.#partialBytes;
  }

  /** What the upload would end with if it ended here; undefined between two lines. */
  get unfinished(): UnfinishedLine | undefined {
    if (this.#object !== undefined) return { kind: 'object', line: this.#object.bytes() };
    return this.#partialBytes === 0
      ? undefined
      : { kind: 'cast', event: this.#partialIsEvent && this.#lastByte === CLOSE_BRACKET };
  }

  /** Consumes object text up to its line end or the end of the chunk. */
  #takeObject(chunk: Uint8Array, start: number, out: UploadPiece[]): number {
    const found = chunk.indexOf(LINE_FEED, start);
    const end = found < 0 ? chunk.length : found + 1;
    this.#partialBytes += end - start;
    if (this.#partialBytes > this.#limits.maxObjectBytes)
      this.#fail('a header or annotation line is too long');
    const part = chunk.subarray(start, end);
    if (found < 0) {
      this.#object ??= createCollector();
      this.#object.append(part);
    } else {
      this.#object?.append(part);
      out.push({ kind: 'object', line: this.#object?.bytes() ?? part });
      this.#object = undefined;
      this.#partialBytes = 0;
    }
    return end;
  }

  /** Consumes cast text up to the next object line or the end of the chunk. */
  #takeCast(chunk: Uint8Array, start: number, out: UploadPiece[]): number {
    let position = start;
    let linesEnded = 0;
    let oddLines = 0;
    let wholeBytes = 0;
    while (position < chunk.length) {
      if (this.#partialBytes === 0) {
        const first = chunk[position];
        if (first === OPEN_BRACE) break;
        this.#partialIsEvent = first === OPEN_BRACKET;
        if (!this.#partialIsEvent) oddLines += 1;
      }
      const found = chunk.indexOf(LINE_FEED, position);
      const end = found < 0 ? chunk.length : found + 1;
      this.#partialBytes += end - position;
      if (this.#partialBytes > this.#limits.maxLineBytes) this.#fail('a line is too long');
      if (found >= 0) {
        linesEnded += 1;
        this.#partialBytes = 0;
        wholeBytes = end - start;
      }
      position = end;
    }
    out.push({ kind: 'cast', bytes: chunk.subarray(start, position), linesEnded, oddLines, wholeBytes });
    return position;
  }

  #fail(detail: string): never {
    this.#dead = true;
    throw new TailcastError('UPLOAD_TOO_LARGE', detail);
  }
}

interface Collector {
  append(part: Uint8Array): void;
  bytes(): Uint8Array;
}

/** Doubles, so that a line that comes byte by byte costs no more than one that comes at once. */
function createCollector(): Collector {
  let buffer = new Uint8Array(1024);
  let used = 0;
  return {
    append(part) {
      if (used + part.length > buffer.length) {
        const larger = new Uint8Array(Math.max(buffer.length * 2, used + part.length));
        larger.set(buffer.subarray(0, used));
        buffer = larger;
      }
      buffer.set(part, used);
      used += part.length;
    },
    bytes: () => buffer.subarray(0, used),
  };
}
