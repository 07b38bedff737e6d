/**
 * The front: receives connections after TLS and passes each request to its handler.
 *
 *   h1 socket ─► Node.js http server ─┬─ the portal's prefix ─► portal
 *                                     ├─ Upgrade              ─► upgrade handler
 *                                     └─ the rest             ─► pump
 *   h2 socket ─► Node.js http2 server ─► streams ──► portal or pump
 *
 * Neither server listens. There is no router, because a router would parse Kubernetes paths a second time and could
 * disagree with `kube/canonical-target`. The gate rejects all other paths below `/-/` after authentication.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import {
  constants,
  Http2ServerRequest,
  Http2ServerResponse,
  type IncomingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { acceptHttp2 } from '../../async/idle-http2.ts';
import { errorText, TailcastError } from '../../errors.ts';
import { createKeyedCounter } from '../../keyed-counter.ts';
import { joinSmallWrites } from '../../memory/join-writes.ts';
import { limitBody } from '../../stale-connections.ts';
import type { Logger } from '../../observe/logger.ts';
import type { Events } from '../../observe/events.ts';
import type { Metrics } from '../../observe/metrics.ts';
import type { RecorderClient } from '../../recording/recorder-client.ts';
import type { Peer } from '../../tailnet/identity.ts';
import { drainConnections, type DrainResult } from './drain.ts';
import { adoptSession, createHttp2Server, serveStream } from './http2.ts';
import {
  createHeadRate,
  createHeadWatch,
  createUnreadStreams,
  HEAD_CHECK_MS,
  TOO_MANY_LONG_HEADS,
  type HeadWatch,
} from './http2-heads.ts';
import { clientError, PlainConnection } from './plain.ts';
import type { PumpDeps } from './pump.ts';
import { USUAL_HEAD_BYTES, type UserLimits } from '../gate/user-limits.ts';
import { RelayResponse } from './relay-response.ts';
import { headBytes, HEADER_LINE_BYTES, MAX_HEAD_BYTES, MAX_PARSED_HEAD_BYTES } from '../gate/gate.ts';
import type { UpgradeHandler } from '../session/upgrade.ts';
import type { UpstreamPool } from '../upstream/upstream-pool.ts';
import type { SessionRegistry } from '../session/session-registry.ts';

/** A service of the gateway itself, below its own path under `/-/`. */
export interface OwnService {
  /** Prefix of the raw targets of the service. */
  readonly prefix: string;
  /** Serves a request. An HTTP/2 request is an object of the compatibility API of Node.js. Must not throw. */
  request(
    request: IncomingMessage | Http2ServerRequest,
    response: ServerResponse | Http2ServerResponse,
    peer: Peer,
  ): void;
  /** Serves an upgrade request, and owns the socket from then on. Must not throw. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, peer: Peer): void;
}

export interface ProxyServerOptions {
  readonly pump: Omit<PumpDeps, 'load' | 'draining' | 'users'> & {
    readonly events: Pick<Events, 'drainStarted' | 'drainEnded'>;
  };
  readonly upgrade: UpgradeHandler;
  readonly own?: readonly OwnService[] | undefined;
  /** Interactive sessions, for which the drain waits. */
  readonly sessions?: Pick<SessionRegistry, 'size' | 'endAll'>;
  /** Late deliveries, for which the drain waits. */
  readonly late?: Pick<RecorderClient['late'], 'sessions' | 'hurry'>;
  readonly metrics: Pick<Metrics, 'connections' | 'gauge'>;
  readonly log: Logger;
  readonly limits?: Partial<ServerLimits>;
  /** Limits per user. Default: none. */
  readonly users?: UserLimits | undefined;
  /** Returns the number of connections to API servers. Default: the size of the pool. */
  readonly upstreamSize?: (() => UpstreamPool['size']) | undefined;
}

/**
 * Maximum number of client connections. The listener accepts some more connections, on which the gateway
 * rejects the requests.
 */
export const MAX_CONNECTIONS = 20_000;

const DEFAULT_LIMITS = {
  /** Timeout of the header section of a request. */
  headersTimeoutMs: 30_000,
  /** Timeout between two requests on a connection. */
  keepAliveMs: 90_000,
  /** Maximum size of the request line and the header lines together, in bytes. The gate has a smaller limit. */
  maxHeaderBytes: MAX_PARSED_HEAD_BYTES,
  /**
   * Maximum number of connections. On each further connection, the first request gets `OVERLOADED` and the connection
   * is closed.
   */
  maxConnections: MAX_CONNECTIONS,
};
export type ServerLimits = Readonly<typeof DEFAULT_LIMITS>;
/**
 * Maximum number of header lines that Node.js reports. Node.js drops further lines silently. The gate rejects requests
 * with this many lines, so no line of an admitted request is lost.
 */
const MAX_HEADERS_SEEN = MAX_HEAD_BYTES / HEADER_LINE_BYTES + 1;
export type ProxyServer = ReturnType<typeof createProxyServer>;

const MAX_SOCKET_LISTENERS = 20;
const TOO_LONG_FOR_OWN = new TailcastError('HEADERS_TOO_LARGE', 'together they are over 16 KiB');
/**
 * Maximum time for which a connection above the connection limit waits for its first request. The gateway then rejects
 * this request.
 */
const SURPLUS_MS = 5_000;
/**
 * Minimum value of the limit for concurrent requests to own services, because browsers send several requests per page.
 */
const MIN_OWN_REQUESTS = 100;
const TOO_MANY_OWN = new TailcastError('OVERLOADED', 'your address has too many open requests to the portal');
const TOO_MANY = new TailcastError('OVERLOADED', 'too many connections');
const BEHIND_ANOTHER = new TailcastError(
  'UPGRADE_REFUSED',
  'an earlier request on the connection is in progress',
);

/** Creates the front. */
export function createProxyServer(options: ProxyServerOptions) {
  const state: FrontState = { draining: false, closed: false, plain: new Set(), sessions: new Set() };
  const load = { inFlight: 0 };
  const { users } = options;
  const deps: PumpDeps = { ...options.pump, users, load, draining: () => state.draining };
  /**
   * Dependencies of connections above the connection limit: every request is rejected, and its connection is closed.
   */
  const refusing: PumpDeps = { ...deps, maxInFlight: 0, draining: () => true };
  const maxConnections = options.limits?.maxConnections ?? DEFAULT_LIMITS.maxConnections;
  const surplusMs = Math.min(SURPLUS_MS, options.limits?.headersTimeoutMs ?? SURPLUS_MS);
  let open = 0;
  const own = createOwnLoad(options.pump);
  const front = createPlainFront(options, state, own);
  const http2 = createHttp2Front({ options, state, own });
  const all = {
    get inFlight() {
      return load.inFlight + own.total;
    },
  };

  const { pool } = options.pump;
  showLoad(options);

  const closeAll = async (): Promise<void> => {
    state.draining = true;
    state.closed = true;
    for (const { socket } of state.plain) socket.destroy();
    for (const session of state.sessions) session.destroy();
    front.server.close();
    http2.close();
    pool.close();
  };
  return {
    /** Takes over a connection; can be used as `onConnection` of `tailnet/listener`. */
    serve(socket: Socket, alpn: 'h2' | 'http/1.1', peer: Peer): void {
      if (state.closed) return void socket.destroy();
      // TLS, listener, front, session and pipeline each listen for the close event. Node.js warns about a leak above
      // ten listeners.
      socket.setMaxListeners(MAX_SOCKET_LISTENERS);
      const gauge = options.metrics.connections;
      gauge.inc({ alpn });
      open += 1;
      const counted = users?.connected(peer) ?? true;
      const surplus = open > maxConnections || !counted;
      const deadline = surplus ? setTimeout(() => socket.destroy(), surplusMs) : undefined;
      socket.once('close', () => {
        clearTimeout(deadline);
        users?.disconnected(peer);
        open -= 1;
        gauge.dec({ alpn });
      });
      socket.setNoDelay(true);
      const service: Service = { deps: surplus ? refusing : deps, surplus };
      if (alpn === 'h2') http2.accept(socket, peer, service);
      else front.accept(socket, peer, service);
      if (state.draining) for (const connection of state.plain) connection.retire();
    },
    /** In-flight requests, without sessions. */
    get inFlight(): number {
      return all.inFlight;
    },
    get draining(): boolean {
      return state.draining;
    },
    /**
     * Waits for in-flight requests for at most `limitMs`, then closes everything. Must be called only once.
     * @param arriving returns the number of connections whose TLS handshake is in progress; they are still
     * served
     */
    async drain(limitMs: number, arriving?: () => number): Promise<DrainResult> {
      state.draining = true;
      const { events } = options.pump;
      events.drainStarted({ requests: all.inFlight, sessions: options.sessions?.size ?? 0, limitMs });
      const result = await drainConnections({
        ...state,
        load: all,
        interactive: options.sessions,
        late: options.late,
        arriving,
        limitMs,
      });
      events.drainEnded(result);
      await closeAll();
      return result;
    },
    /** Closes everything immediately. */
    close: closeAll,
  };
}

/** Registers gauges whose values are read at scrape time. */
function showLoad({ pump, metrics, upstreamSize }: ProxyServerOptions): void {
  const { pool, maxInFlight } = pump;
  const size = upstreamSize ?? (() => pool.size);
  const { gauge } = metrics;
  gauge('tailcast_requests_limit', 'Requests that may be served at a time.', () => maxInFlight);
  gauge('tailcast_upstream_connections', 'Connections to the API server.', () => size().total);
  gauge(
    'tailcast_upstream_connections_idle',
    'Connections to the API server that wait for a request.',
    () => size().idle,
  );
}

type StreamEvent = [
  stream: ServerHttp2Stream,
  headers: IncomingHttpHeaders,
  flags: number,
  rawHeaders: string[],
];

/** Dependencies and limit state of a connection. */
interface Service {
  readonly deps: PumpDeps;
  /** True if the connection exceeds the connection limit, so that its requests are rejected. */
  readonly surplus: boolean;
}

interface FrontState {
  draining: boolean;
  /** True after the front was closed. */
  closed: boolean;
  readonly plain: Set<PlainConnection>;
  readonly sessions: Set<ServerHttp2Session>;
}

interface PlainFront {
  readonly server: Server<typeof IncomingMessage, typeof RelayResponse>;
  accept(socket: Socket, peer: Peer, service: Service): void;
}

function createPlainServer(limits: ServerLimits): PlainFront['server'] {
  const server = createServer({
    ServerResponse: RelayResponse,
    maxHeaderSize: limits.maxHeaderBytes,
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: 0,
    keepAliveTimeout: limits.keepAliveMs,
    connectionsCheckingInterval: Math.min(5000, limits.headersTimeoutMs),
    insecureHTTPParser: false,
    joinDuplicateHeaders: false,
    // the gate rejects requests without Host and sends a Status
    requireHostHeader: false,
  });
  server.maxHeadersCount = MAX_HEADERS_SEEN;
  return server;
}

function createPlainFront(options: ProxyServerOptions, state: FrontState, own: OwnLoad): PlainFront {
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const connections = new WeakMap<object, PlainConnection>();
  const surplus = new WeakSet<object>();
  const server = createPlainServer(limits);
  const front: PlainFront = {
    server,
    accept(socket, peer, service) {
      joinSmallWrites(socket);
      const connection = new PlainConnection(socket, peer, service.deps);
      if (service.surplus) surplus.add(socket);
      connections.set(socket, connection);
      state.plain.add(connection);
      socket.once('close', () => state.plain.delete(connection));
      server.emit('connection', socket);
      connection.countHeads();
    },
  };
  const serve = (request: IncomingMessage, response: RelayResponse, expectsContinue: boolean): void => {
    const connection = connections.get(request.socket);
    if (connection === undefined) return void request.socket.destroy();
    connection.arrived(request);
    const service = ownService(options, request.url);
    if (service === undefined || surplus.has(request.socket))
      return connection.request(request, response, expectsContinue);
    if (isLong(request.url, request.rawHeaders)) return connection.malformed(TOO_LONG_FOR_OWN, request);
    if (own.isFull(connection.peer)) return connection.malformed(TOO_MANY_OWN, request);
    if (!connection.occupy(response)) return;
    if (state.draining) response.shouldKeepAlive = false;
    response.once('close', own.take(connection.peer));
    service.request(limitBody(request, limits.headersTimeoutMs), response, connection.peer);
  };
  const onRequest = (request: IncomingMessage, response: RelayResponse, expectsContinue: boolean): void =>
    guard(options.log, request.socket, () => serve(request, response, expectsContinue));
  server.on('request', (request, response) => onRequest(request, response, false));
  server.on('checkContinue', (request, response) => onRequest(request, response, true));
  // Without this listener, Node.js responds with 417 and does not authenticate, log or count the request. The gateway
  // ignores other values of `Expect`.
  server.on('checkExpectation', (request, response) => onRequest(request, response, false));
  const upgrade = (request: IncomingMessage, socket: Duplex, head: Buffer): void => {
    const connection = connections.get(socket);
    // an upgrade would take over a connection on which an earlier response is unfinished
    if (connection === undefined || connection.closing) return void socket.destroy();
    connection.arrived(request);
    connection.switched();
    if (connection.busy) return connection.drop(BEHIND_ANOTHER, request);
    if (surplus.has(socket)) return connection.malformed(TOO_MANY, request);
    const own = ownService(options, request.url);
    if (own !== undefined && isLong(request.url, request.rawHeaders))
      return connection.malformed(TOO_LONG_FOR_OWN, request);
    state.plain.delete(connection);
    if (own !== undefined) return own.upgrade(request, socket, head, connection.peer);
    options.upgrade(request, socket, head, connection.peer).catch((error: unknown) => {
      options.log.error({ error: errorText(error) }, 'upgrade handler failed');
      socket.destroy();
    });
  };
  server.on('upgrade', (request, socket, head) =>
    guard(options.log, socket, () => upgrade(request, socket, head)),
  );
  server.on('connect', (request, socket) => {
    socket.on('error', () => socket.destroy());
    connections.get(socket)?.malformed(new TailcastError('METHOD_REFUSED', 'CONNECT'), request);
  });
  server.on('clientError', (error: NodeJS.ErrnoException, socket) => {
    const problem = clientError(error.code ?? '');
    const connection = connections.get(socket);
    // without a `problem`, the client has disconnected and gets no response
    if (connection === undefined || problem === undefined) return void socket.destroy();
    connection.malformed(problem);
  });
  // NOTE: Node.js applies `headersTimeout` only after the `listening` event. This server has no listening socket and
  // would never get this event
  server.emit('listening');
  return front;
}

/** Runs an event handler. An error in the handler ends only its connection. */
function guard(log: Logger, socket: Duplex, act: () => void): void {
  try {
    act();
  } catch (error) {
    log.error({ error: errorText(error) }, 'connection failed');
    socket.destroy();
  }
}

function isLong(target: string | undefined, rawHeaders: readonly string[]): boolean {
  return headBytes({ target: target ?? '', rawHeaders }) > USUAL_HEAD_BYTES;
}

function ownService({ own }: ProxyServerOptions, url: string | undefined): OwnService | undefined {
  return own?.find(({ prefix }) => url?.startsWith(prefix) === true);
}

type OwnLoad = ReturnType<typeof createOwnLoad>;

/** Counts in-flight requests to own services. They have their own limit, so they take no slots of proxied requests. */
function createOwnLoad({ maxInFlight }: Pick<PumpDeps, 'maxInFlight'>) {
  const taken = createKeyedCounter();
  const capacity = Math.max(MIN_OWN_REQUESTS, maxInFlight);
  return {
    get total() {
      return taken.total;
    },
    /** True if the address already uses its complete share: half of the slots that other addresses leave free. */
    isFull: ({ address }: Peer) => !taken.hasShare(address, capacity),
    /** Counts a request, so that the drain waits for it. The returned function ends the count. */
    take: ({ address }: Peer) => taken.take(address),
  };
}

function refuseUnread({ events }: PumpDeps, peer: Peer, error: TailcastError): void {
  events.requestRefused({
    code: error.code,
    reason: error.message,
    protocol: 'h2',
    peer: peer.address,
    method: '',
    path: '',
  });
}

function createHttp2Front(parts: {
  readonly options: ProxyServerOptions;
  readonly state: FrontState;
  readonly own: OwnLoad;
}): { accept(socket: Socket, peer: Peer, service: Service): void; close(): void } {
  const { options, state, own } = parts;
  const server = createHttp2Server();
  const watches = new Set<HeadWatch>();
  const limits = { ...DEFAULT_LIMITS, ...options.limits };
  const timer = setInterval(() => {
    for (const watch of watches) watch.check();
  }, HEAD_CHECK_MS).unref();
  const adopt = (
    session: ServerHttp2Session,
    socket: Socket,
    { peer, deps, surplus }: Service & { readonly peer: Peer },
  ): void => {
    const abort = new AbortController();
    const context = { deps, peer, signal: abort.signal };
    const unread = createUnreadStreams((error) => refuseUnread(deps, peer, error));
    adoptSession(session, socket, unread);
    state.sessions.add(session);
    const watch = createHeadWatch(session, socket, {
      unread,
      head: deps.users?.head(peer),
      headersTimeoutMs: limits.headersTimeoutMs,
      now: deps.monotonicMs,
    });
    watches.add(watch);
    const rate = createHeadRate(deps.monotonicMs);
    session.once('close', () => {
      abort.abort();
      state.sessions.delete(session);
      watch.stop();
      watches.delete(watch);
    });
    const serve = (...[stream, headers, , rawHeaders]: StreamEvent): void => {
      if (stream.id !== undefined) unread.arrived(stream.id);
      if (surplus) session.close();
      const path = headers[':path'];
      const bytes = headBytes({ target: '', rawHeaders });
      const refusal = rate.take(bytes);
      if (rate.isExcessive) return unread.end(session, TOO_MANY_LONG_HEADS);
      const service = ownService(options, path);
      if (service === undefined || surplus || refusal !== undefined)
        return serveStream(stream, rawHeaders, { ...context, refusal });
      if (bytes > USUAL_HEAD_BYTES)
        return serveStream(stream, rawHeaders, { ...context, refusal: TOO_LONG_FOR_OWN });
      if (own.isFull(peer)) return serveStream(stream, rawHeaders, { ...context, refusal: TOO_MANY_OWN });
      // the portal uses objects of the compatibility API of Node.js, which exist only if the server has a 'request'
      // listener
      stream.on('error', () => stream.destroy());
      const request = new Http2ServerRequest(stream, headers, {}, rawHeaders);
      const response = new Http2ServerResponse(stream);
      response.once('close', own.take(peer));
      service.request(request, response, peer);
    };
    session.on('stream', (...event: StreamEvent) => {
      try {
        serve(...event);
      } catch (error) {
        options.log.error({ error: errorText(error) }, 'stream failed');
        event[0].close(constants.NGHTTP2_INTERNAL_ERROR);
      }
    });
  };
  server.on('sessionError', (error) =>
    options.log.debug({ error: errorText(error) }, 'HTTP/2 session failed'),
  );
  return {
    accept(socket, peer, service) {
      acceptHttp2(server, socket, limits.keepAliveMs, (session) =>
        adopt(session, socket, { ...service, peer }),
      );
    },
    close() {
      clearInterval(timer);
      server.close();
    },
  };
}
