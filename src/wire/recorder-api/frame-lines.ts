/**
 * Converts the frames of a recording to asciicast events.
 *
 * ```
 *   frames │ frame │ frame        │ frame │
 *   lines  │ line │ line line     │ line │        places: boundaries of frames and lines
 * ```
 *
 * A *place* is a position of the recording that is a boundary of frames and of lines. Frames are independent
 * of each other, so the conversion can start at any place. The recorder therefore does not store places: it
 * sends the durable place with each acknowledgement, and the gateway names that place when it continues the
 * upload.
 */
import { LineBatch, type IsUtf8 } from './line-batch.ts';
import { FrameReader, type FrameVisitor } from './upload-frame.ts';

/** Position of a place, as a number of bytes of lines (asciicast events) and as a number of bytes of frames. */
export interface FramePlace {
  readonly lines: number;
  readonly frames: number;
}

export class FrameLines {
  readonly #reader = new FrameReader();
  readonly #batch: LineBatch;
  readonly #visitor: FrameVisitor;
  /** Places that are not acknowledged yet: the last frame boundary of each pushed chunk. */
  #places: FramePlace[] = [];
  #reached: FramePlace;
  #lines: number;
  #frames: number;
  #last: FramePlace;

  /** @param from place of the first frame */
  constructor(from: FramePlace, isUtf8: IsUtf8) {
    const batch = new LineBatch(isUtf8);
    this.#batch = batch;
    this.#reached = from;
    this.#last = from;
    this.#lines = from.lines;
    this.#frames = from.frames;
    this.#visitor = {
      lines: (part) => batch.lines(part),
      output: (seconds, bytes, form) => batch.output(seconds, bytes, form),
      whole: (end) => (this.#last = { lines: this.#lines + batch.length, frames: this.#frames + end }),
    };
  }

  /** True at a frame boundary. */
  get isAtBoundary(): boolean {
    return this.#reader.isAtBoundary;
  }

  /** Number of bytes of the incomplete frame that are in memory. */
  get heldBytes(): number {
    return this.#reader.heldBytes;
  }

  /**
   * Converts a chunk of frames, which may begin and end anywhere.
   * @returns the events, valid until the next call
   * @throws WireError for invalid frames; earlier events of the chunk are lost
   */
  push(chunk: Uint8Array): Uint8Array {
    const before = this.#last;
    this.#reader.push(chunk, this.#visitor);
    const lines = this.#batch.take();
    this.#lines += lines.length;
    this.#frames += chunk.length;
    if (this.#last !== before) this.#places.push(this.#last);
    return lines;
  }

  /**
   * Returns the last place within the first `lineBytes` bytes of the recording. The results of successive calls never
   * decrease.
   */
  reached(lineBytes: number): FramePlace {
    let passed = 0;
    for (const place of this.#places) {
      if (place.lines > lineBytes) break;
      this.#reached = place;
      passed += 1;
    }
    if (passed > 0) this.#places.splice(0, passed);
    return this.#reached;
  }
}
