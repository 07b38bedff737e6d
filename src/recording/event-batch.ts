/** Batch of events for one write of an upload, encoded as frames or as asciicast lines. */
import { isUtf8 } from 'node:buffer';
import { encodeCastEvent, formatResize } from '../wire/asciicast/event.ts';
import { encodeAnnotation, type Annotation } from '../wire/recorder-api/annotation.ts';
import { LineBatch } from '../wire/recorder-api/line-batch.ts';
import { FrameBatch, type FrameForm } from '../wire/recorder-api/upload-frame.ts';
import type { TerminalSize } from '../wire/remotecommand/resize.ts';
import type { RecorderConnection } from './recorder-connection.ts';

export class EventBatch {
  /** True if the recorder supports annotations. The recording then contains the exact bytes of the output. */
  readonly annotations: boolean;
  readonly #encoder: Pick<LineBatch, 'length' | 'text' | 'output' | 'takePieces'>;

  constructor({ frames, annotations }: Pick<RecorderConnection, 'frames' | 'annotations'>) {
    this.#encoder = frames ? new FrameBatch() : new LineBatch(isUtf8);
    this.annotations = annotations;
  }

  get length(): number {
    return this.#encoder.length;
  }

  /** Adds complete lines. */
  lines(lines: string): void {
    this.#encoder.text(lines);
  }

  /** Adds an annotation. Has no effect if the recorder does not support annotations. */
  annotate(annotation: Annotation): void {
    if (this.annotations) this.#encoder.text(encodeAnnotation(annotation));
  }

  resize(seconds: number, size: TerminalSize): void {
    this.#encoder.text(encodeCastEvent(seconds, 'r', formatResize(size)));
  }

  /**
   * Adds an output event. `bytes` must not change until the batch is taken. If the recorder does not support
   * annotations, the form is always `text`.
   */
  output(seconds: number, bytes: Uint8Array, form: FrameForm): void {
    this.#encoder.output(seconds, bytes, this.annotations ? form : 'text');
  }

  /** Returns all events and empties the batch. The result is valid until the next addition. */
  takePieces(): readonly Uint8Array[] {
    return this.#encoder.takePieces();
  }
}
