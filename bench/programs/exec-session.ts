/** Exec sessions of a benchmark's API server, over SPDY and WebSocket, with the behaviour of a Kubernetes server. */
import { createHash } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { CHANNEL } from '../../src/wire/remotecommand/channel.ts';
import { encodeStatus } from '../../src/wire/remotecommand/exit-status.ts';
import { createSpdyParser, encodeSpdyFrame, SPDY_GOAWAY } from '../../src/wire/spdy/frame.ts';
import { createHeaderDeflater, createHeaderInflater } from '../../src/wire/spdy/headers.ts';
import {
  createWebSocketScanner,
  encodeWebSocketFrame,
  OPCODE,
  unmaskPiece,
} from '../../src/wire/websocket/frame.ts';

/** Number of streams: error, stdin, stdout, and either resize or stderr. */
const STREAMS = 4;
/** RST_STREAM status CANCEL in the draft of SPDY 3.1. */
const CANCEL = 5;
const WEBSOCKET_GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/** A session as a program in the container sees it. */
export interface Session {
  readonly socket: Duplex;
  /** Returns the frame that carries `bytes` as output. */
  frame(bytes: Uint8Array): Uint8Array;
  onInput: (bytes: Uint8Array) => void;
  /** Sends the exit status and closes the session. */
  exit(code: number): void;
}

/** Request of a session. */
export interface SessionRequest {
  /** Value of `Sec-WebSocket-Key`; empty for SPDY. */
  readonly webSocketKey: string;
  /** Bytes that followed the headers of the request. */
  readonly rest: Buffer;
}

/**
 * Accepts the upgrade, and calls `begin` when the client has opened its streams: error, stdin, stdout, and stderr or
 * resize.
 */
export function serveSession(
  socket: Duplex,
  request: SessionRequest,
  begin: (session: Session) => void,
): void {
  if (request.webSocketKey === '') serveSpdy(socket, request.rest, begin);
  else serveWebSocket(socket, request, begin);
}

function serveSpdy(socket: Duplex, rest: Buffer, begin: (session: Session) => void): void {
  const parser = createSpdyParser();
  const headers = createHeaderInflater();
  const deflater = createHeaderDeflater();
  const ids = new Map<string, number>();
  const data = (role: string, payload: Uint8Array, fin: boolean): Uint8Array =>
    encodeSpdyFrame({ kind: 'data', streamId: ids.get(role) ?? 0, fin, payload });
  const session: Session = {
    socket,
    frame: (bytes) => data('stdout', bytes, false),
    onInput: () => {},
    exit(code) {
      socket.write(data('error', statusOf(code), false));
      // a Kubernetes server does not end streams: it resets all of them, sends GOAWAY and closes the connection
      for (const streamId of ids.values())
        socket.write(encodeSpdyFrame({ kind: 'rstStream', streamId, status: CANCEL }));
      socket.end(encodeSpdyFrame({ kind: 'goaway', lastStreamId: 0, status: SPDY_GOAWAY.ok }));
    },
  };
  socket.write(
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: ' +
      'v4.channel.k8s.io\r\n\r\n',
  );
  const take = (chunk: Buffer): void => {
    for (const event of parser.push(chunk)) {
      if (event.kind === 'synStream') {
        ids.set(headers.decode(event.block).get('streamtype') ?? '', event.streamId);
        socket.write(
          encodeSpdyFrame({
            kind: 'synReply',
            streamId: event.streamId,
            fin: false,
            block: deflater.encode([]),
          }),
        );
        if (ids.size === STREAMS) begin(session);
      } else if (event.kind === 'data' && event.streamId === ids.get('stdin') && event.payload.length > 0) {
        session.onInput(event.payload.slice());
      }
    }
  };
  socket.on('data', take);
  if (rest.length > 0) take(rest);
}

function serveWebSocket(
  socket: Duplex,
  { webSocketKey, rest }: SessionRequest,
  begin: (session: Session) => void,
): void {
  const scanner = createWebSocketScanner({ expectMask: true });
  const frame = (channel: number, payload: Uint8Array): Uint8Array =>
    encodeWebSocketFrame({
      opcode: OPCODE.binary,
      fin: true,
      payload: Buffer.concat([Uint8Array.of(channel), payload]),
    });
  const session: Session = {
    socket,
    frame: (bytes) => frame(CHANNEL.stdout, bytes),
    onInput: () => {},
    exit(code) {
      socket.write(frame(CHANNEL.error, statusOf(code)));
      socket.write(
        encodeWebSocketFrame({ opcode: OPCODE.close, fin: true, payload: Uint8Array.of(0x03, 0xe8) }),
      );
    },
  };
  const accept = createHash('sha1').update(`${webSocketKey}${WEBSOCKET_GUID}`).digest('base64');
  socket.write(
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ' +
      `${accept}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n`,
  );
  let channel = -1;
  const take = (chunk: Buffer): void => {
    for (const piece of scanner.push(chunk)) {
      if (piece.opcode >= OPCODE.close) continue;
      let bytes = unmaskPiece(piece);
      if (piece.first && bytes.length > 0) {
        channel = bytes[0] ?? -1;
        bytes = bytes.subarray(1);
      }
      if (channel === CHANNEL.stdin && bytes.length > 0) session.onInput(bytes.slice());
    }
  };
  socket.on('data', take);
  begin(session);
  if (rest.length > 0) take(rest);
}

function statusOf(code: number): Uint8Array {
  return encodeStatus(code === 0 ? { kind: 'success' } : { kind: 'exit', code }, 4);
}
