/** The soak's API server, a process of its own: small objects, watches, and shells whose output is known. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { encodeWebSocketFrame, OPCODE } from '../../src/wire/websocket/frame.ts';
import {
  EVENT_MS,
  PIECE_BYTES,
  PIECE_MS,
  SHELL,
  SMALL_BODY,
  SMALL_PATH,
  shellOutput,
  watchEvent,
} from './content.ts';

export interface UpstreamPlan {
  readonly certificate: string;
  readonly key: string;
}

/** What a shell was seen to do. */
export interface ShellSent {
  readonly kind: 'shell';
  readonly shell: number;
  readonly bytes: number;
  readonly sha256: string;
  /** All of it was written. */
  readonly whole: boolean;
}

export type UpstreamMessage = { readonly kind: 'listening'; readonly port: number } | ShellSent;

const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11';
const SUCCESS = Buffer.from('{"metadata":{},"status":"Success"}');

const plan = JSON.parse(process.argv[2] ?? '{}') as UpstreamPlan;
const tell = (message: UpstreamMessage): void => void process.send?.(message);

const server = createServer(
  { cert: readFileSync(plan.certificate), key: readFileSync(plan.key), keepAliveTimeout: 120_000 },
  (request, response) => {
    const { pathname, searchParams } = new URL(request.url ?? '/', 'https://upstream');
    response.on('error', () => response.destroy());
    if (pathname === SMALL_PATH) {
      response.writeHead(200, {
        'content-type': 'application/json',
        'content-length': SMALL_BODY.length,
      });
      response.end(SMALL_BODY);
    } else if (searchParams.get('watch') === 'true') {
      response.writeHead(200, { 'content-type': 'application/json' });
      let number = 0;
      const next = (): void => {
        number += 1;
        response.write(watchEvent(number));
      };
      next();
      const timer = setInterval(next, EVENT_MS);
      response.once('close', () => clearInterval(timer));
    } else {
      const body = JSON.stringify({ kind: 'Status', apiVersion: 'v1', status: 'Failure', code: 404 });
      response.writeHead(404, { 'content-type': 'application/json' }).end(body);
    }
  },
);
server.on('upgrade', (request, socket) => {
  const url = new URL(request.url ?? '/', 'https://upstream');
  const [program, number] = url.searchParams.getAll('command');
  const key = request.headers['sec-websocket-key'] ?? '';
  socket.on('error', () => socket.destroy());
  if (program !== SHELL) return void socket.destroy();
  const accept = createHash('sha1').update(`${key}${GUID}`).digest('base64');
  socket.write(
    [
      'HTTP/1.1 101 Switching Protocols',
      'Connection: Upgrade',
      'Upgrade: websocket',
      `Sec-WebSocket-Accept: ${accept}`,
      'Sec-WebSocket-Protocol: v5.channel.k8s.io',
      '\r\n',
    ].join('\r\n'),
  );
  runShell(socket, Number(number));
});
server.listen(0, '127.0.0.1', () =>
  tell({ kind: 'listening', port: (server.address() as AddressInfo).port }),
);

function runShell(socket: Duplex, shell: number): void {
  const output = shellOutput(shell);
  const hash = createHash('sha256');
  let sent = 0;
  const message = (channel: number, data: Uint8Array): void => {
    const payload = Buffer.concat([Uint8Array.of(channel), data]);
    socket.write(encodeWebSocketFrame({ opcode: OPCODE.binary, fin: true, payload }));
  };
  const timer = setInterval(() => {
    if (sent < output.length) {
      const piece = output.subarray(sent, sent + PIECE_BYTES);
      sent += piece.length;
      hash.update(piece);
      message(1, piece);
      return;
    }
    clearInterval(timer);
    message(3, SUCCESS);
    socket.end(encodeWebSocketFrame({ opcode: OPCODE.close, fin: true, payload: Buffer.from([3, 232]) }));
  }, PIECE_MS);
  socket.resume();
  socket.once('close', () => {
    clearInterval(timer);
    const whole = sent === output.length;
    tell({ kind: 'shell', shell, bytes: sent, sha256: hash.digest('hex'), whole });
  });
}
