/** Reads the beginning of a request body for an API request event; the rest stays in the stream. */
import type { Readable } from 'node:stream';
import { asTailcastError, TailcastError } from '../../errors.ts';

export interface CollectedBody {
  /**
   * Bytes that were read. If the body is longer than `limit`, `chunks` contains more than `limit` bytes. The caller
   * forwards all chunks before the rest of the stream.
   */
  readonly chunks: readonly Buffer[];
  /** True if `chunks` contains the complete body and the stream has ended. */
  readonly complete: boolean;
}

const EMPTY = Buffer.alloc(0);
const FIRST_BYTES = 4096;

/**
 * Reads until more than `limit` bytes are available or the body ends, then leaves the stream paused. The bytes are
 * copied into one buffer, because a body of one-byte chunks would otherwise use a hundred times its size in memory.
 * @param held called before the buffer grows, with the new size of the buffer in bytes; may throw
 * @throws TailcastError `WIRE_MALFORMED` if the stream closes before its end
 */
export function collectBody(
  stream: Readable,
  limit: number,
  held: (bytes: number) => void,
): Promise<CollectedBody> {
  return new Promise((resolve, reject) => {
    let buffer = EMPTY;
    let size = 0;
    const detach = (): void => {
      stream.off('data', onData);
      stream.off('end', onEnd);
      stream.off('close', onClose);
    };
    const settle = (complete: boolean, rest: readonly Buffer[] = []): void => {
      detach();
      if (!complete) stream.pause();
      resolve({ chunks: [buffer.subarray(0, size), ...rest], complete });
    };
    const grow = (bytes: number): void => {
      const length = Math.max(bytes, Math.min(limit, Math.max(2 * buffer.length, FIRST_BYTES)));
      held(length);
      const larger = Buffer.allocUnsafeSlow(length);
      larger.set(buffer.subarray(0, size));
      buffer = larger;
    };
    const onData = (chunk: Buffer): void => {
      if (size + chunk.length > limit) return settle(false, [chunk]);
      try {
        if (size + chunk.length > buffer.length) grow(size + chunk.length);
      } catch (error) {
        detach();
        stream.pause();
        return reject(asTailcastError(error));
      }
      buffer.set(chunk, size);
      size += chunk.length;
    };
    const onEnd = (): void => settle(true);
    const onClose = (): void => reject(new TailcastError('WIRE_MALFORMED', 'the body ended early'));
    stream.on('data', onData);
    stream.on('end', onEnd);
    stream.on('close', onClose);
  });
}
