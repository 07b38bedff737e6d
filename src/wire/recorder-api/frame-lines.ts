/**
 * The lines of a recording from its frames: at the recorder, and at a gateway whose session goes on at a recorder that takes lines.
 *
 * ```
 *   frames │ frame │ frame        │ frame │
 *   lines  │ line │ line line     │ line │        places: where both are whole
 * ```
 *
 * A place names the same moment of a recording in both. Whoever knows a place can go on from it with nothing else: frames do not
 * depend on each other. So a recorder keeps no place; it says in acknowledgements which one is durable, and the gateway brings it
 * along where it goes on.
 */
import { LineBatch, type IsUtf8 } from './line-batch.ts';
import { FrameReader, type FrameVisitor } from './upload-frame.ts';

/** Bytes of the recording before a moment of it. */
export interface FramePlace {
  readonly lines: number;
  readonly frames: number;
}

export class FrameLines {
  readonly #reader = new FrameReader();
  readonly #batch: LineBatch;
  readonly #visitor: FrameVisitor;
  /** Ends of pushes, as far as frames are whole there, that have not been reached yet. */
  #places: FramePlace[] = [];
  #reached: FramePlace;
  #lines: number;
  #frames: number;
  #last: FramePlace;

  /** @param from where the first frame begins */
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

  /** Whether what came ends where a frame ends. */
  get isWhole(): boolean {
    return this.#reader.isWhole;
  }

  /**
   * Takes frames in pieces of any size.
   * @returns the lines they make, valid until the next call
   * @throws WireError for what are no frames; what came before them in the chunk is not returned
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

  /** The last place of which all lines are among the first `lineBytes` bytes of the recording. Never goes back. */
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
