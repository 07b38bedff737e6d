/** The sockets of the nameserver: UDP and TCP on one port. */
import { createSocket, type RemoteInfo, type Socket as DatagramSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { listenOn, type ListenAddress } from '../listen.ts';
import { MAX_QUERY_BYTES, type QueryAnswer } from './answer.ts';

/** Connections at a time; for one more, that which has been open longest goes: an honest one is through in milliseconds. */
const MAX_CONNECTIONS = 256;
/** A connection on which nothing comes goes. */
const IDLE_MS = 10_000;
/** Bytes of answers that somebody has not read; then the connection goes. */
const MAX_WAITING_BYTES = 1024 ** 2;

export type Transport = 'udp' | 'tcp';

export interface NameServer {
  readonly address: ListenAddress;
  close(): Promise<void>;
}

export interface NameServerOptions extends ListenAddress {
  /** Undefined: there is no answer. */
  readonly answer: (message: Uint8Array, transport: Transport) => QueryAnswer | undefined;
  readonly idleMs?: number;
  readonly maxConnections?: number;
}

/** Opens both sockets. @throws a system error, e.g. `EADDRINUSE` */
export async function openNameServer(options: NameServerOptions): Promise<NameServer> {
  const sockets = new Set<Socket>();
  const { host, maxConnections = MAX_CONNECTIONS } = options;
  const tcp = createServer((socket) => {
    const [oldest] = sockets;
    if (sockets.size >= maxConnections) oldest?.destroy();
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    serveConnection(socket, options);
  });
  const { port, udp } = await openPair(tcp, options);
  udp.on('message', (message, from) => answerDatagram(udp, message, from, options));
  // What cannot be sent to one is no matter of the others.
  udp.on('error', () => undefined);
  return {
    address: { host, port },
    async close() {
      for (const socket of sockets) socket.destroy();
      await Promise.all([
        new Promise<void>((resolve) => tcp.close(() => resolve())),
        new Promise<void>((resolve) => udp.close(() => resolve())),
      ]);
    },
  };
}

/** Where the system chooses the port, it may have given it to somebody else for UDP: then another one is chosen. */
async function openPair(
  tcp: Server,
  { host, port: wanted }: ListenAddress,
): Promise<{ readonly port: number; readonly udp: DatagramSocket }> {
  for (let attempt = 1; ; attempt += 1) {
    const { port } = await listenOn(tcp, { host, port: wanted });
    const udp = createSocket({ type: host.includes(':') ? 'udp6' : 'udp4' });
    try {
      udp.bind(port, host);
      await once(udp, 'listening');
      return { port, udp };
    } catch (error) {
      udp.close();
      await new Promise<void>((resolve) => tcp.close(() => resolve()));
      if (wanted !== 0 || attempt >= 5) throw error;
    }
  }
}

function answerDatagram(
  socket: DatagramSocket,
  message: Uint8Array,
  { address, port }: RemoteInfo,
  { answer }: NameServerOptions,
): void {
  const answered = answer(message, 'udp');
  // A port that nobody can have is forged.
  if (answered !== undefined && port !== 0) socket.send(answered.message, port, address, () => undefined);
}

/** Messages with their length in two bytes before them, answered in order (RFC 7766). */
function serveConnection(socket: Socket, { answer, idleMs = IDLE_MS }: NameServerOptions): void {
  let held: Buffer = Buffer.alloc(0);
  socket.setTimeout(idleMs, () => socket.destroy());
  socket.on('error', () => socket.destroy());
  socket.on('data', (chunk: Buffer) => {
    held = held.length === 0 ? chunk : Buffer.concat([held, chunk]);
    while (held.length >= 2) {
      const length = held.readUInt16BE(0);
      if (length > MAX_QUERY_BYTES) {
        socket.destroy();
        return;
      }
      if (held.length < 2 + length) break;
      const answered = answer(held.subarray(2, 2 + length), 'tcp');
      held = held.subarray(2 + length);
      if (answered === undefined || socket.writableLength > MAX_WAITING_BYTES) {
        socket.destroy();
        return;
      }
      const head = Buffer.alloc(2);
      head.writeUInt16BE(answered.message.length);
      socket.write(Buffer.concat([head, answered.message]));
    }
  });
}
