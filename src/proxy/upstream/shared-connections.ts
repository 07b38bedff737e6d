/**
 * HTTP/2 connections to the API server that many requests share: a stream each, with fields, window and end of its own. For requests
 * without a body that stay long (watches): they cost a third less memory than on connections of their own, and more CPU per piece.
 *
 * A connection takes as many streams as the API server allows it, at most `streamsPerConnection`, and new ones for `maxAgeMs` only, so that
 * of several API servers one does not stay for ever, and only while the credentials are those that it was opened with. Its loss ends its streams, as
 * the loss of a connection ends a request elsewhere. A stream that is not read holds its own window of bytes and keeps nobody else waiting.
 */
import {
  connect,
  constants,
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type IncomingHttpHeaders,
} from 'node:http2';
import { STATUS_CODES } from 'node:http';
import { asTailcastError, errorText, TailcastError } from '../../errors.ts';
import { CONNECTION_FIELDS } from '../../wire/connection-fields.ts';
import {
  MAX_RESPONSE_HEAD_BYTES,
  parseResponseHead,
  type BodyFraming,
  type ResponseHead,
} from './response-head.ts';
import { MAX_INFORMATIONAL } from './response-reader.ts';
import type { UpstreamConnector } from './upstream-connect.ts';
import {
  checkField,
  checkRequestLine,
  type Exchange,
  type ExchangeOwner,
  type UpstreamRequest,
} from './upstream.ts';

/** Limits of shared connections. */
export interface SharedLimits {
  readonly streamsPerConnection: number;
  /** A connection without streams is closed after this long. */
  readonly idleMs: number;
  /** A connection takes no new streams after this long. */
  readonly maxAgeMs: number;
  /** Time for the API server's first word on a connection. */
  readonly settingsTimeoutMs: number;
}

export const DEFAULT_SHARED_LIMITS: SharedLimits = {
  streamsPerConnection: 100,
  idleMs: 60_000,
  maxAgeMs: 600_000,
  settingsTimeoutMs: 10_000,
};

/** Bytes that may wait here for a client that does not read. */
const STREAM_WINDOW_BYTES = 128 * 1024;
const CONNECTION_WINDOW_BYTES = 1024 * 1024;
const MAX_SESSION_MEGABYTES = 32;
/** What the API server answers may have this many fields; API servers send some ten. */
const MAX_FIELDS = 256;
/** Connections that are opened for one request, when each takes fewer streams than the one before. */
const MAX_PLACED = 4;
/** After an API server has turned out not to speak HTTP/2. */
const ASK_AGAIN_MS = 60_000;

interface SharedConnection {
  /** What it was opened with. */
  readonly credentials: object;
  readonly session: ClientHttp2Session;
  readonly openedMs: number;
  idleSinceMs: number;
  streams: number;
}

/** How connections are opened. */
type Connector = Pick<UpstreamConnector, 'connect' | 'credentials'>;

/** A connection that is being opened, and those it is opened for. */
interface Opening {
  readonly credentials: object;
  readonly waiting: Set<StreamExchange>;
}

export class SharedConnections {
  readonly #connector: Connector;
  readonly #limits: SharedLimits;
  readonly #nowMs: () => number;
  readonly #connections = new Set<SharedConnection>();
  readonly #openings = new Set<Opening>();
  readonly #sweep: NodeJS.Timeout;
  #refusedUntilMs = -Infinity;
  /** Streams that the API server allowed on the last connection. */
  #allowed: number;
  #closed = false;

  /** @param connector offers HTTP/2 and HTTP/1.1 */
  constructor(connector: Connector, limits: SharedLimits, nowMs: () => number) {
    this.#connector = connector;
    this.#limits = limits;
    this.#allowed = limits.streamsPerConnection;
    this.#nowMs = nowMs;
    this.#sweep = setInterval(() => this.#closeStale(), Math.max(10, limits.idleMs / 4)).unref();
  }

  /** Connections now open, and the streams on them and those that wait for one. */
  get size(): { readonly connections: number; readonly streams: number } {
    let streams = 0;
    for (const connection of this.#connections) streams += connection.streams;
    for (const { waiting } of this.#openings) streams += waiting.size;
    return { connections: this.#connections.size, streams };
  }

  /** False for a while after the API server turned out not to speak HTTP/2. */
  get offered(): boolean {
    return this.#nowMs() >= this.#refusedUntilMs;
  }

  /**
   * Starts an exchange; `request` must be one of which `canShare` is true.
   * @param elsewhere starts it again where the API server does not speak HTTP/2
   * @throws TailcastError `SHUTTING_DOWN`, `INTERNAL` when a field could not be sent as one
   */
  start(request: UpstreamRequest, owner: ExchangeOwner, elsewhere: () => Exchange): Exchange {
    const exchange = new StreamExchange(request, owner, this, elsewhere);
    this.place(exchange);
    return exchange;
  }

  /** Gives the exchange a stream, now or when a connection is open. */
  place(exchange: StreamExchange): void {
    if (this.#closed) throw new TailcastError('SHUTTING_DOWN');
    const oldest = this.#nowMs() - this.#limits.maxAgeMs;
    for (const connection of this.#connections) {
      if (connection.openedMs > oldest && this.#isCurrent(connection) && this.#hasRoom(connection))
        return this.#begin(connection, exchange);
    }
    for (const opening of this.#openings) {
      if (this.#isCurrent(opening) && opening.waiting.size < this.#allowed)
        return void opening.waiting.add(exchange);
    }
    const opening = { credentials: this.#connector.credentials, waiting: new Set([exchange]) };
    this.#openings.add(opening);
    void this.#openFor(opening);
  }

  /** The exchange is not wanted any more, and had no stream yet. */
  forget(exchange: StreamExchange): void {
    for (const { waiting } of this.#openings) waiting.delete(exchange);
  }

  /** Closes connections as their last stream ends, and takes nothing new. */
  close(): void {
    this.#closed = true;
    clearInterval(this.#sweep);
    for (const { session } of this.#connections) session.close();
  }

  /** Whether it is opened with what others would be opened with now. */
  #isCurrent({ credentials }: Opening | SharedConnection): boolean {
    return credentials === this.#connector.credentials;
  }

  #hasRoom({ session, streams }: SharedConnection): boolean {
    return !session.closed && !session.destroyed && streams < this.#allowedOn(session);
  }

  /** The API server may change its mind about how many it takes. */
  #allowedOn({ remoteSettings }: ClientHttp2Session): number {
    const { streamsPerConnection } = this.#limits;
    return Math.min(streamsPerConnection, remoteSettings.maxConcurrentStreams ?? streamsPerConnection);
  }

  #begin(connection: SharedConnection, exchange: StreamExchange): void {
    connection.streams += 1;
    const over = (): void => {
      connection.streams -= 1;
      connection.idleSinceMs = this.#nowMs();
      if (connection.streams === 0 && !this.#isCurrent(connection)) connection.session.close();
    };
    exchange.begin(connection.session, over);
  }

  async #openFor(opening: Opening): Promise<void> {
    let connection: SharedConnection | undefined;
    let problem: TailcastError | undefined;
    try {
      connection = await this.#connect(opening.credentials);
      if (connection === undefined) this.#refusedUntilMs = this.#nowMs() + ASK_AGAIN_MS;
    } catch (error) {
      problem = asTailcastError(error);
    }
    this.#openings.delete(opening);
    for (const exchange of opening.waiting) {
      if (problem !== undefined) exchange.connectFailed(problem);
      else if (connection === undefined) exchange.goElsewhere();
      else if (this.#hasRoom(connection)) this.#begin(connection, exchange);
      else exchange.placeAgain();
    }
  }

  /** Undefined: the API server speaks no HTTP/2, or takes no streams. */
  async #connect(credentials: object): Promise<SharedConnection | undefined> {
    const socket = await this.#connector.connect();
    if (socket.alpnProtocol !== 'h2') {
      socket.destroy();
      return undefined;
    }
    const session = connect('https://api-server', {
      createConnection: () => socket,
      settings: { enablePush: false, initialWindowSize: STREAM_WINDOW_BYTES },
      maxSessionMemory: MAX_SESSION_MEGABYTES,
      maxHeaderListPairs: MAX_FIELDS,
    });
    await settled(session, this.#limits.settingsTimeoutMs);
    const allowed = this.#allowedOn(session);
    if (this.#closed || allowed === 0) {
      session.close();
      if (this.#closed) throw new TailcastError('SHUTTING_DOWN');
      return undefined;
    }
    this.#allowed = allowed;
    session.setLocalWindowSize(CONNECTION_WINDOW_BYTES);
    const nowMs = this.#nowMs();
    const connection = { credentials, session, openedMs: nowMs, idleSinceMs: nowMs, streams: 0 };
    this.#connections.add(connection);
    session.once('close', () => this.#connections.delete(connection));
    return connection;
  }

  #closeStale(): void {
    const limit = this.#nowMs() - this.#limits.idleMs;
    for (const { session, streams, idleSinceMs } of this.#connections) {
      if (streams === 0 && idleSinceMs <= limit) session.close();
    }
  }
}

/** Resolves when the other side has said how it wants to be spoken to. */
function settled(session: ClientHttp2Session, timeoutMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const fail = (reason: string, cause?: unknown): void => {
      clearTimeout(timer);
      session.destroy();
      reject(new TailcastError('UPSTREAM_UNAVAILABLE', `HTTP/2: ${reason}`, { cause }));
    };
    const timer = setTimeout(() => fail(`no settings within ${timeoutMs} ms`), timeoutMs);
    // its streams report for themselves
    session.on('error', (error: Error) => fail(errorText(error), error));
    session.once('close', () => fail('the connection was closed'));
    session.once('remoteSettings', () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

/** Longer heads go over a connection of their own: few are, and each would be a block of its own in the compression. */
const MAX_SHARED_HEAD_BYTES = 16 * 1024;
/** Impersonation is the only thing that is said by repeating a field. */
const REPEATED = 'impersonate-';

/** Whether a request can be a stream: a GET without a body whose fields HTTP/2 carries as they are. */
export function canShare({ method, target, headers, framing }: UpstreamRequest): boolean {
  if (method !== 'GET' || framing.kind !== 'none') return false;
  const seen = new Set<string>();
  let bytes = target.length;
  for (let index = 0; index < headers.length; index += 2) {
    const name = (headers[index] ?? '').toLowerCase();
    bytes += name.length + (headers[index + 1] ?? '').length;
    if (CONNECTION_FIELDS.has(name) || name === 'expect') return false;
    if (seen.has(name) && !name.startsWith(REPEATED)) return false;
    seen.add(name);
  }
  return seen.has('host') && bytes <= MAX_SHARED_HEAD_BYTES;
}

/**
 * The request's own fields, in their order, and nothing of any other request.
 * @throws TailcastError `INTERNAL`; Node would send a NUL, or half of a letter, as it is
 */
function streamFields({ method, target, headers }: UpstreamRequest): string[] {
  checkRequestLine(method, target);
  const fields: string[] = [];
  let authority = '';
  for (let index = 0; index < headers.length; index += 2) {
    const name = (headers[index] ?? '').toLowerCase();
    const value = headers[index + 1] ?? '';
    checkField(name, value);
    if (name === 'host') authority = value;
    else fields.push(name, value);
  }
  return [':method', method, ':scheme', 'https', ':authority', authority, ':path', target, ...fields];
}

/** One request and its response on a stream. */
class StreamExchange implements Exchange {
  readonly requestComplete = true;
  readonly #fields: readonly string[];
  readonly #owner: ExchangeOwner;
  readonly #shared: SharedConnections;
  readonly #elsewhere: () => Exchange;
  #stream: ClientHttp2Stream | undefined;
  /** Where it went when there was no HTTP/2. */
  #replacement: Exchange | undefined;
  #paused = false;
  #over = false;
  #retried = false;
  #placed = 0;
  /** Bytes that are still to come of a body with a length. */
  #owed: number | undefined;
  #answered = false;
  #informational = 0;

  constructor(
    request: UpstreamRequest,
    owner: ExchangeOwner,
    shared: SharedConnections,
    elsewhere: () => Exchange,
  ) {
    this.#fields = streamFields(request);
    this.#owner = owner;
    this.#shared = shared;
    this.#elsewhere = elsewhere;
  }

  /** @param over called once, when the stream has ended */
  begin(session: ClientHttp2Session, over: () => void): void {
    let stream: ClientHttp2Stream;
    try {
      stream = session.request([...this.#fields], { endStream: true });
    } catch (error) {
      over();
      this.#fail(new TailcastError('UPSTREAM_BROKEN', errorText(error), { cause: error }));
      return;
    }
    this.#stream = stream;
    let cause: Error | undefined;
    stream.on('headers', (headers, _flags, raw) => this.#guard(() => this.#interim(headers, raw ?? [])));
    stream.on('response', (headers, _flags, raw) => this.#guard(() => this.#head(headers, raw ?? [])));
    stream.on('data', (chunk: Buffer) => this.#guard(() => this.#body(chunk)));
    stream.on('end', () => this.#guard(() => this.#end(stream)));
    stream.on('error', (error: Error) => (cause = error));
    stream.on('close', () => {
      over();
      this.#lost(stream, cause);
    });
    if (this.#paused) stream.pause();
  }

  connectFailed(error: TailcastError): void {
    this.#fail(error);
  }

  /** The connection it waited for has no room for it. */
  placeAgain(): void {
    this.#guard(() => {
      this.#placed += 1;
      if (this.#placed > MAX_PLACED)
        throw new TailcastError('UPSTREAM_UNAVAILABLE', 'HTTP/2: no room for a stream');
      this.#shared.place(this);
    });
  }

  goElsewhere(): void {
    if (this.#over) return;
    this.#guard(() => {
      this.#replacement = this.#elsewhere();
      if (this.#paused) this.#replacement.pause();
    });
  }

  write(): boolean {
    throw new TailcastError('INTERNAL', 'a body on a stream without one');
  }

  end(): void {}

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    this.#replacement?.abort();
    if (this.#stream === undefined) this.#shared.forget(this);
    else this.#cancel();
  }

  pause(): void {
    this.#paused = true;
    if (this.#replacement === undefined) this.#stream?.pause();
    else this.#replacement.pause();
  }

  resume(): void {
    this.#paused = false;
    if (this.#replacement === undefined) this.#stream?.resume();
    else this.#replacement.resume();
  }

  #interim(headers: IncomingHttpHeaders, raw: readonly string[]): void {
    if (this.#over) return;
    this.#informational += 1;
    if (this.#informational > MAX_INFORMATIONAL)
      throw new TailcastError('UPSTREAM_BROKEN', 'too many interim responses');
    this.#owner.informational(headOf(headers, raw));
  }

  #head(headers: IncomingHttpHeaders, raw: readonly string[]): void {
    if (this.#over) return;
    const head = headOf(headers, raw);
    const framing = framingOf(head);
    this.#answered = true;
    this.#owed = framing.kind === 'length' ? framing.bytes : undefined;
    this.#owner.head(head, framing);
    // nothing of the body may come for long
    this.#owner.flush();
  }

  #body(chunk: Buffer): void {
    if (this.#over) return;
    if (this.#owed !== undefined) this.#owed -= chunk.length;
    this.#owner.body(chunk, 0, chunk.length);
    this.#owner.flush();
  }

  #end(stream: ClientHttp2Stream): void {
    // Node ends the body of a stream that broke off as well
    if (
      this.#over ||
      !this.#answered ||
      stream.aborted ||
      (stream.rstCode ?? 0) !== constants.NGHTTP2_NO_ERROR
    )
      return;
    if ((this.#owed ?? 0) !== 0)
      throw new TailcastError('UPSTREAM_BROKEN', 'its answer is not as long as it said');
    this.#over = true;
    this.#owner.end(NO_TRAILERS);
  }

  #lost(stream: ClientHttp2Stream, cause: Error | undefined): void {
    if (this.#over) return;
    this.#stream = undefined;
    // RFC 9113 §8.7: whoever refuses a stream has done nothing about it
    if (stream.rstCode === constants.NGHTTP2_REFUSED_STREAM && !this.#answered && !this.#retried) {
      this.#retried = true;
      return this.placeAgain();
    }
    const reason = cause === undefined ? 'it closed the stream' : errorText(cause);
    this.#fail(new TailcastError('UPSTREAM_BROKEN', reason, { cause }));
  }

  /** Whatever is thrown in an event of this stream, by its own side or by its owner's, ends this exchange alone. */
  #guard(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.#cancel();
      this.#fail(asTailcastError(error));
    }
  }

  #cancel(): void {
    const stream = this.#stream;
    if (stream === undefined || stream.closed) return;
    stream.close(constants.NGHTTP2_CANCEL);
    // what has come is dropped, or the stream would wait for somebody to read it
    stream.resume();
  }

  #fail(error: TailcastError): void {
    if (this.#over) return;
    this.#over = true;
    this.#owner.failed(error);
  }
}

const NO_TRAILERS: readonly string[] = [];

/**
 * The head as HTTP/1.1 has it, names written as API servers write them, and read by the same parser as any other: what it refuses there it refuses here.
 * @throws TailcastError `UPSTREAM_BROKEN`
 */
function headOf(headers: IncomingHttpHeaders, raw: readonly string[]): ResponseHead {
  const status = Number(headers[':status']);
  let text = `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}\r\n`;
  for (let index = 0; index < raw.length; index += 2) {
    const name = raw[index] ?? '';
    if (!name.startsWith(':')) text += `${name.replace(FIRST_LETTERS, upperCase)}: ${raw[index + 1]}\r\n`;
  }
  const head = parseResponseHead(Buffer.from(`${text}\r\n`, 'latin1'), 0);
  if (head === undefined || text.length > MAX_RESPONSE_HEAD_BYTES)
    throw new TailcastError('UPSTREAM_BROKEN', 'a head that is none');
  return head;
}

const FIRST_LETTERS = /(?:^|-)[a-z]/g;
const upperCase = (letter: string): string => letter.toUpperCase();

function framingOf(head: ResponseHead): BodyFraming {
  if (head.status === 204 || head.status === 304) return { kind: 'none' };
  return head.contentLength === undefined ? { kind: 'close' } : { kind: 'length', bytes: head.contentLength };
}
