/**
 * Joins what goes to a client in one turn of the event loop into one write. A Go server answers in records of at most 4 KB, or head and
 * body in one each; Node reads each as a piece of its own, and each was encrypted by itself, with a system call of its own.
 *
 * NOTE: module state: there is one event loop.
 */
import type { Socket } from 'node:net';

const held = new Set<Socket>();
let isEndAwaited = false;

/** Keeps what is written to the socket until `releaseWrites`, or until the turn ends of which `releaseAtTurnEnd` is told. Can be called again. */
export function holdWrites(socket: Socket): void {
  if (held.has(socket)) return;
  socket.cork();
  held.add(socket);
}

/** Lets go what is kept, now. */
export function releaseWrites(socket: Socket): void {
  if (held.delete(socket)) socket.uncork();
}

/** Lets go everything that is kept when all input that is there has been read, and before more is waited for. */
export function releaseAtTurnEnd(): void {
  if (isEndAwaited || held.size === 0) return;
  isEndAwaited = true;
  setImmediate(() => {
    isEndAwaited = false;
    for (const socket of held) releaseWrites(socket);
  });
}
