/** HTTP/2 sessions of a server that are closed when they are idle. */
import type { Http2Server, ServerHttp2Session } from 'node:http2';
import type { Socket } from 'node:net';
import { createDeadline, destroyAfter } from './deadline.ts';

/** Time for the client to close its side of an idle connection, in milliseconds. */
const LINGER_MS = 1000;

/**
 * Passes a connection to a server. Closes the HTTP/2 session when it has had no open stream for `idleMs`.
 * @param onSession called with the HTTP/2 session
 */
export function acceptHttp2(
  server: Http2Server,
  socket: Socket,
  idleMs: number,
  onSession?: (session: ServerHttp2Session) => void,
): void {
  const adopt = (session: ServerHttp2Session): void => {
    closeWhenIdle(session, socket, idleMs);
    onSession?.(session);
  };
  // the `session` event comes before `emit` returns
  server.once('session', adopt);
  server.emit('connection', socket);
  server.off('session', adopt);
}

/**
 * An HTTP/2 session with pings but without streams counts as idle. The client may never close its side, so the
 * connection is destroyed a second later.
 */
function closeWhenIdle(session: ServerHttp2Session, socket: Socket, idleMs: number): void {
  let streams = 0;
  const idle = createDeadline(idleMs, () => {
    if (streams > 0) return;
    session.close();
    destroyAfter(socket, LINGER_MS);
  });
  session.on('stream', (stream) => {
    streams += 1;
    stream.once('close', () => {
      streams -= 1;
      idle.extend();
    });
  });
  session.once('close', idle.clear);
}
