/** Limits the memory of unsent bytes to about their size, even if the bytes were written in small pieces. */
import type { Writable } from 'node:stream';

/** Maximum size of a piece that is copied. Pieces are copied only while at least this number of bytes is unsent. */
const SMALL_BYTES = 1024;
const BLOCK_BYTES = 4096;

/** Default encoding of Node.js for text. If a write contains bytes, Node.js ignores the encoding. */
const ANY_ENCODING = 'utf8';

type Written = (error?: Error | null) => void;

/** HTTP streams of Node.js pass null or undefined if a write has no callback. */
type MaybeWritten = Written | null | undefined;

/**
 * Copies small pieces into blocks while the stream has unsent bytes. A block is written when it is full, or when an
 * earlier write is complete. Node.js needs about 200 bytes for each write. Without blocks, 64 KB of output in pieces of
 * one byte would need 13 MB while the client does not read.
 */
export function joinSmallWrites(stream: Writable): void {
  const write = stream.write.bind(stream);
  const finish = stream.end.bind(stream);
  let block: Uint8Array | undefined;
  let used = 0;
  let callbacks: Written[] = [];
  const flush = (): void => {
    if (block === undefined || used === 0) return;
    const joined = Buffer.from(block.subarray(0, used));
    const written = callbacks;
    used = 0;
    callbacks = [];
    write(joined, ANY_ENCODING, (error) => {
      for (const call of written) call(error);
      flush();
    });
  };
  const join = (chunk: Uint8Array, done: MaybeWritten): boolean => {
    if (used + chunk.length > BLOCK_BYTES) flush();
    block ??= new Uint8Array(BLOCK_BYTES);
    block.set(chunk, used);
    used += chunk.length;
    if (typeof done === 'function') callbacks.push(done);
    return !stream.writableNeedDrain;
  };
  stream.write = (chunk: unknown, second?: BufferEncoding | MaybeWritten, third?: MaybeWritten): boolean => {
    const done = typeof second === 'function' ? second : third;
    const isJoined =
      chunk instanceof Uint8Array &&
      chunk.length <= SMALL_BYTES &&
      stream.writableLength >= SMALL_BYTES &&
      !stream.writableEnded &&
      !stream.destroyed;
    if (isJoined) return join(chunk, done);
    flush();
    const encoding = typeof second === 'string' ? second : ANY_ENCODING;
    if (typeof done !== 'function') return write(chunk, encoding, flush);
    return write(chunk, encoding, (error) => {
      done(error);
      flush();
    });
  };
  stream.end = (...args: unknown[]) => {
    flush();
    Reflect.apply(finish, stream, args);
    return stream;
  };
}
