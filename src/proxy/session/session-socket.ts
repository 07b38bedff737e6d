/** The socket of an upgraded connection. */
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

const KEEP_ALIVE_MS = 30_000;

/** A connection may be silent for hours: no idle limit of the HTTP server applies, TCP looks whether the peer lives. */
export function prepareSocket(socket: Duplex): void {
  if (!(socket instanceof Socket)) return;
  socket.setTimeout(0);
  socket.setNoDelay(true);
  socket.setKeepAlive(true, KEEP_ALIVE_MS);
}
