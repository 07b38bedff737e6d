/**
 * Joins all writes to a client in one turn of the event loop. A Go server sends head and body as separate TLS records,
 * often of at most 4 KB. Node.js reads each record as a separate piece, and would otherwise encrypt and write each
 * piece separately.
 *
 * NOTE: The state is global to the module, because there is one event loop.
 */
import type { Socket } from 'node:net';

const held = new Set<Socket>();
let isEndAwaited = false;

/**
 * Holds back writes to the socket until `releaseWrites` is called, or until the end of the turn in which
 * `releaseAtTurnEnd` is called. Can be called repeatedly.
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
