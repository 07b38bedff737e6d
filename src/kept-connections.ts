/** Requests over connections that were kept: the other side may close one at the very moment a request is sent. */
import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

/** Methods of requests that may be sent again when their connection is lost. RFC 9110 §9.2.1 "safe". */
export const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

/**
 * Maximum time from sending a request to the loss of its connection, in milliseconds, for which the peer counts as having
 * closed the connection before the request arrived. Later, the peer may have worked on the request.
 */
export const STALE_MS = 50;

/** Starts at the sending of a request. Returns a function that returns true for {@link STALE_MS}. */
export function staleWindow(nowMs: () => number = () => performance.now()): () => boolean {
  const sentAtMs = nowMs();
  return () => nowMs() - sentAtMs <= STALE_MS;
}

const LOST: ReadonlySet<unknown> = new Set(['ECONNRESET', 'EPIPE']);

/**
 * To be called before the request has a connection.
 *
 * @returns whether this error of the request means that its connection was an old one that the other side had left: closed
 *   at once ({@link STALE_MS}) and before a byte came back. Then it may be sent once more, over a new one
 * @param nowMs monotonic clock
 */
export function watchForLeft(
  request: ClientRequest,
  nowMs: () => number = () => performance.now(),
): (error: unknown) => boolean {
  let socket: Socket | undefined;
  let before: number | undefined = 0;
  let isRecent = (): boolean => true;
  request.once('socket', (taken) => {
    socket = taken;
    before = taken.bytesRead;
    isRecent = staleWindow(nowMs);
  });
  return (error) =>
    request.reusedSocket &&
    error instanceof Error &&
    'code' in error &&
    LOST.has(error.code) &&
    // a stream that does not count bytes may have delivered some
    (socket === undefined || (typeof before === 'number' && socket.bytesRead === before && isRecent()));
}

/**
 * Ends a connection whose request is not complete in time. For requests whose bodies nobody reads: Node waits for the rest of a body,
 * or of its trailers, even after the response.
 *
 * @returns the request
 */
export function limitBody(request: IncomingMessage, timeoutMs: number): IncomingMessage {
  const { socket, headers } = request;
  if (headers['transfer-encoding'] === undefined && Number(headers['content-length'] ?? 0) === 0)
    return request;
  const timer = setTimeout(() => {
    if (!request.complete) socket.destroy();
  }, timeoutMs);
  socket.once('close', () => clearTimeout(timer));
  request.once('end', () => clearTimeout(timer));
  return request;
}
