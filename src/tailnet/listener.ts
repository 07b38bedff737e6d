/**
 * Accepts TCP connections, reads an optional PROXY header, and finishes the TLS handshake. Then passes the decrypted
 * socket, its ALPN protocol and its peer to a handler. This module does not parse HTTP.
 *
 * The accept loop never waits: each connection has its own handshake with a deadline. The number of unfinished
 * handshakes is limited. Above the limit, a new connection closes the oldest unfinished handshake of the address that
 * has the most of them. This rarely affects ordinary clients, which finish a handshake within milliseconds.
 *
 * HTTP/1.1 sockets are half-open: a client may end its side and still get a response. The owner of a socket must
 * therefore end it. A reset by the client directly after the handshake is also reported only as an `end` event.
 */
import { createServer, type Server, type Socket } from 'node:net';
import { errorText, TailcastError } from '../errors.ts';
import { listenOn, type ListenAddress } from '../listen.ts';
import type { CertificateSource } from './certificates.ts';
import type { Peer } from './identity.ts';
import { createReception, type Alpn, type ReceptionOptions } from './reception.ts';

/** Takes over a connection. The handler must end the connection and handle its errors. */
export type ConnectionHandler = (socket: Socket, alpn: Alpn, peer: Peer) => void;

interface CommonOptions
  extends
    ListenAddress,
    Pick<ReceptionOptions, 'proxyProtocol' | 'log' | 'withEntry' | 'cluster'>,
    Partial<Pick<ReceptionOptions, 'headerTimeoutMs' | 'handshakeTimeoutMs' | 'maxHalfOpen'>> {
  /** Maximum number of connections. A further connection is closed immediately. */
  readonly maxConnections?: number;
}

/** Options of a listener. `tls: 'none'` is for a listener behind a TLS terminator. */
export type TailnetListenerOptions = CommonOptions &
  ({ readonly tls?: 'terminate'; readonly certificates: CertificateSource } | { readonly tls: 'none' });

export type TailnetListener = Awaited<ReturnType<typeof createTailnetListener>>;

const KEEP_ALIVE_MS = 30_000;
/** Grace period for handshakes in progress when the listener closes, in milliseconds. */
const CLOSING_HANDSHAKE_MS = 2000;
const PEER = Symbol('tailcast.peer');

/**
 * Creates a listener. The port is open when the promise resolves.
 * @throws Error of `net.Server.listen`, such as `EADDRINUSE`
 */
export async function createTailnetListener(options: TailnetListenerOptions) {
  const { log } = options;
  const open = new Set<Socket>();
  let handler: ConnectionHandler | undefined;
  const reception = createReception({
    proxyProtocol: options.proxyProtocol,
    certificates: options.tls === 'none' ? undefined : options.certificates,
    log,
    headerTimeoutMs: options.headerTimeoutMs ?? 10_000,
    handshakeTimeoutMs: options.handshakeTimeoutMs ?? 10_000,
    maxHalfOpen: options.maxHalfOpen ?? 1024,
    withEntry: options.withEntry ?? false,
    cluster: options.cluster,
    handOver(socket, alpn, peer) {
      if (handler === undefined || socket.destroyed) {
        socket.destroy();
        return;
      }
      open.add(socket);
      socket.once('close', () => open.delete(socket));
      // Without an `error` listener, an error would end the process. The listener is therefore added before the handler
      // gets the socket.
      socket.on('error', (error) => log.debug({ error: errorText(error) }, 'connection error'));
      Object.defineProperty(socket, PEER, { value: peer });
      handler(socket, alpn, peer);
    },
  });
  const server = createServer(
    { noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEP_ALIVE_MS },
    reception.receive,
  );
  server.maxConnections = options.maxConnections ?? 20_000;
  server.on('drop', () => log.warn({ max: server.maxConnections }, 'too many connections'));
  const { host, port } = options;
  const address = await listenOn(server, { host, port, backlog: 1024 });
  server.on('error', (error) => log.error({ error: errorText(error) }, 'listener failed'));
  return {
    address,
    /** Sets the handler. Connections that arrive before this call are closed. */
    onConnection(next: ConnectionHandler): void {
      handler = next;
    },
    /** Number of open connections that were passed to the handler. */
    get openConnections(): number {
      return open.size;
    },
    /** Number of unfinished TLS handshakes. */
    get halfOpenConnections(): number {
      return reception.halfOpen.size;
    },
    /**
     * Stops accepting connections. Handshakes in progress may finish within a grace period. Resolves when the
     * handler's sockets are closed.
     * @param signal if it aborts, the listener destroys its open sockets
     */
    close: (signal?: AbortSignal): Promise<void> =>
      closeListener(server, { open, halfOpen: reception.halfOpen }, signal),
  };
}

/**
 * Returns the peer of a socket that was passed to the handler. Also accepts the socket of an HTTP/2 session.
 */
export function peerOf(socket: object): Peer {
  const peer: unknown = Reflect.get(socket, PEER);
  if (isPeer(peer)) return peer;
  throw new TailcastError('INTERNAL', 'the socket does not come from a tailnet listener');
}

function isPeer(value: unknown): value is Peer {
  return typeof value === 'object' && value !== null && 'source' in value;
}

async function closeListener(
  server: Server,
  sockets: { readonly open: ReadonlySet<Socket>; readonly halfOpen: Iterable<Socket> },
  signal: AbortSignal | undefined,
): Promise<void> {
  const destroyOpen = (): void => {
    for (const socket of sockets.halfOpen) socket.destroy();
    for (const socket of sockets.open) socket.destroy();
  };
  const closed = new Promise<void>((resolve) => {
    server.close(() => resolve());
  });
  const destroyHalfOpen = (): void => {
    for (const socket of sockets.halfOpen) socket.destroy();
  };
  const timer = setTimeout(destroyHalfOpen, CLOSING_HANDSHAKE_MS);
  signal?.addEventListener('abort', destroyOpen, { once: true });
  if (signal?.aborted === true) destroyOpen();
  await closed;
  clearTimeout(timer);
  // Also wait for the TLS sockets: the server waits only for its TCP connections, which close slightly earlier.
  for (const socket of sockets.open) await new Promise((resolve) => socket.once('close', resolve));
  signal?.removeEventListener('abort', destroyOpen);
}
