/**
 * Where connections come from: TCP, then perhaps a PROXY header, then TLS, then the socket is handed over decrypted with
 * what was negotiated and who is at the far end. Nothing here knows HTTP.
 *
 * The accept loop never waits: every connection goes through its handshake on its own, under a deadline. Connections that
 * have not been handed over yet are bounded; when there are too many, the one that has been waiting longest is closed,
 * since an honest client is through in milliseconds.
 *
 * HTTP/1.1 sockets allow half-open: a client may end its side and still be answered, so whoever takes one over must end it
 * too. That is not only good manners: a reset right after the handshake arrives as an `end` and nothing more.
 */
import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { errorText, TailcastError } from '../errors.ts';
import { listenOn } from '../listen.ts';
import type { Logger } from '../observe/logger.ts';
import type { CertificateSource } from './certificates.ts';
import type { Peer } from './identity.ts';
import { createReception, type Alpn } from './reception.ts';

/** Takes a connection over, together with the duty to handle its errors and to end it. */
export type ConnectionHandler = (socket: Socket, alpn: Alpn, peer: Peer) => void;

interface CommonOptions {
  readonly host: string;
  /** 0 picks a free one. */
  readonly port: number;
  /**
   * `require`: every connection must begin with a PROXY header (v1 or v2), which names the peer. Headers are believed
   * from this machine and from `trustedProxies` only; others are turned away.
   */
  readonly proxyProtocol: 'off' | 'require';
  /** IP addresses, besides loopback, whose PROXY headers are believed. */
  readonly trustedProxies?: readonly string[];
  readonly log: Logger;
  /** From accept to the end of the PROXY header. */
  readonly headerTimeoutMs?: number;
  /** From there to the end of the TLS handshake. */
  readonly handshakeTimeoutMs?: number;
  /** Connections not handed over yet; above, the oldest of them is closed. */
  readonly maxHalfOpen?: number;
  /** All connections; above, new ones are closed at once. */
  readonly maxConnections?: number;
}

/** `none` is for a listener behind something that terminates TLS itself. */
export type TailnetListenerOptions = CommonOptions &
  ({ readonly tls?: 'terminate'; readonly certificates: CertificateSource } | { readonly tls: 'none' });

export interface TailnetListener {
  readonly address: AddressInfo;
  /** Connections that come before a handler is set are closed. */
  onConnection(handler: ConnectionHandler): void;
  /** Handed over and not closed yet. */
  readonly openConnections: number;
  /** In a handshake. */
  readonly halfOpenConnections: number;
  /**
   * Accepts no more; those in a handshake may finish it, for a moment. Resolves when every socket handed over has been
   * closed by its owner.
   * @param signal when it aborts, the sockets still open are destroyed
   */
  close(signal?: AbortSignal): Promise<void>;
}

const KEEP_ALIVE_MS = 30_000;
/** What a handshake gets that is under way when the listener closes. */
const CLOSING_HANDSHAKE_MS = 2000;
const PEER = Symbol('tailcast.peer');

/**
 * Listens before it resolves.
 * @throws Error as `net.Server.listen` does, e.g. `EADDRINUSE`
 */
export async function createTailnetListener(options: TailnetListenerOptions): Promise<TailnetListener> {
  const { log } = options;
  const open = new Set<Socket>();
  let handler: ConnectionHandler | undefined;
  const reception = createReception({
    proxyProtocol: options.proxyProtocol,
    trustedProxies: options.trustedProxies ?? [],
    certificates: options.tls === 'none' ? undefined : options.certificates,
    log,
    headerTimeoutMs: options.headerTimeoutMs ?? 10_000,
    handshakeTimeoutMs: options.handshakeTimeoutMs ?? 10_000,
    maxHalfOpen: options.maxHalfOpen ?? 1024,
    handOver(socket, alpn, peer) {
      if (handler === undefined || socket.destroyed) {
        socket.destroy();
        return;
      }
      open.add(socket);
      socket.once('close', () => open.delete(socket));
      // The new owner listens as well; this keeps an error that comes before from ending the process.
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
    onConnection(next) {
      handler = next;
    },
    get openConnections() {
      return open.size;
    },
    get halfOpenConnections() {
      return reception.halfOpen.size;
    },
    close: (signal) => closeListener(server, { open, halfOpen: reception.halfOpen }, signal),
  };
}

/** The far end of a socket that a listener handed over; also of the socket an HTTP/2 session shows. */
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
  sockets: { readonly open: ReadonlySet<Socket>; readonly halfOpen: ReadonlySet<Socket> },
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
  // The server counts TCP connections; the TLS sockets on top of them close a moment later.
  for (const socket of sockets.open) await new Promise((resolve) => socket.once('close', resolve));
  signal?.removeEventListener('abort', destroyOpen);
}
