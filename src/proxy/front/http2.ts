/**
 * Serves HTTP/2 clients with the core stream API of Node.js: each stream becomes an `InboundRequest` for the pump.
 * nghttp2 checks frames, header compression and most of RFC 9113 §8; this module checks the rest. Extended CONNECT (RFC
 * 8441) is not offered: upgrades use HTTP/1.1.
 */
import {
  constants,
  createServer,
  type Http2Server,
  type OutgoingHttpHeaders,
  type ServerHttp2Session,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Socket } from 'node:net';
import { createDeadline } from '../../async/deadline.ts';
import { asTailcastError, errorText, TailcastError } from '../../errors.ts';
import { cleanResponseHeaders } from '../../kube/headers.ts';
import { STATUS_HEADERS, type StatusResponse } from '../../kube/status.ts';
import { formatWarning } from '../../kube/warning.ts';
import type { Peer } from '../../tailnet/identity.ts';
import type { InboundRequest } from '../gate/gate.ts';
import { Pump, type ClientSide, type HeadExtra, type PumpDeps, type RequestBody } from './pump.ts';
import { fieldsForBrowser } from '../gate/browser-pages.ts';
import { HEADER_LINE_BYTES, MAX_PARSED_HEAD_BYTES } from '../gate/gate.ts';
import { MAX_REJECTED_STREAMS, MAX_SESSION_MEGABYTES, type UnreadStreams } from './http2-heads.ts';
import { http2Fields } from '../../http2-fields.ts';
import { joinSmallChunks } from '../../memory/join-chunks.ts';
import { joinSmallWrites } from '../../memory/join-writes.ts';
import { releaseOf } from '../../memory/read-buffers.ts';
import {
  headerList,
  MAX_RESPONSE_HEAD_BYTES,
  type BodyFraming,
  type ResponseHead,
} from '../upstream/response-head.ts';
import type { RequestFraming } from '../upstream/upstream.ts';

/** Limits of one connection. client-go sends all requests, including watches, over one connection. */
const HTTP2_LIMITS = {
  maxConcurrentStreams: 250,
  /**
   * Flow-control windows for request bodies, per stream and per connection. The window of the connection
   * limits its memory.
   */
  streamWindowBytes: 1024 * 1024,
  connectionWindowBytes: 8 * 1024 * 1024,
  /**
   * Maximum size of the headers of a stream, in bytes, counted as in RFC 9113 §6.5.2. If the headers are larger,
   * nghttp2 resets the stream without a response. The gate therefore has a smaller limit, above which it responds with
   * a Status.
   */
  maxHeaderListBytes: MAX_PARSED_HEAD_BYTES,
  /**
   * Maximum size of a frame, in bytes. nghttp2 accepts at most nine frames for one header section, so a compressed
   * header section has at most nine times this size. Go's client splits long headers into frames of this size.
   */
  maxFrameBytes: 64 * 1024,
  /**
   * Maximum size of the headers or trailers of a response, as nghttp2 counts them: twice the longest response
   * head.
   */
  maxSentHeadBytes: 2 * MAX_RESPONSE_HEAD_BYTES,
} as const;

/** Creates a server that does not listen: connections are passed to it. */
export function createHttp2Server(): Http2Server {
  return createServer({
    settings: {
      maxConcurrentStreams: HTTP2_LIMITS.maxConcurrentStreams,
      initialWindowSize: HTTP2_LIMITS.streamWindowBytes,
      maxHeaderListSize: HTTP2_LIMITS.maxHeaderListBytes,
      maxFrameSize: HTTP2_LIMITS.maxFrameBytes,
      enableConnectProtocol: false,
      enablePush: false,
    },
    maxHeaderListPairs: HTTP2_LIMITS.maxHeaderListBytes / HEADER_LINE_BYTES,
    maxSessionMemory: MAX_SESSION_MEGABYTES,
    maxSendHeaderBlockLength: HTTP2_LIMITS.maxSentHeadBytes,
    maxSettings: 32,
    maxOutstandingPings: 10,
    maxSessionInvalidFrames: 100,
    maxSessionRejectedStreams: MAX_REJECTED_STREAMS,
    // against rapid resets: clients may reset 1000 streams at once and then 100 per second; further resets cause a
    // GOAWAY
    streamResetBurst: 1000,
    streamResetRate: 100,
  });
}

/** Prepares a new HTTP/2 session. */
export function adoptSession(session: ServerHttp2Session, socket: Socket, unread: UnreadStreams): void {
  session.setLocalWindowSize(HTTP2_LIMITS.connectionWindowBytes);
  session.once('close', () => unread.ended(socket.bytesRead));
  // an error of an HTTP/2 session also ends its streams, which report the error
  session.on('error', (error: Error) => {
    unread.failed(error);
    session.destroy();
  });
}

/** Serves one stream. */
export function serveStream(
  stream: ServerHttp2Stream,
  rawHeaders: readonly string[],
  context: {
    readonly deps: PumpDeps;
    readonly peer: Peer;
    readonly signal: AbortSignal;
    readonly refusal?: TailcastError | undefined;
  },
): void {
  const { inbound, problem, framing } = mapStream(rawHeaders, context.peer);
  if (!stream.endAfterHeaders) joinSmallChunks(stream);
  joinSmallWrites(stream);
  const body: RequestBody = {
    framing: stream.endAfterHeaders ? NO_FRAMING : framing,
    stream,
    expectsContinue: expectsContinue(inbound.rawHeaders),
  };
  const pump = new Pump(context.deps, new StreamClient(stream, inbound.method, context.deps), inbound, body);
  stream.on('error', ignore);
  stream.on('close', () => pump.clientGone());
  stream.on('drain', () => pump.clientDrained());
  const refusal = context.refusal ?? problem;
  if (refusal !== undefined) pump.refuse(refusal);
  else void pump.run(context.signal);
}

/**
 * Time for the client to read an error response, in milliseconds. A client with a flow-control window of 0 would
 * otherwise block the response forever.
 */
const REFUSAL_MS = 10_000;

/** Ignores an 'error' event, because a 'close' event follows. */
function ignore(): void {}

const NO_FRAMING = { kind: 'none' } as const;

/**
 * Returns the framing of a request body. nghttp2 already rejects invalid and repeated lengths. This function
 * checks them again, because a wrong length could let a client smuggle a second request to the API server.
 *
 * @throws TailcastError `REQUEST_MALFORMED`
 */
export function framingOf(rawHeaders: readonly string[]): RequestFraming {
  const lengths = valuesOf(rawHeaders, 'content-length');
  if (valuesOf(rawHeaders, 'transfer-encoding').length > 0)
    throw new TailcastError('REQUEST_MALFORMED', 'Transfer-Encoding does not exist in HTTP/2');
  const [length] = lengths;
  if (length === undefined) return { kind: 'chunked' };
  const bytes = Number(length);
  if (lengths.length > 1 || !/^\d+$/.test(length) || !Number.isSafeInteger(bytes))
    throw new TailcastError('REQUEST_MALFORMED', 'its Content-Length is not a length');
  return { kind: 'length', bytes };
}

function expectsContinue(rawHeaders: readonly string[]): boolean {
  return valuesOf(rawHeaders, 'expect').some((value) => value.toLowerCase() === '100-continue');
}

/** @param name in lower case */
function valuesOf(rawHeaders: readonly string[], name: string): readonly string[] {
  const values: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    if (rawHeaders[index]?.toLowerCase() === name) values.push(rawHeaders[index + 1] ?? '');
  }
  return values;
}

interface MappedStream {
  readonly inbound: InboundRequest;
  readonly problem: TailcastError | undefined;
  /** Framing of the body, if there is a body. */
  readonly framing: RequestFraming;
}

/**
 * Converts the headers of a stream to a request. nghttp2 has checked that each pseudo-header occurs once and
 * before all other headers, and that names are in lower case.
 */
export function mapStream(rawHeaders: readonly string[], peer: Peer): MappedStream {
  const pseudo = new Map<string, string>();
  const fields: string[] = [];
  let cookies: string | undefined;
  let host: string | undefined;
  let hosts = 0;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    const value = rawHeaders[index + 1] ?? '';
    if (name.startsWith(':')) {
      pseudo.set(name, value);
    } else if (name === 'host') {
      host = value;
      hosts += 1;
    } else if (name === 'cookie') {
      // RFC 9113 §8.2.3: cookie crumbs are joined for HTTP/1.1
      cookies = cookies === undefined ? value : `${cookies}; ${value}`;
    } else {
      fields.push(name, value);
    }
  }
  if (cookies !== undefined) fields.push('cookie', cookies);
  const authority = pseudo.get(':authority');
  const named = authority ?? host;
  const inbound: InboundRequest = {
    method: pseudo.get(':method') ?? '',
    target: pseudo.get(':path') ?? '',
    rawHeaders: named === undefined ? fields : ['host', named, ...fields],
    peer,
    upgrade: false,
  };
  const problem = findProblem(pseudo, authority, host, hosts);
  if (problem !== undefined) return { inbound, problem, framing: NO_FRAMING };
  try {
    return { inbound, problem, framing: framingOf(fields) };
  } catch (error) {
    return { inbound, problem: asTailcastError(error), framing: NO_FRAMING };
  }
}

function findProblem(
  pseudo: ReadonlyMap<string, string>,
  authority: string | undefined,
  host: string | undefined,
  hosts: number,
): TailcastError | undefined {
  if (pseudo.has(':protocol')) return new TailcastError('METHOD_REFUSED', 'extended CONNECT');
  if (pseudo.get(':method') === 'CONNECT') return new TailcastError('METHOD_REFUSED', 'CONNECT');
  if (hosts > 1) return new TailcastError('HEADER_REFUSED', 'there are two Host headers');
  if (authority !== undefined && host !== undefined && authority.toLowerCase() !== host.toLowerCase()) {
    return new TailcastError('HEADER_REFUSED', ':authority and host differ');
  }
  if (pseudo.get(':scheme') !== 'https')
    return new TailcastError('REQUEST_NOT_CANONICAL', 'its scheme is not https');
  return undefined;
}

class StreamClient implements ClientSide {
  readonly protocol = 'h2';
  readonly needsPayload = true;
  readonly #stream: ServerHttp2Stream;
  readonly #method: string;
  readonly #keepCookies: boolean;
  #trailers: readonly string[] = [];
  /** A head that is not sent yet, because the complete body may follow immediately. */
  #held: { readonly fields: string[]; readonly bodyBytes: number } | undefined;

  constructor(stream: ServerHttp2Stream, method: string, options: { readonly keepCookies: boolean }) {
    this.#stream = stream;
    this.#method = method;
    this.#keepCookies = options.keepCookies;
  }

  get begun(): boolean {
    return this.#stream.headersSent;
  }

  get unsentBytes(): number {
    return this.#stream.writableLength;
  }

  informational(head: ResponseHead): void {
    if (this.#gone() || this.#stream.headersSent) return;
    orBroken(() =>
      this.#stream.additionalHeaders({ ':status': head.status, ...asObject(this.#fields(head, false)) }),
    );
  }

  sendContinue(): void {
    if (!this.#gone()) this.#stream.additionalHeaders({ ':status': constants.HTTP_STATUS_CONTINUE });
  }

  head(head: ResponseHead, framing: BodyFraming, extra: HeadExtra): void {
    if (this.#gone()) return;
    const flat = [':status', String(head.status), ...this.#fields(head, extra.shown)];
    for (const warning of extra.warnings) flat.push('warning', formatWarning(warning));
    if (framing.kind === 'none') orBroken(() => this.#stream.respond(flat, { endStream: true }));
    else this.#held = { fields: flat, bodyBytes: framing.kind === 'length' ? framing.bytes : -1 };
  }

  write(chunk: Buffer, start: number, end: number): boolean {
    if (this.#gone()) return true;
    const piece = chunk.subarray(start, end);
    const held = this.#held;
    if (held?.bodyBytes === piece.length) {
      // a complete body is sent with one write, because `waitForTrailers` and an empty last frame would use 4 to 8 % of
      // the CPU
      this.#held = undefined;
      orBroken(() => this.#stream.respond(held.fields));
      this.#stream.end(piece, releaseOf(piece));
      return true;
    }
    this.#sendHead();
    return this.#stream.write(piece, releaseOf(piece));
  }

  flush(): boolean {
    this.#sendHead();
    return true;
  }

  end(trailers: readonly string[]): void {
    if (this.#gone()) return;
    this.#sendHead();
    this.#trailers = trailers;
    if (!this.#stream.writableEnded) this.#stream.end();
    this.#letGo();
  }

  refuse({ httpStatus, body, retryAfterSeconds }: StatusResponse): void {
    if (this.#gone() || this.#stream.headersSent) return this.cut();
    const bytes = Buffer.from(body);
    const flat = [':status', String(httpStatus)];
    for (let index = 0; index < STATUS_HEADERS.length; index += 2) {
      flat.push((STATUS_HEADERS[index] ?? '').toLowerCase(), STATUS_HEADERS[index + 1] ?? '');
    }
    if (retryAfterSeconds !== undefined) flat.push('retry-after', String(retryAfterSeconds));
    flat.push('content-length', String(bytes.length));
    const head = this.#method === 'HEAD';
    this.#stream.respond(flat, { endStream: head });
    if (!head) this.#stream.end(bytes);
    const deadline = createDeadline(REFUSAL_MS, () => this.cut());
    this.#stream.once('close', deadline.clear);
    this.#letGo();
  }

  /**
   * Sends the head. With `waitForTrailers`, only `sendTrailers` ends the stream. Without `waitForTrailers`, Node.js
   * would end the stream normally when `cut` closes it, and an incomplete body would look complete.
   */
  #sendHead(): void {
    const held = this.#held;
    if (held === undefined || this.#gone()) return;
    this.#held = undefined;
    this.#stream.on('wantTrailers', () => this.#sendTrailers());
    orBroken(() => this.#stream.respond(held.fields, { waitForTrailers: true }));
  }

  /**
   * Resets the stream with an error code, because after NO_ERROR or a normal end the body would look
   * complete.
   */
  cut(): void {
    if (!this.#stream.closed) this.#stream.close(constants.NGHTTP2_INTERNAL_ERROR);
  }

  /** Closes the stream after the response if the request body is still incomplete (RFC 9113 §8.1). */
  #letGo(): void {
    const stream = this.#stream;
    if (stream.readableEnded || stream.endAfterHeaders) return;
    const close = (): void => {
      if (!stream.closed && !stream.readableEnded) stream.close(constants.NGHTTP2_NO_ERROR);
    };
    if (stream.writableFinished) close();
    else stream.once('finish', close);
  }

  #sendTrailers(): void {
    if (this.#gone()) return;
    try {
      this.#stream.sendTrailers(asObject(http2Fields(this.#trailers)));
    } catch {
      // a normal end without the trailers would make the response look complete
      this.cut();
    }
  }

  #gone(): boolean {
    return this.#stream.closed || this.#stream.destroyed;
  }

  #fields(head: ResponseHead, shown: boolean): readonly string[] {
    const clean = cleanResponseHeaders(headerList(head), { keepCookies: this.#keepCookies });
    return http2Fields(shown ? fieldsForBrowser(clean) : clean);
  }
}

/**
 * Converts errors of Node.js to `UPSTREAM_BROKEN`. Node.js throws for headers that are invalid in HTTP/2. The gateway
 * cannot relay such a response.
 */
function orBroken(send: () => void): void {
  try {
    send();
  } catch (error) {
    throw new TailcastError('UPSTREAM_BROKEN', errorText(error), { cause: error });
  }
}

/** Converts a header list to an object, which Node.js requires for trailers and interim responses. */
function asObject(fields: readonly string[]): OutgoingHttpHeaders {
  const headers: OutgoingHttpHeaders = {};
  for (let index = 0; index < fields.length; index += 2) {
    const name = fields[index] ?? '';
    const value = fields[index + 1] ?? '';
    const earlier = Object.hasOwn(headers, name) ? headers[name] : undefined;
    if (earlier === undefined) headers[name] = value;
    else headers[name] = Array.isArray(earlier) ? [...earlier, value] : [String(earlier), value];
  }
  return headers;
}
