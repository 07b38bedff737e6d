/**
 * A recorder double for the portal of a gateway. The double stores the head of every request, and sends configured
 * responses. By default, it accepts the viewer that the gateway names. The double shares no code with the recorder.
 */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { Duplex } from 'node:stream';
import { listenOn } from './listen.ts';

export interface SpiedRequest {
  readonly method: string;
  readonly url: string;
  /** Headers in their order and spelling on the wire. */
  readonly headers: readonly (readonly [name: string, value: string])[];
  /** Resolves when the connection of this request is closed. */
  readonly gone: Promise<void>;
}

export interface RecorderSpy {
  readonly address: string;
  readonly requests: SpiedRequest[];
  /** Open sockets of live views. */
  readonly live: Set<Duplex>;
  /** True if the recorder accepts the viewer in the gateway's request. */
  trusting: boolean;
  /** Sends the response to a request. Default: an empty list. */
  script: ((request: IncomingMessage, response: ServerResponse) => void) | undefined;
  /** Error status for WebSocket requests; undefined: accept them. */
  liveStatus: number | undefined;
  /** Response to the handshake of a WebSocket; `never`: no response. */
  handshake: string | undefined;
  /** Resolves when `test` returns true. Calls `test` again after every event. */
  until(test: () => boolean): Promise<void>;
  close(): Promise<void>;
}

export const ACCEPTED = 'x-tailcast-viewer-accepted';

export async function startRecorderSpy(): Promise<RecorderSpy> {
  const waiters = new Set<() => void>();
  const notify = (): void => {
    for (const wake of waiters) wake();
  };
  const spy: RecorderSpy = {
    get address() {
      return `127.0.0.1:${(server.address() as AddressInfo).port}`;
    },
    requests: [],
    live: new Set(),
    trusting: true,
    script: undefined,
    liveStatus: undefined,
    handshake: undefined,
    until(test) {
      return new Promise((resolve) => {
        const look = (): void => {
          if (!test()) return;
          waiters.delete(look);
          resolve();
        };
        waiters.add(look);
        look();
      });
    },
    async close() {
      for (const socket of spy.live) socket.destroy();
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
  const keep = (request: IncomingMessage): void => {
    const { rawHeaders, method = '', url = '' } = request;
    const headers = rawHeaders.flatMap((name, index) =>
      index % 2 === 0 ? [[name, rawHeaders[index + 1] ?? ''] as const] : [],
    );
    const gone = new Promise<void>((resolve) => request.socket.once('close', () => resolve())).then(notify);
    spy.requests.push({ method, url, headers, gone });
    notify();
  };
  const accepted = (request: IncomingMessage): string | undefined => {
    const id = request.headers['x-tailcast-viewer-node-id'];
    return spy.trusting && typeof id === 'string' ? id : undefined;
  };
  const server = createServer((request, response) => {
    keep(request);
    const id = accepted(request);
    if (id !== undefined) response.setHeader(ACCEPTED, id);
    if (spy.script !== undefined) return spy.script(request, response);
    const body = '{"recordings":[]}';
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length });
    response.end(body);
  });
  server.on('upgrade', (request: IncomingMessage, socket: Duplex) => {
    keep(request);
    socket.on('error', () => {});
    // a socket that is not read does not emit `end`
    socket.on('data', () => {});
    socket.on('end', () => socket.end());
    if (spy.liveStatus !== undefined) {
      socket.end(`HTTP/1.1 ${spy.liveStatus} No\r\nConnection: close\r\nContent-Length: 0\r\n\r\n`);
      return;
    }
    spy.live.add(socket);
    socket.once('close', () => {
      spy.live.delete(socket);
      notify();
    });
    if (spy.handshake === 'never') return notify();
    const key = `${request.headers['sec-websocket-key'] ?? ''}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`;
    const id = accepted(request);
    const lines = [
      'HTTP/1.1 101 Switching Protocols',
      'Connection: Upgrade',
      'Upgrade: websocket',
      `Sec-WebSocket-Accept: ${spy.handshake ?? createHash('sha1').update(key).digest('base64')}`,
      'Set-Cookie: of=the-recorder',
      ...(request.headers['sec-websocket-protocol'] === undefined
        ? []
        : ['Sec-WebSocket-Protocol: v2.asciicast']),
      ...(id === undefined ? [] : [`${ACCEPTED}: ${id}`]),
    ];
    socket.write(`${lines.join('\r\n')}\r\n\r\n`);
    notify();
  });
  await listenOn(server);
  return spy;
}
