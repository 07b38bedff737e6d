/**
 * Reads all accepted connections into one shared buffer. Node.js allocates a new buffer for each read of an accepted
 * connection. Only outgoing sockets support a buffer that the caller provides (`onread`). For this reason, an outgoing
 * socket takes over the accepted connection.
 *
 * NOTE: the buffer is module state. Only one thread writes to the buffer, and its content is used only until the next
 * read.
 */
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { passedThrough } from '../../memory/stream-garbage.ts';

/**
 * Size of the buffer, in bytes. A fast sender usually has fewer pending bytes. The buffer and the results that are
 * computed from it fit into a CPU cache together.
 */
const READ_BYTES = 128 * 1024;

let memory: Buffer | undefined;

/** A connection that is read into the shared buffer. */
export interface SharedReads {
  /** The socket that now owns the connection. */
  readonly socket: Duplex;
  /** Bytes that `accepted` had already read. */
  readonly early: Uint8Array;
}

/**
 * Takes over the connection of `accepted`. After the takeover, `accepted` neither reads nor writes. Closing one socket
 * also closes the other. If `accepted` is not a connected socket, it stays unchanged, and its data events are used
 * instead.
 *
 * @param take called for each chunk. The chunk is valid only during the call. The first call is in the next turn of the
 *   event loop or later
 */
export function shareReads(accepted: Duplex, take: (piece: Uint8Array) => void): SharedReads {
  // NOTE: the handle of a socket, and its transfer to another socket, are undocumented in Node.js.
  const handle: unknown = accepted instanceof Socket ? Reflect.get(accepted, '_handle') : undefined;
  if (!(accepted instanceof Socket && handle instanceof Object && 'useUserBuffer' in handle)) {
    accepted.on('data', (chunk: Buffer) => {
      passedThrough(chunk.length);
      take(chunk);
    });
    return { socket: accepted, early: new Uint8Array(0) };
  }
  const early = readAll(accepted);
  memory ??= Buffer.allocUnsafeSlow(READ_BYTES);
  const options = {
    handle,
    allowHalfOpen: accepted.allowHalfOpen,
    onread: {
      buffer: memory,
      callback(length: number, read: Uint8Array): boolean {
        take(read.subarray(0, length));
        return true;
      },
    },
  };
  const socket: unknown = Reflect.construct(Socket, [options]);
  if (!(socket instanceof Socket)) throw new TypeError('a socket is none');
  Reflect.set(accepted, '_handle', null);
  socket.on('error', () => socket.destroy());
  socket.once('close', () => accepted.destroy());
  accepted.once('close', () => socket.destroy());
  return { socket, early };
}

/** Reads the buffered bytes of a socket. */
function readAll(socket: Socket): Uint8Array {
  const chunks: Buffer[] = [];
  for (let chunk: unknown = socket.read(); chunk instanceof Buffer; chunk = socket.read()) chunks.push(chunk);
  return Buffer.concat(chunks);
}
