/**
 * Reads of a connection that was accepted, all into one piece of memory. Node gives each read of such a connection
 * memory of its own, which is dead a moment later; only sockets that connect can be told where to read to (`onread`).
 * So another socket takes the connection over.
 *
 * NOTE: module state: Node reads into it on the only thread there is, and what was read is only looked at until the
 * next read.
 */
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { passedThrough } from '../../memory/stream-garbage.ts';

/** As much as a sender that is quicker has waiting, mostly; it and what is made of it fit into a processor's cache. */
const READ_BYTES = 128 * 1024;

let memory: Buffer | undefined;

/** A connection that is read. */
export interface SharedReads {
  /** Has the connection from now on. */
  readonly socket: Duplex;
  /** What had been read before. */
  readonly early: Uint8Array;
}

/**
 * Takes the connection of `accepted` over: that one reads, writes and ends nothing any more, and is closed when the new
 * socket is, and the other way round. What is no socket, or has no connection any more, stays what it is and is read as
 * ever.
 *
 * @param take gets each read, valid during the call, and none before the next turn of the event loop
 */
export function shareReads(accepted: Duplex, take: (piece: Uint8Array) => void): SharedReads {
  // NOTE: where Node keeps what is behind a socket, and how it gives it to another one, is not documented
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

/** What waits in a socket. */
function readAll(socket: Socket): Uint8Array {
  const chunks: Buffer[] = [];
  for (let chunk: unknown = socket.read(); chunk instanceof Buffer; chunk = socket.read()) chunks.push(chunk);
  return Buffer.concat(chunks);
}
