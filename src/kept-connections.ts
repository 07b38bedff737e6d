/** Requests over connections that were kept: the other side may close one at the very moment a request is sent. */
import type { ClientRequest } from 'node:http';
import type { Socket } from 'node:net';

/** Methods of requests that may be sent again when their connection is lost. RFC 9110 §9.2.1 "safe". */
export const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

const LOST: ReadonlySet<unknown> = new Set(['ECONNRESET', 'EPIPE']);

/**
 * To be called before the request has a connection.
 *
 * @returns whether this error of the request means that its connection was an old one that the other side had left: closed
 *   before a byte came back. Then it may be sent once more, over a new one, if nobody minds that it is done twice
 */
export function watchForLeft(request: ClientRequest): (error: unknown) => boolean {
  let socket: Socket | undefined;
  let before = 0;
  request.once('socket', (taken) => {
    socket = taken;
    before = taken.bytesRead;
  });
  return (error) =>
    request.reusedSocket &&
    error instanceof Error &&
    'code' in error &&
    LOST.has(error.code) &&
    (socket === undefined || socket.bytesRead === before);
}
