import { createSecureServer } from 'node:http2';
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { listenOn } from '../src/listen.ts';
import type { HttpRequest, HttpResponse } from './exchange.ts';
import type { ApiUpgrade } from './upgrade.ts';

/** The TLS listener of the cluster, which serves HTTP/2 and HTTP/1.1 on one port. */
export interface Front {
  readonly port: number;
  /** Closes every connection and stops listening. */
  close(): Promise<void>;
}

/** Maximum number of connections. Further connections are closed immediately. */
const MAX_CONNECTIONS = 1_000;

/** Listens on a free port of 127.0.0.1. Rejects if it cannot listen. */
export async function openFront(options: {
  readonly key: string;
  readonly cert: string;
  readonly onRequest: (request: HttpRequest, response: HttpResponse) => void;
  readonly onUpgrade: (upgrade: ApiUpgrade) => void;
}): Promise<Front> {
  const server = createSecureServer({ key: options.key, cert: options.cert, allowHTTP1: true });
  server.maxConnections = MAX_CONNECTIONS;
  const sockets = new Set<Socket>();
  const track = (socket: Socket): void => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    socket.on('error', () => undefined);
  };
  server.on('connection', track);
  server.on('secureConnection', track);
  server.on('sessionError', () => undefined);
  server.on('request', options.onRequest);
  server.on('upgrade', (request: IncomingMessage, socket: Duplex, head: Uint8Array) => {
    options.onUpgrade({ request, socket, head });
  });
  const { port } = await listenOn(server, { host: '127.0.0.1', port: 0 });
  return {
    port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => {
          resolve();
        });
        for (const socket of sockets) socket.destroy();
      }),
  };
}
