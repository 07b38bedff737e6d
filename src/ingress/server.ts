/**
 * Serves Ingresses and Gateways that tailscaled cannot serve, for example because their certificates are in Secrets. A
 * tailscaled in the same pod forwards connections to this server:
 *
 *   connection ─► PROXY header, TLS (`tailnet/listener`) ─► HTTP/1.1 or HTTP/2 ─► route ─► whois ─► Service
 *
 * tailscaled identifies callers. Requests of unknown callers are rejected.
 */
import { createServer as createPlainServer, type IncomingMessage, type Server } from 'node:http';
import { createServer, type Http2Server } from 'node:http2';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { createDeadline } from '../async/deadline.ts';
import { errorText } from '../errors.ts';
import { joinSmallChunks } from '../memory/join-chunks.ts';
import type { Logger } from '../observe/logger.ts';
import { acceptHttp2 } from '../async/idle-http2.ts';
import { createKeyedCounter } from '../keyed-counter.ts';
import { callerName, type Identity, type IdentitySource, type Peer } from '../tailnet/identity.ts';
import { peerOf, type ConnectionHandler } from '../tailnet/listener.ts';
import type { IngressTable } from '../wire/ingress-table.ts';
import { fieldsForService, type FieldList } from './fields.ts';
import {
  authorityOf,
  bodyOf,
  cut,
  passOn,
  rawAnswer,
  refuseWith,
  usesHttp2,
  identityFailure,
  writeHead,
  type ClientRequest,
  type ClientResponse,
} from './messages.ts';
import { routeOf, type IngressRoute } from './routes.ts';
import { switchProtocols } from './upgrade.ts';
import type { ServiceAnswer, Upstreams } from './upstreams.ts';

/** Result of a request. */
export type RequestOutcome = 'served' | 'redirected' | 'refused' | 'unreachable' | 'broken' | 'overloaded';

export interface IngressServerOptions {
  /** Returns the current table; undefined until a table is loaded. */
  readonly table: () => IngressTable | undefined;
  readonly identities: IdentitySource;
  readonly upstreams: Upstreams;
  readonly onEnd: (outcome: RequestOutcome) => void;
  readonly log: Logger;
  /**
   * Maximum in-flight requests, including upgraded connections. Further requests get 503. One address may use at most
   * half of the request slots that other addresses leave free.
   */
  readonly maxRequests?: number;
  /** Maximum in-flight requests of one caller. */
  readonly maxPerCaller?: number;
  /**
   * Maximum time between two parts of a request body, in milliseconds. There is no limit for gRPC calls, or after the
   * response has started.
   */
  readonly bodyStallMs?: number;
  /** Maximum number of connections. The limit for one address follows the rule of `maxRequests`. */
  readonly maxConnections?: number;
  /**
   * Maximum time in which a client reads an error response or a redirect, in milliseconds. After this time, the server
   * closes the HTTP/1.1 connection, or resets the HTTP/2 stream.
   */
  readonly refusalMs?: number;
  /** Maximum time of an HTTP/2 connection without a request, in milliseconds. */
  readonly sessionIdleMs?: number;
}

const MAX_REQUESTS = 4096;
const MAX_PER_CALLER = 1024;
const MAX_CONNECTIONS = 20_000;
const REFUSAL_MS = 10_000;
const MAX_HEAD_BYTES = 128 * 1024;
const HEADERS_TIMEOUT_MS = 30_000;
const KEEP_ALIVE_MS = 90_000;
/** Maximum idle time of an HTTP/2 connection, in milliseconds. */
const SESSION_IDLE_MS = 600_000;
const MAX_STREAMS = 100;
const BODY_STALL_MS = 60_000;
const STALLED = [408, 'no byte of the request body arrived for a minute'] as const;
const TOO_MANY = [503, 'too many requests are in progress'] as const;
const TOO_MANY_OF_CALLER = [503, 'too many of your requests are in progress'] as const;
const NO_ANSWER = [502, 'the Service of this path does not respond'] as const;

interface Caller {
  readonly peer: Peer;
  readonly identity: Identity;
}

/** The HTTP/1.1 server and the HTTP/2 server for one kind of connection: HTTPS, or plain HTTP. */
interface Door {
  readonly plain: Server;
  readonly http2: Http2Server;
}

export class IngressServer {
  readonly #options: IngressServerOptions;
  readonly #over = new AbortController();
  readonly #sockets = new Set<Socket>();
  readonly #doors: ReadonlyMap<boolean, Door>;
  readonly #callers = createKeyedCounter();
  /** Counts the in-flight requests of each address. */
  readonly #requests = createKeyedCounter();
  /** Counts the connections of each address. */
  readonly #connections = createKeyedCounter();

  constructor(options: IngressServerOptions) {
    this.#options = options;
    this.#doors = new Map([true, false].map((secure) => [secure, this.#openDoor(secure)] as const));
  }

  get inFlight(): number {
    return this.#requests.total;
  }

  /** Returns the connection handler for HTTPS, or for plain HTTP. */
  handler(secure: boolean): ConnectionHandler {
    return (socket, alpn) => {
      const { address } = peerOf(socket);
      if (this.#over.signal.aborted) return void socket.destroy();
      const leave = this.#connections.takeShare(address, this.#options.maxConnections ?? MAX_CONNECTIONS);
      if (leave === undefined) return void socket.destroy();
      // TLS, server, session and pipeline each add listeners for the close event. Node.js would warn of a leak after
      // ten listeners.
      socket.setMaxListeners(20);
      this.#sockets.add(socket);
      socket.once('close', () => {
        leave();
        this.#sockets.delete(socket);
      });
      const door = this.#doors.get(secure);
      if (door === undefined) return;
      if (alpn === 'h2') acceptHttp2(door.http2, socket, this.#options.sessionIdleMs ?? SESSION_IDLE_MS);
      else door.plain.emit('connection', socket);
    };
  }

  /** Ends in-flight requests. */
  close(): void {
    this.#over.abort(new Error('the server ends'));
    for (const socket of this.#sockets) socket.destroy();
    for (const { plain, http2 } of this.#doors.values()) {
      plain.close();
      http2.close();
    }
  }

  #openDoor(secure: boolean): Door {
    const guarded = (request: ClientRequest, response: ClientResponse): void => {
      this.#take(request, response, secure).catch((error: unknown) => {
        this.#options.log.error({ error: errorText(error) }, 'request failed');
        cut(response);
      });
    };
    const plain = createPlainServer({
      maxHeaderSize: MAX_HEAD_BYTES,
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: 0,
      keepAliveTimeout: KEEP_ALIVE_MS,
      connectionsCheckingInterval: 5000,
      insecureHTTPParser: false,
      requireHostHeader: true,
      // Requests for other upgrades are handled like requests without an upgrade.
      shouldUpgradeCallback: ({ method, headers }) =>
        method === 'GET' && headers.upgrade?.toLowerCase() === 'websocket',
    });
    plain.on('request', guarded);
    plain.on('upgrade', (request, socket, head) => this.#upgrade(request, socket, head, secure));
    // NOTE: Node.js enforces `headersTimeout` only after the event `listening`. This server does not listen, because it
    // gets connections from another listener.
    plain.emit('listening');
    const http2 = createServer({
      settings: { maxConcurrentStreams: MAX_STREAMS, enableConnectProtocol: false, enablePush: false },
      maxHeaderListPairs: 128,
      maxSessionMemory: 32,
      streamResetBurst: 1000,
      streamResetRate: 100,
    });
    http2.on('request', guarded);
    http2.on('session', (session) => session.on('error', () => session.destroy()));
    return { plain, http2 };
  }

  /** @returns a function that releases the slot, or undefined if the address already uses its share of the slots */
  #takePlace(socket: object): (() => void) | undefined {
    const { address } = peerOf(socket);
    const leave = this.#requests.takeShare(address, this.#options.maxRequests ?? MAX_REQUESTS);
    if (leave === undefined) this.#options.onEnd('overloaded');
    return leave;
  }

  /** Calls `stop` if the stream of an error response or a redirect is not closed in time. */
  #closeSoon(stream: ClientResponse | Duplex, stop: () => void): void {
    if (stream.destroyed) return;
    const deadline = createDeadline(this.#options.refusalMs ?? REFUSAL_MS, stop);
    stream.once('close', deadline.clear);
  }

  async #take(request: ClientRequest, response: ClientResponse, secure: boolean): Promise<void> {
    // Without an error listener, an error would terminate the process.
    response.on('error', () => undefined);
    request.on('error', () => undefined);
    joinSmallChunks('stream' in request ? request.stream : request);
    const leave = this.#takePlace(request.socket);
    if (leave === undefined) {
      refuseWith(response, ...TOO_MANY);
      return this.#closeSoon(response, () => cut(response));
    }
    const disconnected = new AbortController();
    response.once('close', () => {
      disconnected.abort(new Error('the client is gone'));
      leave();
    });
    const outcome = await this.#serve(request, response, secure, disconnected.signal);
    this.#options.onEnd(outcome);
    if (outcome === 'served') return;
    this.#closeSoon(response, () => {
      cut(response);
      leave();
    });
  }

  async #serve(
    request: ClientRequest,
    response: ClientResponse,
    secure: boolean,
    disconnected: AbortSignal,
  ): Promise<RequestOutcome> {
    const authority = authorityOf(request);
    const route = this.#find({ authority, target: request.url ?? '', secure });
    if (route.kind !== 'found') return turnAway(response, route);
    const signal = AbortSignal.any([this.#over.signal, disconnected]);
    const caller = await this.#whois(request, signal).catch((error: unknown) => {
      refuseWith(response, ...identityFailure(error));
    });
    if (caller === undefined) return disconnected.aborted ? 'broken' : 'refused';
    // A response that is already closed emits no further `close` event, so a slot that is taken now would never be
    // released.
    if (disconnected.aborted) return 'broken';
    const leave = this.#enter(caller.identity);
    if (leave === undefined) {
      refuseWith(response, ...TOO_MANY_OF_CALLER);
      return 'overloaded';
    }
    response.once('close', leave);
    const fields = fieldsForService({ raw: request.rawHeaders, authority, secure, ...caller });
    const stalled = new AbortController();
    const stopWatch = watchBody(request, this.#options.bodyStallMs ?? BODY_STALL_MS, () => stalled.abort());
    const asking = AbortSignal.any([signal, stalled.signal]);
    const answer = await this.#ask(route.upstream, request, fields, asking).catch((error: unknown) => {
      if (!asking.aborted)
        this.#options.log.warn({ upstream: route.upstream, error: errorText(error) }, 'no answer');
      const [status, message] = stalled.signal.aborted ? STALLED : NO_ANSWER;
      refuseWith(response, status, message);
    });
    stopWatch();
    if (answer === undefined)
      return disconnected.aborted ? 'broken' : stalled.signal.aborted ? 'refused' : 'unreachable';
    try {
      await passOn(answer, response, request.method === 'HEAD');
      return 'served';
    } catch (error) {
      this.#options.log.debug({ error: errorText(error) }, 'answer broke off');
      refuseWith(response, ...NO_ANSWER);
      return 'broken';
    }
  }

  #find(query: Parameters<typeof routeOf>[1]): IngressRoute {
    const table = this.#options.table();
    return table === undefined
      ? { kind: 'refused', status: 503, message: 'no routes are loaded yet' }
      : routeOf(table, query);
  }

  /** Rejects if tailscaled cannot identify the caller. */
  async #whois(request: ClientRequest, signal: AbortSignal): Promise<Caller> {
    const peer = peerOf(request.socket);
    return { peer, identity: await this.#options.identities.whois(peer, signal) };
  }

  /** @returns a function that releases the slot, or undefined if the caller has no free slot */
  #enter(identity: Identity): (() => void) | undefined {
    const name = callerName(identity);
    if (this.#callers.usedBy(name) >= (this.#options.maxPerCaller ?? MAX_PER_CALLER)) return undefined;
    return this.#callers.take(name);
  }

  #ask(
    upstream: string,
    request: ClientRequest,
    fields: FieldList,
    signal: AbortSignal,
  ): Promise<ServiceAnswer> {
    const http2 = usesHttp2(upstream, request);
    const body = bodyOf(request, http2);
    const question = {
      upstream,
      method: request.method ?? 'GET',
      path: request.url ?? '/',
      fields: [...fields, ...body.fields],
      body: body.present ? request : undefined,
      http2,
    };
    return this.#options.upstreams.ask(question, signal);
  }

  #upgrade(request: IncomingMessage, socket: Duplex, head: Buffer, secure: boolean): void {
    const { log, onEnd, upstreams } = this.#options;
    socket.on('error', () => socket.destroy());
    const refuse = (status: number, message: string): void => {
      if (socket.destroyed) return;
      socket.end(rawAnswer(status, message));
      this.#closeSoon(socket, () => socket.destroy());
    };
    const leave = this.#takePlace(request.socket);
    if (leave === undefined) return refuse(...TOO_MANY);
    socket.once('close', leave);
    const respond = (outcome: RequestOutcome, status: number, message: string): void => {
      onEnd(outcome);
      refuse(status, message);
    };
    const authority = authorityOf(request);
    const route = this.#find({ authority, target: request.url ?? '', secure });
    if (route.kind === 'redirect') return respond('refused', 400, 'this host is served by HTTPS');
    if (route.kind === 'refused') return respond('refused', route.status, route.message);
    const { upstream } = route;
    const path = request.url ?? '/';
    const enter = (caller: Caller): void => {
      if (socket.destroyed) return onEnd('broken');
      const leaveOwn = this.#enter(caller.identity);
      if (leaveOwn === undefined) return respond('overloaded', ...TOO_MANY_OF_CALLER);
      socket.once('close', leaveOwn);
      const own = fieldsForService({ raw: request.rawHeaders, authority, secure, ...caller });
      const fields = [...own, 'connection', 'Upgrade', 'upgrade', 'websocket'];
      switchProtocols({
        client: socket,
        head,
        request: upstreams.open({ upstream, method: 'GET', path, fields }),
        unreachable(error) {
          log.warn({ upstream, error: errorText(error) }, 'no answer');
          respond('unreachable', ...NO_ANSWER);
        },
        onEnd,
      });
    };
    this.#whois(request, this.#over.signal)
      .then(enter, (error: unknown) => respond('refused', ...identityFailure(error)))
      .catch((error: unknown) => {
        log.error({ error: errorText(error) }, 'request failed');
        socket.destroy();
      });
  }
}

/**
 * Calls `onStall` if no part of a request body arrives for `limitMs`. Time in which the Service does not read is not
 * counted.
 * @returns a function that stops the timer
 */
function watchBody(request: ClientRequest, limitMs: number, onStall: () => void): () => void {
  // A gRPC client may send nothing for a long time.
  if (!bodyOf(request, false).present || usesHttp2('', request)) return () => undefined;
  const stall = createDeadline(limitMs, () => {
    if (request.isPaused()) stall.extend();
    else onStall();
  });
  const stop = (): void => {
    stall.clear();
    request.off('data', stall.extend);
  };
  request.on('data', stall.extend);
  request.once('end', stop);
  return stop;
}

function turnAway(
  response: ClientResponse,
  route: Exclude<IngressRoute, { readonly kind: 'found' }>,
): RequestOutcome {
  if (route.kind === 'refused') {
    refuseWith(response, route.status, route.message);
    return 'refused';
  }
  writeHead(response, route.status, ['location', route.location, 'content-length', '0']);
  response.end();
  return 'redirected';
}
