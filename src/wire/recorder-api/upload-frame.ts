/**
 * Frames: the content of an upload over an upgraded connection (`length-prefixed.ts`). Each frame represents
 * one or more complete lines and is independent of other frames. The recorder, and not the gateway, converts
 * frames to lines (`frame-lines.ts`).
 *
 * ```
 *   kind (u8)  length of the content (u32)  content
 *   1          complete lines: header, annotations, events that are not output
 *   2          microseconds since the start (u64), then the output of one line: 1 to 1 Mi bytes
 *   3          like 2, for output whose event contains only its length and printable text
 * ```
 *
 * Numbers are big endian. Positions in a recording count bytes of lines, so all gateways and recorders must
 * convert a frame to the same lines. A different conversion needs a new version of the protocol.
 */
import { GrowingBytes } from '../growing-bytes.ts';
import { WireError } from '../wire-error.ts';
import type { OutputForm } from './line-batch.ts';

const LINES = 1;
const OUTPUT = 2;
const BULK = 3;
const LEAD_BYTES = 5;
const TIME_BYTES = 8;
/** Maximum output in one frame, in bytes. */
export const MAX_FRAME_OUTPUT_BYTES = 1024 * 1024;
/**
 * Maximum time of an event, about 35 years. Up to this limit, converting seconds to microseconds loses no
 * precision.
 */
const MAX_MICROSECONDS = 2 ** 50;
const MICROSECONDS = 1e6;
const LINE_FEED = 0x0a;
const NO_BYTES = new Uint8Array(0);

/**
 * Maximum number of bytes of lines per byte of a frame. An output byte needs up to six bytes in the event and 4/3
 * bytes in base64. The 13 header bytes of the frame leave enough space for the other text of the lines.
 */
export const MAX_LINE_BYTES_PER_FRAME_BYTE = 8;

/** Forms of output in frames. In each form, the recorder stores the exact bytes. */
export type FrameForm = Exclude<OutputForm, 'text'>;

/**
 * Maximum size of output that is copied, in bytes. The batch refers to longer output until `take`, because copying it
 * would be slower.
 */
const MAX_COPIED_BYTES = 1024;

/** A batch of frames for the recorder. */
export class FrameBatch {
  /** All bytes of the batch except the referenced output. */
  readonly #bytes = new GrowingBytes();
  /** Pieces of referenced output, each with its position in the other bytes. */
  #borrowed: { readonly at: number; readonly bytes: Uint8Array }[] = [];
  #borrowedBytes = 0;

  get length(): number {
    return this.#bytes.length + this.#borrowedBytes;
  }

  /** Adds a frame of complete lines. */
  text(lines: string): void {
    const bytes = Buffer.from(lines, 'utf8');
    if (bytes.at(-1) !== LINE_FEED) throw new WireError('malformed', 'these are not whole lines');
    this.#lead(LINES, bytes.length);
    this.#bytes.bytes(bytes);
  }

  /**
   * Adds a frame with the output of one event. The caller must not change the bytes of the output until the batch is
   * taken.
   * @throws WireError
   */
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

  /** Returns all added bytes and empties the batch. The result is valid until the next addition. */
  take(): Uint8Array {
    const [first, ...others] = this.takePieces();
    return first === undefined || others.length === 0
      ? (first ?? NO_BYTES)
      : Buffer.concat([first, ...others]);
  }

  /** Like `take`, but returns pieces and does not copy the output. */
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

/**
 * Returns the number of bytes of complete frames at the beginning of `frames`: at most `most`, 0 if the first
 * frame is longer.
 */
export function completeFrames(frames: Uint8Array, most: number): number {
  const view = new DataView(frames.buffer, frames.byteOffset, frames.length);
  let whole = 0;
  while (whole + LEAD_BYTES <= frames.length) {
    const end = whole + LEAD_BYTES + view.getUint32(whole + 1);
    if (end > Math.min(frames.length, most)) break;
    whole = end;
  }
  return whole;
}

/** Receives the content of parsed frames, in order. */
export interface FrameVisitor {
  /** Called for each part of a frame of lines. */
  lines(part: Uint8Array): void;
  output(seconds: number, bytes: Uint8Array, form: FrameForm): void;
  /** Called when a frame is complete. @param end offset in the chunk after the frame */
  whole(end: number): void;
}

/**
 * Parses chunks of frames, which may begin and end anywhere. The visitor gets views that are valid only
 * during its call.
 */
export class FrameReader {
  readonly #lead = new Uint8Array(LEAD_BYTES + TIME_BYTES);
  readonly #view = new DataView(this.#lead.buffer);
  #leadBytes = 0;
  /** Number of missing bytes of the current frame of lines. */
  #missing = 0;
  /** Received output of an incomplete frame. */
  readonly #output = new GrowingBytes();
  #dead = false;

  /** True at a frame boundary. */
  get isAtBoundary(): boolean {
    return this.#leadBytes === 0;
  }

  /** Number of bytes of the incomplete frame that are in memory. */
  get heldBytes(): number {
    return this.#output.length;
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

  /** Returns the length of the frame header; the minimum length while the kind of the frame is unknown. */
  #needed(): number {
    return this.#leadBytes > 0 && isOutput(this.#lead[0]) ? LEAD_BYTES + TIME_BYTES : LEAD_BYTES;
  }

  /** Starts a frame with a complete header. @returns the number of content bytes */
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
