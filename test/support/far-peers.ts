/**
 * Worker thread with a client and an API server, which continue while the main thread with the gateway is blocked. On
 * the command `finish`, the server writes all output and closes its socket. From then on, the kernel responds to bytes
 * from the gateway with a reset, and discards output that the gateway has not read.
 */
import { createServer as createPlainServer, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer } from 'node:tls';
import { parentPort, workerData } from 'node:worker_threads';
import { listenOn } from './listen.ts';

/** Options of the thread. */
export interface FarPeers {
  readonly script: Uint8Array;
  readonly beat: Uint8Array;
  /** Certificate of the API server; undefined: no TLS. */
  readonly tls?: { readonly key: string; readonly cert: string };
}

/** Commands to the thread. `finish`: the server writes all output and closes. `beat`: the client sends a heartbeat. */
export type FarOrder = 'finish' | 'beat';

/**
 * Reports of the thread. `ready`: both peers listen. `finished`: the server has closed. `closed`: the client's
 * connection is closed; `received` contains all bytes that the client received.
 */
export type FarNews =
  | { readonly kind: 'ready'; readonly serverPort: number; readonly clientPort: number }
  | { readonly kind: 'finished' }
  | { readonly kind: 'closed'; readonly received: Uint8Array };

const port = parentPort;
const { script, beat, tls } = workerData as FarPeers;
const report = (news: FarNews): void => port?.postMessage(news);
const order = Promise.withResolvers<void>();

async function listen(server: Server): Promise<number> {
  return await listenOn(server);
}

async function finish(socket: Socket): Promise<void> {
  socket.on('error', () => {});
  socket.resume();
  await order.promise;
  // waits until the kernel has all bytes, and only then closes the socket
  await new Promise<void>((written) => socket.end(script, () => written()));
  socket.destroy();
  report({ kind: 'finished' });
}

function read(socket: Socket): void {
  const received: Buffer[] = [];
  socket.on('error', () => {});
  socket.on('data', (chunk: Buffer) => received.push(chunk));
  socket.once('close', () => report({ kind: 'closed', received: new Uint8Array(Buffer.concat(received)) }));
  port?.on('message', (message: FarOrder) => {
    if (message === 'beat' && socket.writable) socket.write(beat);
  });
}

port?.on('message', (message: FarOrder) => {
  if (message === 'finish') order.resolve();
});
const server =
  tls === undefined
    ? createPlainServer((socket) => void finish(socket))
    : createTlsServer(tls, (socket) => void finish(socket));
const client = createPlainServer((socket) => {
  socket.setNoDelay(true);
  read(socket);
});
report({ kind: 'ready', serverPort: await listen(server), clientPort: await listen(client) });
