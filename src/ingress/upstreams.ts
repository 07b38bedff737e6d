/** Connections to Services: HTTP/1.1 kept for the next request, HTTP/2 one for each Service. */
import { Agent, request as plainRequest, type ClientRequest } from 'node:http';
import { connect, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { Agent as SecureAgent, request as secureRequest } from 'node:https';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { asHttp2, type FieldList } from './fields.ts';

/** One request to a Service. */
export interface ServiceQuestion {
  readonly upstream: string;
  readonly method: string;
  readonly path: string;
  readonly fields: FieldList;
  /** Undefined: none. */
  readonly body: Readable | undefined;
  /** Speaks HTTP/2, as gRPC does. */
  readonly http2: boolean;
}

/** What the Service says. */
export interface ServiceAnswer {
  readonly status: number;
  readonly fields: FieldList;
  readonly body: Readable;
  /** Once the body has ended. */
  trailers(): FieldList;
}

export interface Upstreams {
  /** Rejects when there is no answer. Aborting ends the answer as well. */
  ask(question: ServiceQuestion, signal: AbortSignal): Promise<ServiceAnswer>;
  /** A connection of its own, for one that leaves HTTP. */
  open(question: Omit<ServiceQuestion, 'body' | 'http2'>): ClientRequest;
  close(): void;
}

export interface UpstreamLimits {
  readonly connectMs?: number;
  /** How long nothing may come or go. */
  readonly idleMs?: number;
}

const CONNECT_MS = 10_000;
const IDLE_MS = 600_000;
const MAX_HEAD_BYTES = 128 * 1024;
/** Sessions with Services that nobody asks any more end. */
const SESSION_IDLE_MS = 60_000;

export function createUpstreams({
  connectMs = CONNECT_MS,
  idleMs = IDLE_MS,
}: UpstreamLimits = {}): Upstreams {
  const agents = { http: new Agent({ keepAlive: true }), https: new SecureAgent({ keepAlive: true }) };
  const sessions = new Map<string, ClientHttp2Session>();

  function begin(
    { upstream, method, path, fields }: Omit<ServiceQuestion, 'body' | 'http2'>,
    kept: boolean,
  ): ClientRequest {
    const { hostname, port, secure } = placeOf(upstream);
    const common = { hostname, port, method, path, headers: [...fields], maxHeaderSize: MAX_HEAD_BYTES };
    const request = secure
      ? // Certificates of pods are made for other names than an address.
        secureRequest({ ...common, agent: kept ? agents.https : false, rejectUnauthorized: false })
      : plainRequest({ ...common, agent: kept ? agents.http : false });
    request.once('socket', (socket) => limitConnect(socket, connectMs));
    return request;
  }

  function sessionTo(upstream: string): ClientHttp2Session {
    const existing = sessions.get(upstream);
    if (existing !== undefined && !existing.closed && !existing.destroyed) return existing;
    const { hostname, port, secure } = placeOf(upstream);
    const host = hostname.includes(':') ? `[${hostname}]` : hostname;
    const session = connect(`${secure ? 'https' : 'http'}://${host}:${port}`, {
      rejectUnauthorized: false,
      maxHeaderListPairs: 256,
    });
    // Its streams say it for themselves.
    session.on('error', () => session.destroy());
    session.setTimeout(SESSION_IDLE_MS, () => session.close());
    const forget = (): void => {
      if (sessions.get(upstream) === session) sessions.delete(upstream);
    };
    session.once('close', forget);
    session.once('goaway', forget);
    limitConnect(session.socket, connectMs);
    sessions.set(upstream, session);
    return session;
  }

  return {
    ask: (question, signal) =>
      question.http2
        ? askHttp2(sessionTo(question.upstream), question, idleMs, signal)
        : askHttp1(begin(question, true), question.body, idleMs, signal),
    open: (question) => begin(question, false),
    close() {
      agents.http.destroy();
      agents.https.destroy();
      for (const session of sessions.values()) session.destroy();
    },
  };
}

function placeOf(upstream: string): {
  readonly hostname: string;
  readonly port: string;
  readonly secure: boolean;
} {
  const [, scheme = '', hostname = '', port = ''] = /^([\w+]+):\/\/\[?(.+?)\]?:(\d+)$/.exec(upstream) ?? [];
  return { hostname, port, secure: scheme === 'https+insecure' };
}

function limitConnect(socket: Socket, limitMs: number): void {
  if (!socket.connecting) return;
  const timer = setTimeout(() => socket.destroy(new Error(`not connected within ${limitMs} ms`)), limitMs);
  const stop = (): void => clearTimeout(timer);
  socket.once('connect', stop);
  socket.once('close', stop);
}

function askHttp1(
  request: ClientRequest,
  body: Readable | undefined,
  idleMs: number,
  signal: AbortSignal,
): Promise<ServiceAnswer> {
  const answered = Promise.withResolvers<ServiceAnswer>();
  const abort = (): void => void request.destroy(new Error('withdrawn'));
  signal.addEventListener('abort', abort, { once: true });
  request.once('close', () => signal.removeEventListener('abort', abort));
  request.setTimeout(idleMs, () => request.destroy(new Error(`silent for ${idleMs} ms`)));
  request.on('error', answered.reject);
  request.once('response', (response) => {
    // Whoever reads it is told.
    response.on('error', () => undefined);
    answered.resolve({
      status: response.statusCode ?? 502,
      fields: response.rawHeaders,
      body: response,
      trailers: () => response.rawTrailers,
    });
  });
  send(body, request);
  return answered.promise;
}

function askHttp2(
  session: ClientHttp2Session,
  { method, path, fields, body, upstream }: ServiceQuestion,
  idleMs: number,
  signal: AbortSignal,
): Promise<ServiceAnswer> {
  const answered = Promise.withResolvers<ServiceAnswer>();
  const { host, ...rest } = asHttp2(fields);
  const head = {
    ...rest,
    ':method': method,
    ':path': path,
    ':scheme': placeOf(upstream).secure ? 'https' : 'http',
    ':authority': typeof host === 'string' ? host : '',
  };
  const stream: ClientHttp2Stream = session.request(head, { endStream: body === undefined, signal });
  let trailers: FieldList = [];
  stream.setTimeout(idleMs, () => stream.destroy(new Error(`silent for ${idleMs} ms`)));
  stream.on('error', answered.reject);
  stream.once('close', () => answered.reject(new Error('closed without an answer')));
  stream.once('trailers', (_said, _flags, raw: FieldList) => {
    trailers = raw;
  });
  stream.once('response', (said, _flags, raw: FieldList) =>
    answered.resolve({
      status: said[':status'] ?? 502,
      fields: raw,
      body: stream,
      trailers: () => trailers,
    }),
  );
  if (body !== undefined) send(body, stream);
  return answered.promise;
}

/** A client that goes in the middle of its body takes the request with it; one that is answered early goes on. */
function send(
  body: Readable | undefined,
  sink: NodeJS.WritableStream & { destroy(error?: Error): unknown },
): void {
  if (body === undefined) {
    sink.end();
    return;
  }
  body.on('error', () => sink.destroy(new Error('the client broke off')));
  body.once('aborted', () => sink.destroy(new Error('the client broke off')));
  body.pipe(sink);
}
