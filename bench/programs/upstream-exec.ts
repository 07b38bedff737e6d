/** Exec sessions of the benchmark's API server: programs whose output is known, over SPDY and WebSocket. */
import { createHash } from 'node:crypto';
import type { TLSSocket } from 'node:tls';
import { createHeaderDeflater, createHeaderInflater } from '../../src/wire/spdy/headers.ts';
import { createSpdyParser, encodeSpdyFrame, SPDY_GOAWAY } from '../../src/wire/spdy/frame.ts';
import { CHANNEL } from '../../src/wire/remotecommand/channel.ts';
import { encodeStatus } from '../../src/wire/remotecommand/exit-status.ts';
import {
  createWebSocketScanner,
  encodeWebSocketFrame,
  OPCODE,
  unmaskPiece,
} from '../../src/wire/websocket/frame.ts';
import { inflateSpdyBlock } from '../../src/recording/spdy-inflate.ts';
import { BLOCK_BYTES, createBlock, type Content } from './content.ts';
import { LINES_BLOCK, LINE_BYTES, PROMPT, SCREEN, SCREEN_TIME_START } from './exec-content.ts';

/** What a Kubernetes server reads from a container at a time, and puts into one frame. */
const FRAME_BYTES = 32 * 1024;
/** error, stdin, stdout, and resize or stderr. */
const STREAMS = 4;
/** RST_STREAM status of the SPDY draft, version 3.1. */
const CANCEL = 5;
const WEBSOCKET_GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';

/** A session as a program sees it. */
interface Session {
  readonly socket: TLSSocket;
  /** The frame that carries `bytes` as output. */
  frame(bytes: Uint8Array): Uint8Array;
  onInput: (bytes: Uint8Array) => void;
  /** Says how it went and closes. */
  exit(code: number): void;
}

/** Answers the upgrade and runs the command it names. `rest`: bytes behind the request's head. */
export function serveExec(socket: TLSSocket, head: string, rest: Buffer): void {
  const [line = ''] = head.split('\r\n');
  const query = new URLSearchParams(line.slice(line.indexOf('?') + 1, line.lastIndexOf(' ')));
  const [, program = '', ...args] = query.getAll('command');
  const begin = (session: Session): void => run(session, program, args);
  if (line.startsWith('POST ')) serveSpdy(socket, rest, begin);
  else serveWebSocket(socket, head, rest, begin);
}

function run(session: Session, program: string, args: readonly string[]): void {
  switch (program) {
    case 'cat':
      return send(session, blockFrames(session, args[0] as Content), Number(args[1]) / FRAME_BYTES);
    case 'lines':
      return send(session, lineFrames(session), Number(args[0]));
    case 'redraw':
      return redraw(session, Number(args[0]), Number(args[1]));
    default:
      return shell(session);
  }
}

const blocks = new Map<string, Buffer>();

function blockFrames(session: Session, content: Content): readonly Uint8Array[] {
  const block = blocks.get(content) ?? createBlock(content);
  blocks.set(content, block);
  return Array.from({ length: BLOCK_BYTES / FRAME_BYTES }, (_, index) =>
    session.frame(block.subarray(index * FRAME_BYTES, (index + 1) * FRAME_BYTES)),
  );
}

function lineFrames(session: Session): readonly Uint8Array[] {
  return Array.from({ length: LINES_BLOCK.length / LINE_BYTES }, (_, index) =>
    session.frame(LINES_BLOCK.subarray(index * LINE_BYTES, (index + 1) * LINE_BYTES)),
  );
}

/** One write per frame, as a Kubernetes server does it, as fast as they are taken. */
function send(session: Session, frames: readonly Uint8Array[], count: number): void {
  const { socket } = session;
  let sent = 0;
  const more = (): void => {
    while (sent < count) {
      const frame = frames[sent % frames.length] ?? new Uint8Array(0);
      sent += 1;
      if (!socket.write(frame)) return;
    }
    socket.off('drain', more);
    session.exit(0);
  };
  socket.on('drain', more);
  more();
}

function redraw(session: Session, perSecond: number, count: number): void {
  const screen = Buffer.from(SCREEN);
  let drawn = 0;
  const timer = setInterval(() => {
    screen.write(String(process.hrtime.bigint()).padStart(20, '0'), SCREEN_TIME_START, 'latin1');
    session.socket.write(session.frame(screen));
    drawn += 1;
    if (drawn < count) return;
    clearInterval(timer);
    session.exit(0);
  }, 1000 / perSecond);
  session.socket.once('close', () => clearInterval(timer));
}

/** Shows a prompt and echoes what is typed, until Ctrl-D. */
function shell(session: Session): void {
  session.onInput = (bytes) => {
    if (bytes.includes(4)) session.exit(0);
    else session.socket.write(session.frame(bytes));
  };
  session.socket.write(session.frame(PROMPT));
}

function serveSpdy(socket: TLSSocket, rest: Buffer, begin: (session: Session) => void): void {
  const parser = createSpdyParser();
  const headers = createHeaderInflater(inflateSpdyBlock);
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
      // a Kubernetes server ends no stream: it resets them all, takes its leave and closes the connection
      for (const streamId of ids.values())
        socket.write(encodeSpdyFrame({ kind: 'rstStream', streamId, status: CANCEL }));
      socket.end(encodeSpdyFrame({ kind: 'goaway', lastStreamId: 0, status: SPDY_GOAWAY.ok }));
    },
  };
  socket.write(
    'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\r\n',
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
  socket: TLSSocket,
  head: string,
  rest: Buffer,
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
  const key = /\r\nsec-websocket-key: ([^\r]+)/i.exec(head)?.[1] ?? '';
  const accept = createHash('sha1').update(`${key}${WEBSOCKET_GUID}`).digest('base64');
  socket.write(
    `HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: ${accept}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n`,
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
