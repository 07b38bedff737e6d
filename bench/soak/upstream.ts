/** The soak's API server in its own process: small objects, watches, and shells with known output. */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { serveSession, type Session } from '../programs/exec-session.ts';
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

/** State of a shell, as the API server saw it. */
export interface ShellSent {
  readonly kind: 'shell';
  readonly shell: number;
  readonly bytes: number;
  readonly sha256: string;
  /** True after the complete output was written. */
  readonly whole: boolean;
}

export type UpstreamMessage = { readonly kind: 'listening'; readonly port: number } | ShellSent;

const plan = JSON.parse(process.argv[2] ?? '{}') as UpstreamPlan;
const post = (message: UpstreamMessage): void => void process.send?.(message);

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
server.on('upgrade', (request, socket, rest: Buffer) => {
  const url = new URL(request.url ?? '/', 'https://upstream');
  const [program, number] = url.searchParams.getAll('command');
  socket.on('error', () => socket.destroy());
  if (program !== SHELL) return void socket.destroy();
  const webSocketKey = request.headers['sec-websocket-key'] ?? '';
  serveSession(socket, { webSocketKey, rest }, (session) => runShell(session, Number(number)));
});
server.listen(0, '127.0.0.1', () =>
  post({ kind: 'listening', port: (server.address() as AddressInfo).port }),
);

function runShell(session: Session, shell: number): void {
  const { socket } = session;
  const output = shellOutput(shell);
  const hash = createHash('sha256');
  let sent = 0;
  const timer = setInterval(() => {
    if (sent < output.length) {
      const piece = output.subarray(sent, sent + PIECE_BYTES);
      sent += piece.length;
      hash.update(piece);
      socket.write(session.frame(piece));
      return;
    }
    clearInterval(timer);
    session.exit(0);
  }, PIECE_MS);
  socket.once('close', () => {
    clearInterval(timer);
    const whole = sent === output.length;
    post({ kind: 'shell', shell, bytes: sent, sha256: hash.digest('hex'), whole });
  });
}
