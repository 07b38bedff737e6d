/** The sockets of the nameserver: UDP and TCP on one port. */
import { createSocket, type RemoteInfo, type Socket as DatagramSocket } from 'node:dgram';
import { once } from 'node:events';
import { createServer, type Server, type Socket } from 'node:net';
import { listenOn, type ListenAddress } from '../listen.ts';
import { MAX_QUERY_BYTES, type QueryAnswer } from './answer.ts';

/**
 * Maximum number of concurrent TCP connections. A further connection closes the oldest connection. A normal query takes
 * only milliseconds, so the oldest connection is probably unused.
 */
const MAX_CONNECTIONS = 256;
/** The limit for one client address is the maximum divided by this number. */
const CLIENT_SHARES = 4;
/** Maximum idle time of a connection, in milliseconds. */
const IDLE_MS = 10_000;
/** Maximum size of unread responses on one connection, in bytes. */
const MAX_WAITING_BYTES = 1024 ** 2;

export type Transport = 'udp' | 'tcp';

export interface NameServerOptions extends ListenAddress {
  /** Returns the response to a message; undefined if the message must not be answered. */
  readonly answer: (message: Uint8Array, transport: Transport) => QueryAnswer | undefined;
  readonly idleMs?: number;
  readonly maxConnections?: number;
}

/** Opens both sockets. @throws Error of the OS, such as `EADDRINUSE` */
export async function openNameServer(options: NameServerOptions) {
  const sockets = new Set<Socket>();
  const { host, maxConnections = MAX_CONNECTIONS } = options;
  const tcp = createServer((socket) => {
    const own = [...sockets].filter(({ remoteAddress }) => remoteAddress === socket.remoteAddress);
    const isShareUsed = own.length >= maxConnections / CLIENT_SHARES;
    const [oldest] = isShareUsed ? own : sockets;
    if (isShareUsed || sockets.size >= maxConnections) oldest?.destroy();
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
    serveConnection(socket, options);
  });
  const { port, udp } = await openPair(tcp, options);
  udp.on('message', (message, from) => answerDatagram(udp, message, from, options));
  // If sending to one client fails, the other clients still get their responses.
  udp.on('error', () => undefined);
  return {
    address: { host, port },
    async close(): Promise<void> {
      for (const socket of sockets) socket.destroy();
      await Promise.all([
        new Promise<void>((resolve) => tcp.close(() => resolve())),
        new Promise<void>((resolve) => udp.close(() => resolve())),
      ]);
    },
  };
}

/**
 * Opens TCP and UDP on the same port. If the OS chooses the TCP port, the UDP port with this number may be in use. The
 * function then tries another port.
 */
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
  // A query with source port 0 is forged, so it gets no response.
  if (answered !== undefined && port !== 0) socket.send(answered.message, port, address, () => undefined);
}

/** Serves messages with a two-byte length prefix in the order of their arrival (RFC 7766). */
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
