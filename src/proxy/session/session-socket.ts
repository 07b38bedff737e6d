/** The socket of an upgraded connection. */
import { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

const KEEP_ALIVE_MS = 30_000;

/** Disables the idle timeout, because a session may be silent for hours. TCP keep-alive detects a dead peer. */
export function prepareSocket(socket: Duplex): void {
  if (!(socket instanceof Socket)) return;
  socket.setTimeout(0);
  socket.setNoDelay(true);
  socket.setKeepAlive(true, KEEP_ALIVE_MS);
}
