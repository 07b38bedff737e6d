/**
 * Detects requests that failed because the peer closed an idle keep-alive connection at the moment when the request was
 * sent.
 */
import type { ClientRequest, IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';

/** Methods of requests that may be retried after their connection was lost. RFC 9110 §9.2.1 "safe". */
export const SAFE_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD', 'OPTIONS']);

/**
 * Time after sending a request, in milliseconds. If the connection is lost within this time, the peer probably closed
 * it before the request arrived, so the request may be retried. If the connection is lost later, the peer may have
 * processed the request.
 */
export const STALE_MS = 50;

/** Call this function when a request is sent. The returned function returns true until {@link STALE_MS} have passed. */
export function staleWindow(nowMs: () => number = () => performance.now()): () => boolean {
  const sentAtMs = nowMs();
  return () => nowMs() - sentAtMs <= STALE_MS;
}

const LOST: ReadonlySet<unknown> = new Set(['ECONNRESET', 'EPIPE']);

/**
 * Watches a request for a stale connection. Call this function before the request has a connection.
 *
 * @returns a function that returns true if an error means that the peer had already closed the connection. The error
 *   must occur before the first response byte, and within {@link STALE_MS} after the request got the connection. The
 *   request may then be retried over a new connection.
 * @param nowMs monotonic clock
 */
export function watchForStale(
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
    // if the number of received bytes is unknown, a response may have started, so the connection does not count as
    // stale
    (socket === undefined || (typeof before === 'number' && socket.bytesRead === before && isRecent()));
}

/**
 * Destroys the connection if the request is not complete in time. Use it for requests with an unread body, because
 * Node.js waits for the rest of the body and its trailers even after the response.
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
  const stop = (): void => {
    clearTimeout(timer);
    socket.off('close', stop);
    request.off('end', stop);
  };
  socket.once('close', stop);
  request.once('end', stop);
  return request;
}
