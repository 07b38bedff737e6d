/**
 * One TCP port for HTTP/1.1 and for HTTP/2 with prior knowledge: the first bytes of a connection tell which. Node has
 * servers for both but none for the two together, so connections are accepted here and handed to one of them.
 */
import { createServer as createHttp1Server, type IncomingMessage, type RequestListener } from 'node:http';
import { createServer as createHttp2Server, type Http2Server, type ServerHttp2Session } from 'node:http2';
import { createServer, type AddressInfo, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import fastify, { type FastifyInstance } from 'fastify';
import { limitBody } from '../../kept-connections.ts';
import { listenOn } from '../../listen.ts';
import { createPlaceCount } from '../../place-count.ts';
import type { Logger } from '../../observe/logger.ts';
import { SECURITY_HEADERS } from './api.ts';
import { answerUnserved, type Uploads } from './uploads.ts';

const BAD_TARGET = {
  code: 'REQUEST_NOT_CANONICAL',
  message: 'the request target cannot be decoded',
} as const;

/** What every HTTP/2 connection begins with (RFC 9113 3.4). */
const PREFACE = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');

export interface ServerOptions {
  readonly host: string;
  readonly port: number;
  readonly uploads: Uploads;
  readonly log: Logger;
  /** Maximum number of connections. One address may have as many as are free. */
  readonly maxConnections: number;
  /** Told how many connections are open whenever that changes. */
  readonly onConnections: (open: number) => void;
  /** From the connection to its first decisive bytes, and for the head of a request. */
  readonly headTimeoutMs: number;
  /** How long a connection without a request stays open. */
  readonly idleTimeoutMs: number;
  /** HTTP/2 flow control: body bytes in flight per upload and per connection. */
  readonly streamWindowBytes: number;
  readonly connectionWindowBytes: number;
  /** Puts routes on the application that answers what is no upload. */
  readonly routes: (app: FastifyInstance) => void;
  /** Handles a WebSocket upgrade, or destroys the socket. */
  readonly upgrade: (request: IncomingMessage, socket: Duplex, head: Buffer) => void;
}

export interface HttpServer {
  readonly address: AddressInfo;
  /** Stops accepting, lets running answers end for `graceMs`, then closes what is left. */
  close(graceMs: number): Promise<void>;
}

/** Listens. @throws a system error when the address cannot be used. */
export async function listenHttp(options: ServerOptions): Promise<HttpServer> {
  const sockets = new Set<Socket>();
  const sessions = new Set<ServerHttp2Session>();
  const app = createApplication(options);
  options.routes(app);
  await app.ready();
  // it never listens itself; without this event Node does not look for requests that take too long to arrive
  app.server.emit('listening');
  const http2 = createHttp2(options, sessions);
  const slots = createPlaceCount();
  const server = createServer({ noDelay: true, keepAlive: true }, (socket) => {
    const { remoteAddress: peer = '' } = socket;
    if (!slots.hasShare(peer, options.maxConnections)) {
      options.log.debug({ address: peer }, 'connection refused: the address has its share of connections');
      socket.destroy();
      return;
    }
    const leave = slots.take(peer);
    sockets.add(socket);
    options.onConnections(sockets.size);
    socket.once('close', () => {
      leave();
      sockets.delete(socket);
      options.onConnections(sockets.size);
    });
    // a reset before a protocol server has taken the socket; afterwards that server listens as well
    socket.on('error', (error) => options.log.debug({ error: error.message }, 'connection failed'));
    sniffProtocol(socket, options.headTimeoutMs, (protocol) => {
      if (protocol === 'h2') http2.emit('connection', socket);
      else app.server.emit('connection', socket);
    });
  });
  server.maxConnections = options.maxConnections;
  const { host, port } = options;
  const address = await listenOn(server, { host, port });
  return {
    address,
    async close(graceMs) {
      const closed = new Promise<void>((resolve) => {
        server.close(() => resolve());
      });
      for (const session of sessions) session.close();
      app.server.closeIdleConnections();
      const timer = setTimeout(() => {
        for (const socket of sockets) socket.destroy();
      }, graceMs);
      await closed;
      clearTimeout(timer);
      app.server.close();
      await app.close();
    },
  };
}

/** Reads until it is certain which protocol the peer speaks, puts the bytes back, and decides once. */
function sniffProtocol(socket: Socket, timeoutMs: number, decide: (protocol: 'h1' | 'h2') => void): void {
  let seen = Buffer.alloc(0);
  const timer = setTimeout(() => socket.destroy(), timeoutMs);
  const stop = (): void => {
    clearTimeout(timer);
    socket.off('readable', look);
    socket.off('close', stop);
  };
  function look(): void {
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
  socket.on('readable', look);
  socket.on('close', stop);
}

function createApplication(options: ServerOptions): FastifyInstance {
  const { uploads } = options;
  return fastify({
    // our own log lines say what matters; two lines per request of a player do not
    logger: false,
    forceCloseConnections: true,
    exposeHeadRoutes: false,
    routerOptions: { maxParamLength: 512 },
    // a target that cannot be decoded is answered before any hook or route
    frameworkErrors: (_error, _request, reply) => {
      reply.raw.writeHead(400, { ...SECURITY_HEADERS, 'content-type': 'application/json' });
      reply.raw.end(JSON.stringify(BAD_TARGET));
    },
    serverFactory(handler: RequestListener) {
      const server = createHttp1Server(
        {
          // uploads last as long as shells do
          requestTimeout: 0,
          headersTimeout: options.headTimeoutMs,
          keepAliveTimeout: options.idleTimeoutMs,
          connectionsCheckingInterval: 1000,
          insecureHTTPParser: false,
          noDelay: true,
        },
        (request, response) => {
          if (uploads.request(request, response, false)) return;
          handler(limitBody(request, options.headTimeoutMs), response);
        },
      );
      server.on('checkContinue', (request, response) => {
        if (uploads.request(request, response, true)) return;
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
    closeWhenIdle(session, options.idleTimeoutMs);
  });
  server.on('sessionError', (error) =>
    options.log.debug({ error: error.message }, 'HTTP/2 connection failed'),
  );
  return server;
}

/** Some uploaders leave their connection behind when the upload is over. */
function closeWhenIdle(session: ServerHttp2Session, timeoutMs: number): void {
  let streams = 0;
  const timer = setTimeout(() => {
    if (streams === 0) session.close();
  }, timeoutMs);
  session.on('stream', (stream) => {
    streams += 1;
    stream.once('close', () => {
      streams -= 1;
      timer.refresh();
    });
  });
  session.once('close', () => clearTimeout(timer));
}
