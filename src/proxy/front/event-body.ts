/** Reads the beginning of a request body for an API request event; the rest stays in the stream. */
import type { Readable } from 'node:stream';
import { TailcastError } from '../../errors.ts';

export interface CollectedBody {
  /** At least `limit` bytes unless `complete`; to be forwarded before anything else. */
  readonly chunks: readonly Buffer[];
  /** The whole body is in `chunks`, and the stream has ended. */
  readonly complete: boolean;
}

/**
 * Reads until `limit` bytes are there or the body ends, then leaves the stream paused.
 * @throws TailcastError `WIRE_MALFORMED` when the stream closes before its end
 */
export function collectBody(stream: Readable, limit: number): Promise<CollectedBody> {
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    const settle = (complete: boolean): void => {
      stream.off('data', onData);
      stream.off('end', onEnd);
      stream.off('close', onClose);
      if (!complete) stream.pause();
      resolve({ chunks, complete });
    };
    const onData = (chunk: Buffer): void => {
      chunks.push(chunk);
      size += chunk.length;
      if (size > limit) settle(false);
    };
    const onEnd = (): void => settle(true);
    const onClose = (): void => reject(new TailcastError('WIRE_MALFORMED', 'the body ended early'));
    stream.on('data', onData);
    stream.on('end', onEnd);
    stream.on('close', onClose);
  });
}
