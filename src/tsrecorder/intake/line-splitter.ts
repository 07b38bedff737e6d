/**
 * Splits an upload into lines for the `.cast` file and the notes.
 *
 * A line that starts with `{` is an object (the header or an annotation). The splitter returns complete objects. All
 * other lines are cast text, which the splitter returns in chunks without buffering, so that long lines need no memory.
 * The splitter neither parses JSON nor copies bytes: `bytes` of a cast piece is a view of the input chunk.
 */
import { TailcastError } from '../../errors.ts';
import { GrowingBytes } from '../../wire/growing-bytes.ts';

/** A part of an upload: cast text, or a complete object line. */
export type UploadPiece =
  | {
      readonly kind: 'cast';
      readonly bytes: Uint8Array;
      /**
       * Number of lines that start in these bytes with a character other than `[`. Such lines are not asciicast events.
       */
      readonly oddLines: number;
      /** Number of bytes up to and including the last line feed; 0 without a line feed. */
      readonly completeBytes: number;
    }
  | {
      readonly kind: 'object';
      /** The complete line with its line feed. */
      readonly line: Uint8Array;
    };

export interface LineLimits {
  /** Maximum length of a line of cast text, in bytes. */
  readonly maxLineBytes: number;
  /** Maximum length of an object line, in bytes. Object lines are kept in memory. */
  readonly maxObjectBytes: number;
}

/**
 * An unfinished line. `event`: true if the line starts and ends like an event, so probably only its line feed is
 * missing.
 */
export type UnfinishedLine =
  | { readonly kind: 'cast'; readonly event: boolean }
  | { readonly kind: 'object'; readonly line: Uint8Array };

const LINE_FEED = 0x0a;
const OPEN_BRACE = 0x7b;
const OPEN_BRACKET = 0x5b;
const CLOSE_BRACKET = 0x5d;

/** Splits the body of one upload connection. */
export class LineSplitter {
  readonly #limits: LineLimits;
  /** Bytes of the current object line; undefined outside an object line. */
  #object: GrowingBytes | undefined;
  #partialBytes = 0;
  #partialIsEvent = false;
  #lastByte: number | undefined;
  #dead = false;

  constructor(limits: LineLimits) {
    this.#limits = limits;
  }

  /**
   * Splits a chunk.
   * @throws TailcastError `UPLOAD_TOO_LARGE` for a line above its limit. The splitter is then unusable
   */
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

  /** Number of bytes since the last line feed. */
  get partialBytes(): number {
    return this.#partialBytes;
  }

  /** Number of bytes of the unfinished object line, which is in memory. */
  get heldBytes(): number {
    return this.#object === undefined ? 0 : this.#partialBytes;
  }

  /** The unfinished last line; undefined after a line feed. */
  get unfinished(): UnfinishedLine | undefined {
    if (this.#object !== undefined) return { kind: 'object', line: this.#object.all };
    return this.#partialBytes === 0
      ? undefined
      : { kind: 'cast', event: this.#partialIsEvent && this.#lastByte === CLOSE_BRACKET };
  }

  /** Consumes object text up to its line feed or the end of the chunk. */
  #takeObject(chunk: Uint8Array, start: number, out: UploadPiece[]): number {
    const found = chunk.indexOf(LINE_FEED, start);
    const end = found < 0 ? chunk.length : found + 1;
    this.#partialBytes += end - start;
    if (this.#partialBytes > this.#limits.maxObjectBytes)
      this.#fail('a header or annotation line is too long');
    const part = chunk.subarray(start, end);
    if (found < 0) {
      this.#object ??= new GrowingBytes();
      this.#object.bytes(part);
    } else {
      this.#object?.bytes(part);
      out.push({ kind: 'object', line: this.#object?.all ?? part });
      this.#object = undefined;
      this.#partialBytes = 0;
    }
    return end;
  }

  /** Consumes cast text up to the next object line or the end of the chunk. */
  #takeCast(chunk: Uint8Array, start: number, out: UploadPiece[]): number {
    let position = start;
    let oddLines = 0;
    let completeBytes = 0;
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
        this.#partialBytes = 0;
        completeBytes = end - start;
      }
      position = end;
    }
    out.push({ kind: 'cast', bytes: chunk.subarray(start, position), oddLines, completeBytes });
    return position;
  }

  #fail(detail: string): never {
    this.#dead = true;
    throw new TailcastError('UPLOAD_TOO_LARGE', detail);
  }
}
