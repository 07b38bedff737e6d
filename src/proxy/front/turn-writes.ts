/**
 * Joins all writes for a client in one turn of the event loop. A Go server sends records of at most 4 KB, or head
 * and body in separate records; Node reads each as a separate piece, which would be encrypted and written
 * separately.
 *
 * NOTE: module state, because there is one event loop.
 */
import type { Socket } from 'node:net';

const held = new Set<Socket>();
let isEndAwaited = false;

/**
 * Holds writes to the socket until `releaseWrites`, or until the end of the turn after `releaseAtTurnEnd`. Can be
 * called again.
 */
export function holdWrites(socket: Socket): void {
  if (held.has(socket)) return;
  socket.cork();
  held.add(socket);
}

/** Writes the held bytes now. */
export function releaseWrites(socket: Socket): void {
  if (held.delete(socket)) socket.uncork();
}

/** Writes all held bytes after the available input was read, before the event loop waits for more. */
export function releaseAtTurnEnd(): void {
  if (isEndAwaited || held.size === 0) return;
  isEndAwaited = true;
  setImmediate(() => {
    isEndAwaited = false;
    for (const socket of held) releaseWrites(socket);
  });
}
