/**
 * Frames: what a gateway sends to `POST /v2/record` instead of lines, to a recorder that answered `HEAD /v2/record` with
 * `tailcast-frames: 2`. A recording is a row of frames, and each of them stands for whole lines, by itself: output is not
 * escaped by the gateway, but by the recorder (`frame-lines.ts`).
 *
 * ```
 *   kind (u8)  length of the content (u32)  content
 *   1          lines as they are: header, annotations, events that are not output
 *   2          microseconds since the start (u64), then the output of one line: 1 to 1 Mi bytes
 *   3          the same, of which the line says only how much it is
 * ```
 *
 * Numbers are big endian. Which lines a frame stands for belongs to the version: positions in a recording count bytes of
 * lines, so gateways and recorders of all releases must make the same ones. Version 1 has the kinds 1 and 2.
 */
import { GrowingBytes } from '../growing-bytes.ts';
import { WireError } from '../wire-error.ts';
import type { OutputForm } from './line-batch.ts';

/** The newest version, which has those before in it. */
export const FRAMES_VERSION = 2;

const LINES = 1;
const OUTPUT = 2;
const BULK = 3;
const LEAD_BYTES = 5;
const TIME_BYTES = 8;
/** Most output in one frame. */
export const MAX_FRAME_OUTPUT_BYTES = 1024 * 1024;
/** Some 35 years: below it microseconds and seconds say exactly the same. */
const MAX_MICROSECONDS = 2 ** 50;
const MICROSECONDS = 1e6;
const LINE_FEED = 0x0a;
const NO_BYTES = new Uint8Array(0);

/**
 * No byte of frames stands for more bytes of lines than that: a byte of output for an escape of six and its part of
 * base64, what is around them for the 13 bytes before the output.
 */
export const MAX_LINE_BYTES_PER_FRAME_BYTE = 8;

/** What output can be in frames: their reader keeps exact bytes of all of it. */
export type FrameForm = Exclude<OutputForm, 'text'>;

/** Output that is longer stays where it is until the batch is taken; shorter output costs less as a copy. */
const MAX_COPIED_BYTES = 1024;

/** Frames on their way to the recorder. */
export class FrameBatch {
  /** All but the output that stays where it is. */
  readonly #bytes = new GrowingBytes();
  /** That output, and how many of the other bytes are before it. */
  #borrowed: { readonly at: number; readonly bytes: Uint8Array }[] = [];
  #borrowedBytes = 0;

  get length(): number {
    return this.#bytes.length + this.#borrowedBytes;
  }

  /** Adds a frame of whole lines. */
  text(lines: string): void {
    const bytes = Buffer.from(lines, 'utf8');
    if (bytes.at(-1) !== LINE_FEED) throw new WireError('malformed', 'these are not whole lines');
    this.#lead(LINES, bytes.length);
    this.#bytes.bytes(bytes);
  }

  /** Adds a frame with the output of one line, which must stay as it is until the batch is taken. @throws WireError */
  output(seconds: number, bytes: Uint8Array, form: FrameForm): void {
    const time = Math.round(seconds * MICROSECONDS);
    if (!(time >= 0 && time < MAX_MICROSECONDS)) throw unusableTime();
    if (bytes.length === 0 || bytes.length > MAX_FRAME_OUTPUT_BYTES) throw outputLength();
    this.#lead(form === 'bulk' ? BULK : OUTPUT, TIME_BYTES + bytes.length);
    this.#bytes.write(TIME_BYTES, (memory, at) =>
      memory.writeUInt32BE(time % 2 ** 32, memory.writeUInt32BE(Math.floor(time / 2 ** 32), at)),
    );
    if (bytes.length <= MAX_COPIED_BYTES) return this.#bytes.bytes(bytes);
    this.#borrowed.push({ at: this.#bytes.length, bytes });
    this.#borrowedBytes += bytes.length;
  }

  /** Everything that was added, valid until something is added again; the batch is empty. */
  take(): Uint8Array {
    const [first, ...others] = this.takePieces();
    return first === undefined || others.length === 0
      ? (first ?? NO_BYTES)
      : Buffer.concat([first, ...others]);
  }

  /** The same in pieces; output is where it was. */
  takePieces(): readonly Uint8Array[] {
    const borrowed = this.#borrowed;
    const own = this.#bytes.take();
    if (borrowed.length === 0) return [own];
    this.#borrowed = [];
    this.#borrowedBytes = 0;
    const pieces: Uint8Array[] = [];
    let from = 0;
    for (const { at, bytes } of borrowed) {
      pieces.push(own.subarray(from, at), bytes);
      from = at;
    }
    if (from < own.length) pieces.push(own.subarray(from));
    return pieces;
  }

  #lead(kind: number, length: number): void {
    this.#bytes.write(LEAD_BYTES, (memory, at) => memory.writeUInt32BE(length, memory.writeUInt8(kind, at)));
  }
}

/** How many bytes at the beginning of `frames`, which begin with a frame, are whole frames: at most `most`, none when the first one is longer. */
export function wholeFrames(frames: Uint8Array, most: number): number {
  const view = new DataView(frames.buffer, frames.byteOffset, frames.length);
  let whole = 0;
  while (whole + LEAD_BYTES <= frames.length) {
    const end = whole + LEAD_BYTES + view.getUint32(whole + 1);
    if (end > Math.min(frames.length, most)) break;
    whole = end;
  }
  return whole;
}

/** What is in frames, in order. */
export interface FrameVisitor {
  /** A part of a frame of lines, as it came. */
  lines(part: Uint8Array): void;
  output(seconds: number, bytes: Uint8Array, form: FrameForm): void;
  /** A frame is over. @param end how many bytes of the chunk are before this place */
  whole(end: number): void;
}

/** Reads frames from bytes that come in pieces. What it hands over is valid during the call. */
export class FrameReader {
  readonly #lead = new Uint8Array(LEAD_BYTES + TIME_BYTES);
  readonly #view = new DataView(this.#lead.buffer);
  #leadBytes = 0;
  /** Of the frame of lines that is being read. */
  #missing = 0;
  /** The output of a frame that comes in pieces. */
  readonly #output = new GrowingBytes();
  #dead = false;

  /** Whether what came ends where a frame ends. */
  get isWhole(): boolean {
    return this.#leadBytes === 0;
  }

  /** @throws WireError `malformed`, afterwards `dead` */
  push(chunk: Uint8Array, visitor: FrameVisitor): void {
    if (this.#dead) throw new WireError('dead', 'the frames were already refused');
    this.#dead = true;
    let at = 0;
    while (at < chunk.length) {
      const needed = this.#needed();
      if (this.#leadBytes < needed) {
        this.#lead[this.#leadBytes] = chunk[at] ?? 0;
        this.#leadBytes += 1;
        at += 1;
        if (this.#leadBytes >= this.#needed()) this.#missing = this.#begin();
      } else {
        const end = Math.min(chunk.length, at + this.#missing);
        this.#content(chunk.subarray(at, end), visitor);
        at = end;
        if (this.#missing > 0) continue;
        this.#leadBytes = 0;
        visitor.whole(at);
      }
    }
    this.#dead = false;
  }

  /** How long the lead of the frame is, as far as is known. */
  #needed(): number {
    return this.#leadBytes > 0 && isOutput(this.#lead[0]) ? LEAD_BYTES + TIME_BYTES : LEAD_BYTES;
  }

  /** The lead is whole. @returns how many bytes of content follow */
  #begin(): number {
    const length = this.#number(1);
    const kind = this.#lead[0];
    if (kind === LINES) {
      if (length === 0) throw new WireError('malformed', 'a frame of lines has none');
      return length;
    }
    if (!isOutput(kind)) throw new WireError('malformed', 'there is no frame of this kind');
    const bytes = length - TIME_BYTES;
    if (bytes < 1 || bytes > MAX_FRAME_OUTPUT_BYTES) throw outputLength();
    if (this.#time() >= MAX_MICROSECONDS) throw unusableTime();
    return bytes;
  }

  #content(part: Uint8Array, visitor: FrameVisitor): void {
    this.#missing -= part.length;
    if (this.#lead[0] === LINES) {
      if (this.#missing === 0 && part.at(-1) !== LINE_FEED) {
        throw new WireError('malformed', 'a frame of lines ends inside of one');
      }
      visitor.lines(part);
      return;
    }
    if (this.#missing > 0) {
      this.#output.bytes(part);
      return;
    }
    const seconds = this.#time() / MICROSECONDS;
    const form = this.#lead[0] === BULK ? 'bulk' : 'exact';
    if (this.#output.length === 0) {
      visitor.output(seconds, part, form);
      return;
    }
    this.#output.bytes(part);
    visitor.output(seconds, this.#output.take(), form);
  }

  #time(): number {
    return this.#number(LEAD_BYTES) * 2 ** 32 + this.#number(LEAD_BYTES + 4);
  }

  #number(at: number): number {
    return this.#view.getUint32(at);
  }
}

function isOutput(kind: number | undefined): boolean {
  return kind === OUTPUT || kind === BULK;
}

function unusableTime(): WireError {
  return new WireError('malformed', 'the time of a frame is not usable');
}

function outputLength(): WireError {
  return new WireError('malformed', 'a frame has no output, or too much');
}
