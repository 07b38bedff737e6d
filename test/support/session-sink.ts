import type { DeliveryPolicy } from '../../src/recording/delivery-window.ts';
import { EventBatch } from '../../src/recording/event-batch.ts';
import type { RecorderUpload } from '../../src/recording/recorder-upload.ts';

type Written = Parameters<RecorderUpload['write']>[0];

/** Returns a copy of the bytes that a session wrote to its sink. */
export function bytesWritten(lines: Written): Buffer {
  if (typeof lines === 'string') return Buffer.from(lines);
  return Buffer.concat(lines instanceof Uint8Array ? [lines] : lines);
}

/** A sink in memory that records the session's output and simulates recorder states. */
export class SessionSink implements Pick<
  RecorderUpload,
  'write' | 'whenShown' | 'end' | 'leave' | 'createBatch' | 'policy'
> {
  readonly #annotations: boolean;
  readonly writes: string[] = [];
  ended = false;
  /** Reason with which the session was abandoned. */
  left: string | undefined;
  /** If set, every write waits for it. */
  wait: Promise<void> | undefined;
  policy: DeliveryPolicy = 'bestEffort';
  /** If set, every write throws it. */
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

  /** Annotations only, parsed, without the header line. */
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
