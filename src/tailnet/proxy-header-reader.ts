/** Reads the PROXY header of a new connection. The bytes after the header (TLS or HTTP) stay in the socket. */
import type { Socket } from 'node:net';
import { createProxyHeaderParser, ProxyHeaderError, type ProxyHeader } from './proxy-protocol.ts';

/**
 * Calls `done` once, in the same tick in which the last byte of the header is read. The bytes after the header are then
 * in the socket again. Calls `fail` once if the header is missing or invalid, or the connection ends. The socket is not
 * in flowing mode, and its handle is unchanged, so a `TLSSocket` can take over the handle.
 */
export function readProxyHeader(
  socket: Socket,
  done: (header: ProxyHeader) => void,
  fail: (error: Error) => void,
): void {
  const parser = createProxyHeaderParser();

  function stop(): void {
    socket.off('readable', onReadable);
    socket.off('end', onEnd);
    socket.off('close', onEnd);
  }

  function onReadable(): void {
    for (let chunk: unknown = socket.read(); chunk instanceof Uint8Array; chunk = socket.read()) {
      let header: ProxyHeader | undefined;
      try {
        header = parser.push(chunk);
      } catch (error) {
        stop();
        fail(error instanceof Error ? error : new ProxyHeaderError('unreadable'));
        return;
      }
      if (header === undefined) continue;
      stop();
      if (header.rest.length > 0) socket.unshift(header.rest);
      done(header);
      return;
    }
  }

  function onEnd(): void {
    stop();
    fail(new ProxyHeaderError('the connection ended before its PROXY header'));
  }

  socket.on('readable', onReadable);
  socket.on('end', onEnd);
  socket.on('close', onEnd);
}
