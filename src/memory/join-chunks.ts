/** Limits the memory of a paused body to about the size of the body, even if its chunks are small. */
import type { Readable } from 'node:stream';

/** Maximum size of chunks that are copied. Larger chunks stay in their own buffers. */
const SMALL_BYTES = 1024;
const BLOCK_BYTES = 4096;

/**
 * Copies small unread chunks of a stream into blocks. Node.js needs about 200 bytes for each chunk, and HTTP/2 delivers
 * chunks to a paused stream until its window is full. Without copying, a mebibyte in chunks of one byte would need over
 * 100 MB.
 *
 * Use this function only for streams that are read by 'data' events, with `pause` and `resume`.
 */
export function joinSmallChunks(stream: Readable): void {
  const push = stream.push.bind(stream);
  let block: Buffer | undefined;
  let used = 0;
  const flush = (): void => {
    const joined = block?.subarray(0, used);
    block = undefined;
    used = 0;
    if (joined !== undefined) push(joined);
  };
  stream.push = (chunk: unknown, encoding?: BufferEncoding): boolean => {
    const isJoined =
      chunk instanceof Uint8Array &&
      chunk.length <= SMALL_BYTES &&
      stream.readableFlowing !== true &&
      stream.readableLength > 0;
    if (!isJoined) {
      flush();
      return push(chunk, encoding);
    }
    if (used + chunk.length > BLOCK_BYTES) flush();
    block ??= Buffer.allocUnsafeSlow(BLOCK_BYTES);
    block.set(chunk, used);
    used += chunk.length;
    return stream.readableLength + used < stream.readableHighWaterMark;
  };
  stream.on('resume', flush);
}
