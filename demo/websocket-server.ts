import { Duplex } from 'node:stream';
import {
  createWebSocketScanner,
  encodeWebSocketFrame,
  OPCODE,
  unmaskPiece,
} from '../src/wire/websocket/frame.ts';
import type { WebSocketPiece } from '../src/wire/websocket/frame.ts';

/** A part of a data frame, unmasked. The frames of a fragmented message are not joined. */
export interface FramePart {
  readonly opcode: number;
  readonly first: boolean;
  readonly last: boolean;
  readonly bytes: Uint8Array;
}

/** The server side of a WebSocket, RFC 6455. */
export interface WebSocketConnection {
  /** Sends one frame. `done` is called after the write, or after the client has disconnected. */
  send(opcode: number, payload: Uint8Array, done?: () => void): void;
  /** Pauses and resumes reading from the client. */
  pause(): void;
  resume(): void;
  /**
   * Sends a close frame after pending frames, and closes the connection after the client's close frame or after 5 s.
   */
  close(code: number): void;
  /** Resolves when the socket is closed. */
  readonly closed: Promise<void>;
}

const CLOSE_TIMEOUT_MS = 5_000;
const CLOSE_NORMAL = 1000;
const CLOSE_PROTOCOL_ERROR = 1002;

/**
 * Handles the WebSocket connection on `socket` after the 101 response. Responds to pings and close frames. After a
 * malformed frame, closes the connection with status 1002. `onFrame` is called for data frames. `onEnd` is called for
 * the client's close frame or the end of the socket, whichever comes first.
 */
export function serveWebSocket(
  socket: Duplex,
  handlers: { readonly onFrame: (part: FramePart) => void; readonly onEnd: () => void },
): WebSocketConnection {
  const scanner = createWebSocketScanner({ expectMask: true });
  let control: Uint8Array = new Uint8Array(0);
  let closing = false;
  let ended = false;

  const send = (opcode: number, payload: Uint8Array, done: () => void = () => undefined): void => {
    if (socket.destroyed || socket.writableEnded || (closing && opcode !== OPCODE.close)) done();
    else socket.write(encodeWebSocketFrame({ opcode, fin: true, payload }), done);
  };
  const end = (): void => {
    if (!ended) handlers.onEnd();
    ended = true;
  };
  const close = (code: number): void => {
    if (closing) return;
    send(OPCODE.close, Uint8Array.of(code >> 8, code & 0xff));
    closing = true;
    // Reading resumes, because the client's close frame must be read even if nothing needs the client's data any more.
    socket.resume();
    const timer = setTimeout(() => socket.destroy(), CLOSE_TIMEOUT_MS);
    socket.once('close', () => {
      clearTimeout(timer);
    });
  };
  const handleControl = (piece: WebSocketPiece): void => {
    control = Buffer.concat([piece.first ? new Uint8Array(0) : control, unmaskPiece(piece)]);
    if (!piece.last) return;
    if (piece.opcode === OPCODE.ping) send(OPCODE.pong, control);
    if (piece.opcode !== OPCODE.close) return;
    close(CLOSE_NORMAL);
    end();
    if (!socket.writableEnded) socket.end();
  };
  const handle = (piece: WebSocketPiece): void => {
    if (piece.opcode >= OPCODE.close) {
      handleControl(piece);
    } else if (!closing) {
      const { opcode, first, last } = piece;
      handlers.onFrame({ opcode, first, last, bytes: unmaskPiece(piece) });
    }
  };

  socket.on('data', (chunk: Uint8Array) => {
    try {
      for (const piece of scanner.push(chunk)) handle(piece);
    } catch {
      close(CLOSE_PROTOCOL_ERROR);
      if (!socket.writableEnded) socket.end();
    }
  });
  socket.on('end', () => {
    if (!socket.writableEnded) socket.end();
  });
  socket.on('error', () => undefined);
  const closed = new Promise<void>((resolve) => {
    socket.once('close', () => {
      end();
      resolve();
    });
  });
  return {
    send,
    close,
    closed,
    pause: () => {
      if (!closing) socket.pause();
    },
    resume: () => {
      socket.resume();
    },
  };
}

/**
 * Returns a byte stream without message boundaries, which is transferred in a WebSocket tunnel
 * (`SPDY/3.1+portforward.k8s.io`).
 */
export function openByteStream(socket: Duplex): Duplex {
  const tunnel = new Duplex({
    read() {
      connection.resume();
    },
    write(chunk: Uint8Array, _encoding, done) {
      connection.send(OPCODE.binary, chunk, done);
    },
    final(done) {
      connection.close(CLOSE_NORMAL);
      done();
    },
    destroy(error, done) {
      connection.close(CLOSE_NORMAL);
      done(error);
    },
  });
  const connection = serveWebSocket(socket, {
    onFrame: ({ bytes }) => {
      if (bytes.byteLength > 0 && !tunnel.destroyed && !tunnel.push(Uint8Array.from(bytes)))
        connection.pause();
    },
    onEnd: () => {
      if (!tunnel.destroyed) tunnel.push(null);
    },
  });
  void connection.closed.then(() => tunnel.destroy());
  return tunnel;
}
