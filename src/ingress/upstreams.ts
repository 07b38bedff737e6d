/** Connections to Services. HTTP/1.1 connections are kept alive. HTTP/2 requests use as few connections as possible. */
import { createDeadline } from '../async/deadline.ts';
import { Agent, request as plainRequest, type ClientRequest } from 'node:http';
import { connect, constants, type ClientHttp2Session, type ClientHttp2Stream } from 'node:http2';
import { Agent as SecureAgent, request as secureRequest } from 'node:https';
import type { Socket } from 'node:net';
import type { Readable } from 'node:stream';
import { SAFE_METHODS, staleWindow, watchForStale } from '../stale-connections.ts';
import { asHttp2, isFinalStatus, type FieldList } from './fields.ts';

/** A request to a Service. */
export interface ServiceQuestion {
  readonly upstream: string;
  readonly method: string;
  readonly path: string;
  readonly fields: FieldList;
  /** Body of the request; undefined for a request without a body. */
  readonly body: Readable | undefined;
  /** True to use HTTP/2, which gRPC needs. */
  readonly http2: boolean;
}

/** Response from a Service. */
export interface ServiceAnswer {
  readonly status: number;
  readonly fields: FieldList;
  readonly body: Readable;
  /** Returns the trailers. Call it after the end of the body. */
  trailers(): FieldList;
  /**
   * Returns true if the body was complete. Call it after the end of the body, because Node.js also ends the body of a
   * broken stream.
   */
  isComplete(): boolean;
}

export type Upstreams = ReturnType<typeof createUpstreams>;

export interface UpstreamLimits {
  readonly connectMs?: number;
  /** Maximum time without data, in milliseconds. */
  readonly idleMs?: number;
}

const CONNECT_MS = 10_000;
const IDLE_MS = 600_000;
const MAX_HEAD_BYTES = 128 * 1024;
/** Maximum idle time of an HTTP/2 session, in milliseconds. */
const SESSION_IDLE_MS = 60_000;
/**
 * Maximum number of concurrent requests in one session, if the Service does not set a lower limit. Node.js would queue
 * further requests.
 */
const STREAMS_PER_SESSION = 100;

interface Session {
  readonly session: ClientHttp2Session;
  streams: number;
  /** True after a response has arrived in this session. */
  used: boolean;
  /** Highest stream id that the Service processes, according to its GOAWAY frame. */
  lastStream: number;
}

export function createUpstreams({ connectMs = CONNECT_MS, idleMs = IDLE_MS }: UpstreamLimits = {}) {
  const agents = { http: new Agent({ keepAlive: true }), https: new SecureAgent({ keepAlive: true }) };
  const sessions = createSessions(connectMs);

  function begin(
    { upstream, method, path, fields }: Omit<ServiceQuestion, 'body' | 'http2'>,
    kept: boolean,
  ): ClientRequest {
    const { hostname, port, secure } = placeOf(upstream);
    const common = { hostname, port, method, path, headers: [...fields], maxHeaderSize: MAX_HEAD_BYTES };
    const request = secure
      ? // Certificates of pods are not verified, because they are not issued for IP addresses.
        secureRequest({ ...common, agent: kept ? agents.https : false, rejectUnauthorized: false })
      : plainRequest({ ...common, agent: kept ? agents.http : false });
    request.once('socket', (socket) => limitConnect(socket, connectMs));
    return request;
  }

  async function askHttp1(question: ServiceQuestion, signal: AbortSignal): Promise<ServiceAnswer> {
    const request = begin(question, true);
    const isStale = watchForStale(request);
    try {
      return await answerTo(request, question.body, idleMs, signal);
    } catch (error) {
      const isRetryable = question.body === undefined && SAFE_METHODS.has(question.method) && isStale(error);
      if (!isRetryable || signal.aborted) throw error;
      return await answerTo(begin(question, false), undefined, idleMs, signal);
    }
  }

  async function askHttp2(question: ServiceQuestion, signal: AbortSignal): Promise<ServiceAnswer> {
    const opened = sessions.to(question.upstream);
    const asked = askStream(opened, question, idleMs, signal);
    try {
      return await asked.answer;
    } catch (error) {
      if (question.body !== undefined || !asked.isUnprocessed() || signal.aborted) throw error;
      return await askStream(sessions.to(question.upstream, opened), question, idleMs, signal).answer;
    }
  }

  return {
    /**
     * Sends a request. Rejects if there is no response. A request without a body may be repeated once over another
     * connection. This happens if the Service reports over HTTP/2 that it has not processed the request. It also
     * happens if the method is safe and the keep-alive connection was closed. The signal also aborts the response.
     */
    async ask(question: ServiceQuestion, signal: AbortSignal): Promise<ServiceAnswer> {
      const answer = await (question.http2 ? askHttp2(question, signal) : askHttp1(question, signal));
      if (isFinalStatus(answer.status)) return answer;
      answer.body.destroy();
      throw new Error(`status ${answer.status}`);
    },
    /** Opens a separate connection for an upgrade. */
    open(question: Omit<ServiceQuestion, 'body' | 'http2'>): ClientRequest {
      const request = begin(question, false);
      // The timeout applies until the protocol switch.
      request.setTimeout(idleMs, () => request.destroy(new Error(`silent for ${idleMs} ms`)));
      return request;
    },
    close(): void {
      agents.http.destroy();
      agents.https.destroy();
      sessions.close();
    },
  };
}

function createSessions(connectMs: number) {
  const sessions = new Map<string, Set<Session>>();
  return {
    /** Returns a session with capacity for another request. Opens a session if necessary. */
    to(upstream: string, except?: Session): Session {
      const all = sessions.get(upstream) ?? new Set<Session>();
      for (const one of all) if (one !== except && hasCapacity(one)) return one;
      const { hostname, port, secure } = placeOf(upstream);
      const host = hostname.includes(':') ? `[${hostname}]` : hostname;
      const session = connect(`${secure ? 'https' : 'http'}://${host}:${port}`, {
        rejectUnauthorized: false,
        maxHeaderListPairs: 256,
        settings: { enablePush: false },
      });
      // The streams of the session report the error, so this listener only closes the session.
      session.on('error', () => session.destroy());
      session.setTimeout(SESSION_IDLE_MS, () => session.close());
      const opened: Session = { session, streams: 0, used: false, lastStream: Infinity };
      session.on('goaway', (_code, lastStream: number) => {
        opened.lastStream = lastStream;
      });
      session.once('close', () => {
        all.delete(opened);
        if (all.size === 0) sessions.delete(upstream);
      });
      limitConnect(session.socket, connectMs);
      sessions.set(upstream, all.add(opened));
      return opened;
    },
    close(): void {
      for (const all of sessions.values()) for (const { session } of all) session.destroy();
    },
  };
}

function hasCapacity({ session, streams }: Session): boolean {
  const allowed = session.remoteSettings.maxConcurrentStreams ?? STREAMS_PER_SESSION;
  return !session.closed && !session.destroyed && streams < Math.min(allowed, STREAMS_PER_SESSION);
}

function placeOf(upstream: string) {
  const [, scheme = '', hostname = '', port = ''] = /^([\w+]+):\/\/\[?(.+?)\]?:(\d+)$/.exec(upstream) ?? [];
  return { hostname, port, secure: scheme === 'https+insecure' };
}

function limitConnect(socket: Socket, limitMs: number): void {
  if (!socket.connecting) return;
  const deadline = createDeadline(limitMs, () =>
    socket.destroy(new Error(`not connected within ${limitMs} ms`)),
  );
  const stop = (): void => deadline.clear();
  socket.once('connect', stop);
  socket.once('close', stop);
}

function answerTo(
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
  request.once('upgrade', (_answer, socket) => {
    socket.destroy();
    answered.reject(new Error('it switched protocols without a request'));
  });
  request.once('response', (response) => {
    // The reader of the body receives this error, so it is ignored here.
    response.on('error', () => undefined);
    answered.resolve({
      status: response.statusCode ?? 502,
      fields: response.rawHeaders,
      body: response,
      trailers: () => response.rawTrailers,
      isComplete: () => response.complete,
    });
  });
  send(body, request);
  return answered.promise;
}

function askStream(
  opened: Session,
  { method, path, fields, body, upstream }: ServiceQuestion,
  idleMs: number,
  signal: AbortSignal,
) {
  const answered = Promise.withResolvers<ServiceAnswer>();
  const { host, ...rest } = asHttp2(fields);
  const head = {
    ...rest,
    ':method': method,
    ':path': path,
    ':scheme': placeOf(upstream).secure ? 'https' : 'http',
    ':authority': typeof host === 'string' ? host : '',
  };
  const wasUsed = opened.used;
  const isRecent = staleWindow();
  const stream: ClientHttp2Stream = opened.session.request(head, { endStream: body === undefined, signal });
  opened.streams += 1;
  let trailers: FieldList = [];
  let begun = false;
  stream.setTimeout(idleMs, () => stream.destroy(new Error(`silent for ${idleMs} ms`)));
  stream.on('error', answered.reject);
  stream.once('close', () => {
    opened.streams -= 1;
    answered.reject(new Error('closed without a response'));
  });
  stream.once('headers', () => {
    begun = true;
  });
  stream.once('trailers', (_headers, _flags, raw: FieldList) => {
    trailers = raw;
  });
  stream.once('response', (headers, _flags, raw: FieldList) => {
    opened.used = true;
    answered.resolve({
      status: headers[':status'] ?? 502,
      fields: raw,
      body: stream,
      trailers: () => trailers,
      isComplete: () => !stream.aborted && (stream.rstCode ?? 0) === constants.NGHTTP2_NO_ERROR,
    });
  });
  if (body !== undefined) send(body, stream);
  return {
    answer: answered.promise,
    /**
     * Returns true if the failed request may be sent again, because the Service has not processed it, or because the
     * method is safe and the session was closed before the response.
     */
    isUnprocessed(): boolean {
      // RFC 9113 §8.7: the Service has not processed a refused stream, or a stream whose id is higher than the last
      // id in GOAWAY.
      if (stream.rstCode === constants.NGHTTP2_REFUSED_STREAM) return true;
      if ((stream.id ?? 0) > opened.lastStream) return true;
      return isRecent() && wasUsed && !begun && SAFE_METHODS.has(method) && opened.session.destroyed;
    },
  };
}

/**
 * Sends the body. If the client disconnects before the end of its body, the request is cancelled. An early response
 * does not cancel the request.
 */
function send(
  body: Readable | undefined,
  sink: NodeJS.WritableStream & { destroy(error?: Error): unknown },
): void {
  if (body === undefined) {
    sink.end();
    return;
  }
  body.on('error', () => sink.destroy(new Error('the client closed the connection')));
  body.once('aborted', () => sink.destroy(new Error('the client closed the connection')));
  body.pipe(sink);
}
