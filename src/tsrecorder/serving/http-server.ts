/**
 * Serves HTTP/1.1 and HTTP/2 with prior knowledge on one TCP port. The first bytes of a connection show its protocol.
 * Node.js has no server for both protocols, so this module accepts connections and passes each connection to one of two
 * servers.
 */
import { createDeadline } from '../../async/deadline.ts';
import {
  createServer as createHttp1Server,
  type IncomingMessage,
  type RequestListener,
  type ServerResponse,
} from 'node:http';
import { createServer as createHttp2Server, type Http2Server, type ServerHttp2Session } from 'node:http2';
import { createServer, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import fastify, { type FastifyInstance } from 'fastify';
import { limitBody } from '../../stale-connections.ts';
import { listenOn } from '../../listen.ts';
import { acceptHttp2 } from '../../async/idle-http2.ts';
import { createKeyedCounter } from '../../keyed-counter.ts';
import type { Logger } from '../../observe/logger.ts';
import { SECURITY_HEADERS } from './api.ts';
import { setPeer, socketPeer, type ConnectionPeer } from './connection-peer.ts';
import { answerUnserved, type Uploads } from './uploads.ts';

const BAD_TARGET = {
  code: 'REQUEST_NOT_CANONICAL',
  message: 'the request target cannot be decoded',
} as const;

/** First bytes of each HTTP/2 connection (RFC 9113 3.4). */
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

export interface ServerOptions {
  readonly host: string;
  readonly port: number;
  readonly uploads: Uploads;
  readonly log: Logger;
  /**
   * Creates a function that reads the PROXY header of a new connection, and then calls `handOver` with the peer in this
   * header. The function closes connections without a valid header. Default: the peer is the other end of the socket.
   */
  readonly proxyHeaders?: ProxyHeaders | undefined;
  /**
   * Maximum number of connections. Each address may use at most half of the connections that other addresses leave
   * free.
   */
  readonly maxConnections: number;
  /** Called with the number of open connections when it changes. */
  readonly onConnections: (open: number) => void;
  /** Timeout for the first bytes of a connection, and for the head of a request, in milliseconds. */
  readonly headTimeoutMs: number;
  /** Time after which an idle connection is closed, in milliseconds. */
  readonly idleTimeoutMs: number;
  /** HTTP/2 flow-control windows: maximum body bytes in flight per upload, and per connection. */
  readonly streamWindowBytes: number;
  readonly connectionWindowBytes: number;
  /** Adds routes to the application that handles all requests except uploads. */
  readonly routes: (app: FastifyInstance) => void;
  /** Handles a WebSocket upgrade, or destroys the socket. */
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
}

export type ProxyHeaders = (
  handOver: (socket: Socket, peer: ConnectionPeer) => void,
) => (socket: Socket) => void;

export type HttpServer = Awaited<ReturnType<typeof listenHttp>>;

/** Starts listening. @throws a system error if the address is unusable */
export async function listenHttp(options: ServerOptions) {
  /** Open connections, each with the function that frees its slot. */
  const sockets = new Map<Socket, () => void>();
  const sessions = new Set<ServerHttp2Session>();
  const app = createApplication(options);
  options.routes(app);
  await app.ready();
  // Emit `listening`, because the server of the application never listens itself. Without the event, Node.js would not
  // enforce its request timeouts.
  app.server.emit('listening');
  const http2 = createHttp2(options, sessions);
  const slots = createKeyedCounter();
  const serve = (socket: Socket, peer: ConnectionPeer): void => {
    const leave = slots.takeShare(peer.address, options.maxConnections);
    if (leave === undefined) {
      options.log.debug(
        { address: peer.address },
        'connection refused: the address has its share of connections',
      );
      socket.destroy();
      return;
    }
    setPeer(socket, peer);
    sockets.set(socket, leave);
    sniffProtocol(socket, options.headTimeoutMs, (protocol) => {
      // Pass the idle timeout, because some uploaders leave their connections open after an upload.
      if (protocol === 'h2') acceptHttp2(http2, socket, options.idleTimeoutMs);
      else app.server.emit('connection', socket);
    });
  };
  const receive = options.proxyHeaders?.(serve) ?? ((socket: Socket) => serve(socket, socketPeer(socket)));
  const server = createServer({ noDelay: true, keepAlive: true }, (socket) => {
    sockets.set(socket, () => undefined);
    options.onConnections(sockets.size);
    socket.once('close', () => {
      sockets.get(socket)?.();
      sockets.delete(socket);
      options.onConnections(sockets.size);
    });
    // Handle errors that occur before the socket is passed to one of the servers, for example a connection reset.
    socket.on('error', (error) => options.log.debug({ error: error.message }, 'connection failed'));
    receive(socket);
  });
  server.maxConnections = options.maxConnections;
  const { host, port } = options;
  const address = await listenOn(server, { host, port });
  return {
    address,
    /** Stops accepting connections, waits up to `graceMs` for running responses, and then closes all connections. */
    async close(graceMs: number): Promise<void> {
      const closed = new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
      for (const session of sessions) session.close();
      app.server.closeIdleConnections();
      const timer = setTimeout(() => {
        for (const socket of sockets.keys()) socket.destroy();
      }, graceMs);
      await closed;
      clearTimeout(timer);
      app.server.close();
      await app.close();
    },
  };
}

/** Reads bytes until the protocol is known. Then puts the bytes back into the stream, and calls `decide` once. */
function sniffProtocol(socket: Socket, timeoutMs: number, decide: (protocol: 'h1' | 'h2') => void): void {
  let seen = Buffer.alloc(0);
  const deadline = createDeadline(timeoutMs, () => socket.destroy());
  const stop = (): void => {
    deadline.clear();
    socket.off('readable', sweep);
    socket.off('close', stop);
  };
  function sweep(): void {
    for (let chunk: unknown = socket.read(); chunk instanceof Buffer; chunk = socket.read()) {
      seen = Buffer.concat([seen, chunk]);
      const same = Math.min(seen.length, PREFACE.length);
      const mayBeHttp2 = seen.compare(PREFACE, 0, same, 0, same) === 0;
      if (mayBeHttp2 && same < PREFACE.length) continue;
      stop();
      socket.unshift(seen);
      decide(mayBeHttp2 ? 'h2' : 'h1');
      return;
    }
  }
  socket.on('readable', sweep);
  socket.on('close', stop);
}

/**
 * Maximum number of requests in progress on an HTTP/1.1 connection. A client that waits for each response has one
 * request in progress, or two for a short time.
 */
const MAX_PIPELINED = 4;

/** Creates a function that closes a connection with too many requests in progress, and then returns true. */
function createPipelineCheck(): (request: IncomingMessage, response: ServerResponse) => boolean {
  const running = new WeakMap<Socket, number>();
  return ({ socket }, response) => {
    const count = (running.get(socket) ?? 0) + 1;
    if (count > MAX_PIPELINED) {
      socket.destroy();
      return true;
    }
    running.set(socket, count);
    response.once('close', () => running.set(socket, (running.get(socket) ?? 1) - 1));
    return false;
  };
}

function createApplication(options: ServerOptions): FastifyInstance {
  const { uploads } = options;
  const isFlooded = createPipelineCheck();
  return fastify({
    // Disable the log of Fastify, which has two lines per request. The recorder logs important events itself.
    logger: false,
    forceCloseConnections: true,
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: 512 },
    // Handle invalid targets here, because Fastify rejects them before all hooks and routes.
    frameworkErrors: (_error, _request, reply) => {
      reply.raw.writeHead(400, { ...SECURITY_HEADERS, 'content-type': 'application/json' });
      reply.raw.end(JSON.stringify(BAD_TARGET));
    },
    serverFactory(handler: RequestListener) {
      const server = createHttp1Server(
        {
          // Disable the request timeout, because an upload lasts as long as its session.
          requestTimeout: 0,
          headersTimeout: options.headTimeoutMs,
          keepAliveTimeout: options.idleTimeoutMs,
          connectionsCheckingInterval: 1000,
          insecureHTTPParser: false,
          noDelay: true,
        },
        (request, response) => {
          if (isFlooded(request, response) || uploads.request(request, response, false)) return;
          handler(limitBody(request, options.headTimeoutMs), response);
        },
      );
      server.on('checkContinue', (request, response) => {
        if (isFlooded(request, response) || uploads.request(request, response, true)) return;
        response.writeContinue();
        handler(limitBody(request, options.headTimeoutMs), response);
      });
      server.on('upgrade', (request, socket, head) => {
        socket.on('error', () => socket.destroy());
        if (!uploads.upgrade(request, socket, head)) options.upgrade(request, socket, head);
      });
      return server;
    },
  });
}

function createHttp2(options: ServerOptions, sessions: Set<ServerHttp2Session>): Http2Server {
  const server = createHttp2Server({
    settings: {
      initialWindowSize: options.streamWindowBytes,
      maxConcurrentStreams: 1000,
      maxHeaderListSize: 65_536,
      enableConnectProtocol: false,
    },
  });
  server.on('session', (session) => {
    sessions.add(session);
    session.once('close', () => sessions.delete(session));
    session.setLocalWindowSize(options.connectionWindowBytes);
    session.on('stream', (stream, headers) => {
      if (!options.uploads.stream(stream, headers)) answerUnserved(stream);
    });
  });
  server.on('sessionError', (error) =>
    options.log.debug({ error: error.message }, 'HTTP/2 connection failed'),
  );
  return server;
}
