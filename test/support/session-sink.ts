import type { DeliveryPolicy } from '../../src/recording/delivery-window.ts';
import { EventBatch } from '../../src/recording/event-batch.ts';
import type { RecorderUpload } from '../../src/recording/recorder-upload.ts';

type Written = Parameters<RecorderUpload['write']>[0];

/** Returns a copy of the bytes that a session wrote to its sink. */
export function bytesWritten(lines: Written): Buffer {
  if (typeof lines === 'string') return Buffer.from(lines);
  return Buffer.concat(lines instanceof Uint8Array ? [lines] : lines);
}

/** An upload in memory: it stores the session's output, and simulates the states of a recorder. */
export class SessionSink implements Pick<
  RecorderUpload,
  'write' | 'whenShown' | 'end' | 'leave' | 'createBatch' | 'policy'
> {
  readonly #annotations: boolean;
  readonly writes: string[] = [];
  ended = false;
  /** Reason that the session gave when it abandoned the upload. */
  left: string | undefined;
  /** If set, every write waits for this promise. */
  wait: Promise<void> | undefined;
  policy: DeliveryPolicy = 'bestEffort';
  /** If set, every write throws this error. */
  error: Error | undefined;

  constructor(annotations = true) {
    this.#annotations = annotations;
  }

  createBatch(): EventBatch {
    return new EventBatch({ frames: false, annotations: this.#annotations });
  }

  write(lines: Written): void | Promise<void> {
    if (this.error !== undefined) throw this.error;
    this.writes.push(bytesWritten(lines).toString());
    return this.wait;
  }

  whenShown(): void | Promise<void> {
    return this.wait;
  }

  async end(): Promise<'confirmed'> {
    this.ended = true;
    return 'confirmed';
  }

  leave(lines: Exclude<Written, string>): void {
    this.left = bytesWritten(lines).toString();
  }

  get lines(): string[] {
    return this.writes.join('').split('\n').slice(0, -1);
  }

  /** Events only, parsed. */
  get events(): unknown[] {
    return this.lines.filter((line) => line.startsWith('[')).map((line) => JSON.parse(line) as unknown);
  }

  /** Parsed annotations, without the header line. */
  get annotationLines(): Record<string, unknown>[] {
    return this.lines
      .slice(1)
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  }

  get header(): Record<string, unknown> | undefined {
    const [first] = this.lines;
    return first === undefined ? undefined : (JSON.parse(first) as Record<string, unknown>);
  }
}
