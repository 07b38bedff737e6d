/**
 * Serves HTTP/1.1 clients: reads requests with the parser of Node.js, and writes responses to the socket as the API
 * server sent them.
 *
 * The parser of Node.js (llhttp) runs in strict mode, and the response queue of Node.js keeps responses in order. The
 * gateway changes a response head only to remove or add headers. It forwards chunk framing unchanged.
 */
import type { IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { STATUS_CODES } from 'node:http';
import { asTailcastError, TailcastError } from '../../errors.ts';
import { cleanResponseHeaders } from '../../kube/headers.ts';
import { rawStatusResponse, STATUS_HEADERS, type StatusResponse } from '../../kube/status.ts';
import { formatWarning } from '../../kube/warning.ts';
import type { Peer } from '../../tailnet/identity.ts';
import { Pump, type ClientSide, type HeadExtra, type PumpDeps, type RequestBody } from './pump.ts';
import { Account } from '../gate/account.ts';
import { fieldsForBrowser } from '../gate/browser-pages.ts';
import { joinSmallChunks } from '../../memory/join-chunks.ts';
import { releaseOf } from '../../memory/read-buffers.ts';
import type { HeadPlace } from '../gate/user-limits.ts';
import type { RelayResponse } from './relay-response.ts';
import { holdWrites, releaseAtTurnEnd, releaseWrites } from './turn-writes.ts';
import { headerList, reasonPhrase, type BodyFraming, type ResponseHead } from '../upstream/response-head.ts';
import type { RequestFraming } from '../upstream/upstream.ts';

/** Maximum number of requests that are queued on a connection. Kubernetes clients do not pipeline. */
const MAX_PIPELINED = 16;
/**
 * Maximum number of unsent response bytes of a client. Above the limit, the gateway pauses reading from the API server.
 * With the default limit of Node.js, 64 KiB, a single read from a fast API server would reach the limit, so every read
 * would cause a pause. Twice that limit saved 12 % of the CPU time of a large list.
 */
const MAX_UNSENT_BYTES = 128 * 1024;
/**
 * Maximum size of pieces that are joined before a write: the size of a TLS record. Joining larger pieces has
 * no advantage.
 */
const MAX_JOINED_BYTES = 16 * 1024;
/** Time after the accept of a connection during which it does not count as idle, even without requests. */
const FIRST_REQUEST_MS = 1000;
/** Maximum time for which a closing connection still reads and discards a request body. */
const LINGER_MS = 2000;

/** One HTTP/1.1 client connection and its current request. */
export class PlainConnection {
  readonly socket: Socket;
  readonly peer: Peer;
  readonly #deps: PumpDeps;
  readonly #abort = new AbortController();
  #current: Pump | undefined;
  #waiting = 0;
  #closing = false;
  #linger: NodeJS.Timeout | undefined;
  readonly #acceptedMs = performance.now();
  #used = false;
  /** Counter for the bytes of an incomplete head, see {@link countHeads}. */
  readonly #head: HeadPlace | undefined;
  #headBytes = 0;
  #latest: IncomingMessage | undefined;
  #isBody = false;
  #hasArrived = false;
  readonly #onData = (chunk: Buffer): void => this.#received(chunk.length);

  constructor(socket: Socket, peer: Peer, deps: PumpDeps) {
    this.socket = socket;
    this.peer = peer;
    this.#deps = deps;
    this.#head = deps.users?.head(peer);
    socket.on('drain', () => this.#current?.clientDrained());
    socket.on('close', () => {
      clearTimeout(this.#linger);
      this.#head?.leave();
      this.#abort.abort();
      const current = this.#current;
      this.#current = undefined;
      current?.clientGone();
    });
  }

  /** Starts counting the bytes of incomplete heads. Called once, after the parser of Node.js got the socket. */
  countHeads(): void {
    if (this.#head !== undefined) this.socket.on('data', this.#onData);
  }

  /** Called when the head of a request is complete. */
  arrived(request: IncomingMessage): void {
    this.#latest = request;
    this.#hasArrived = true;
    this.#headBytes = 0;
    this.#head?.leave();
  }

  /** Called when the connection switches to another protocol. No further heads follow. */
  switched(): void {
    this.socket.off('data', this.#onData);
  }

  /**
   * Counts bytes that the parser of Node.js has read. A read that contains a complete head, or bytes of a body, does
   * not count.
   */
  #received(bytes: number): void {
    const wasBody = this.#isBody || this.#hasArrived;
    this.#isBody = this.#latest?.complete === false;
    this.#hasArrived = false;
    if (wasBody || this.#isBody || this.#closing) return;
    this.#headBytes += bytes;
    try {
      this.#head?.hold(this.#headBytes);
    } catch (error) {
      this.malformed(asTailcastError(error));
      // discards further input, so that the parser gets no more bytes
      this.socket.removeAllListeners('data');
      this.socket.resume();
    }
  }

  /** True while a request is in progress or queued. */
  get busy(): boolean {
    return this.#current !== undefined || this.#waiting > 0;
  }

  /** True if no further request is accepted on this connection. */
  get closing(): boolean {
    return this.#closing;
  }

  /** True while the first request may be in flight. */
  get fresh(): boolean {
    return !this.#used && !this.socket.destroyed && performance.now() - this.#acceptedMs < FIRST_REQUEST_MS;
  }

  /**
   * Serves a request after the earlier requests of the connection. `expectsContinue`: the client waits for a 100
   * response before it sends the body.
   */
  request(request: IncomingMessage, response: RelayResponse, expectsContinue: boolean): void {
    this.#used = true;
    if (this.#closing) return this.#drop();
    if (response.socket !== null) return this.#serve(request, response, expectsContinue);
    this.#waiting += 1;
    if (this.#waiting > MAX_PIPELINED) return this.drop(TOO_MANY_PIPELINED, request);
    response.once('socket', () => {
      this.#waiting -= 1;
      if (this.#closing) this.#drop();
      else this.#serve(request, response, expectsContinue);
    });
  }

  /**
   * Closes the connection if it is idle. A connection with a request closes after the response; a new
   * connection gets time for its first request.
   */
  retire(): void {
    if (this.busy) return;
    if (!this.fresh) return this.socket.destroySoon();
    const timer = setTimeout(() => this.retire(), FIRST_REQUEST_MS);
    this.socket.once('close', () => clearTimeout(timer));
  }

  /** Called after the complete response was written to the socket. `keep` is true if the connection can be reused. */
  answered(request: IncomingMessage, keep: boolean): void {
    this.#current = undefined;
    if (keep) return;
    this.#closing = true;
    if (request.complete) return this.socket.destroySoon();
    // the kernel resets a connection that is closed with unread input, and the client would lose the response
    this.socket.end();
    this.#linger = setTimeout(() => this.socket.destroy(), LINGER_MS).unref();
  }

  /**
   * Handles input that is not a valid request. A request in progress fails with the error. Otherwise the
   * client gets the error as a Status. If requests are queued, the connection is closed without a Status,
   * because the client could treat the Status as the response to one of them.
   *
   * @param asked the request, if its head was parsed
   */
  malformed(error: TailcastError, asked?: Pick<IncomingMessage, 'method' | 'url'>): void {
    if (this.#closing) return;
    this.#closing = true;
    if (this.#current !== undefined) return this.#current.failed(error);
    if (this.#waiting > 0 || !this.socket.writable) return this.drop(error, asked);
    this.#refused(error, asked, error.entry.status);
    this.socket.end(rawStatusResponse(error));
    this.#linger = setTimeout(() => this.socket.destroy(), LINGER_MS).unref();
  }

  /** Closes the connection because a request cannot be answered, and logs and counts the refusal. */
  drop(error: TailcastError, asked?: Pick<IncomingMessage, 'method' | 'url'>): void {
    this.#refused(error, asked, undefined);
    this.#drop();
  }

  #refused(
    error: TailcastError,
    asked: Pick<IncomingMessage, 'method' | 'url'> | undefined,
    status: number | undefined,
  ): void {
    const inbound = { method: asked?.method ?? '', target: asked?.url ?? '', peer: this.peer };
    const account = new Account('h1', inbound, this.#deps);
    account.refused(error, status);
    account.close();
  }

  /**
   * Adds a response of the portal to the response queue of the connection. Returns false if the connection was closed
   * instead.
   */
  occupy(response: RelayResponse): boolean {
    this.#used = true;
    this.#waiting += 1;
    if (this.#closing || this.#waiting > MAX_PIPELINED) {
      if (this.#closing) this.#drop();
      else this.drop(TOO_MANY_PIPELINED);
      return false;
    }
    response.once('close', () => (this.#waiting -= 1));
    return true;
  }

  #drop(): void {
    this.socket.destroy();
  }

  #serve(request: IncomingMessage, response: RelayResponse, expectsContinue: boolean): void {
    const client = new PlainClient(this, request, response, this.#deps);
    const framing = requestFraming(request.rawHeaders);
    if (framing.kind !== 'none') joinSmallChunks(request);
    const body: RequestBody = { framing, stream: request, expectsContinue };
    const inbound = {
      method: request.method ?? '',
      target: request.url ?? '',
      rawHeaders: request.rawHeaders,
      peer: this.peer,
      upgrade: false,
    };
    const pump = new Pump(this.#deps, client, inbound, body);
    this.#current = pump;
    // the parser of Node.js also accepts 0.9 and 2.0 as HTTP versions
    if (request.httpVersion === '1.1' || request.httpVersion === '1.0') void pump.run(this.#abort.signal);
    else pump.refuse(new TailcastError('REQUEST_MALFORMED', `HTTP/${request.httpVersion} is not supported`));
  }
}

/** Returns the framing of a request body. llhttp has already checked Content-Length and Transfer-Encoding. */
function requestFraming(rawHeaders: readonly string[]): RequestFraming {
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = rawHeaders[index] ?? '';
    if (name.length === 14 && name.toLowerCase() === 'content-length') {
      return { kind: 'length', bytes: Number(rawHeaders[index + 1]) };
    }
    if (name.length === 17 && name.toLowerCase() === 'transfer-encoding') return { kind: 'chunked' };
  }
  return NO_FRAMING;
}
const NO_FRAMING = { kind: 'none' } as const;

const TOO_MANY_PIPELINED = new TailcastError(
  'OVERLOADED',
  `over ${MAX_PIPELINED} requests wait on a connection`,
);

/**
 * Delivery of the body: with the framing of the API server, with chunks of the gateway, or without framing
 * (the body ends with the connection).
 */
type Delivery = 'verbatim' | 'encode' | 'bare';

class PlainClient implements ClientSide {
  readonly protocol = 'h1';
  readonly needsPayload: boolean;
  readonly #connection: PlainConnection;
  readonly #socket: Socket;
  readonly #request: IncomingMessage;
  readonly #response: RelayResponse;
  readonly #deps: Pick<PumpDeps, 'draining' | 'keepCookies'>;
  readonly #http10: boolean;
  #delivery: Delivery = 'verbatim';
  #keep = true;
  /** The head is kept until the first bytes of the body, so that both are sent together. */
  #held: ResponseHead | undefined;
  #heldText = '';
  #begun = false;

  constructor(
    connection: PlainConnection,
    request: IncomingMessage,
    response: RelayResponse,
    deps: Pick<PumpDeps, 'draining' | 'keepCookies'>,
  ) {
    this.#connection = connection;
    this.#socket = connection.socket;
    this.#request = request;
    this.#response = response;
    this.#deps = deps;
    this.#http10 = request.httpVersionMinor === 0;
    this.needsPayload = this.#http10;
  }

  get begun(): boolean {
    return this.#begun;
  }

  get unsentBytes(): number {
    return this.#socket.writableLength;
  }

  informational(head: ResponseHead): void {
    if (this.#http10) return;
    const phrase = reasonPhrase(head);
    this.#socket.write(`HTTP/1.1 ${head.status} ${phrase}\r\n${this.#fieldText(head, false)}\r\n`, 'latin1');
  }

  sendContinue(): void {
    if (!this.#http10) this.#socket.write('HTTP/1.1 100 Continue\r\n\r\n', 'latin1');
  }

  head(head: ResponseHead, framing: BodyFraming, extra: HeadExtra): void {
    this.#keep =
      this.#response.shouldKeepAlive && !this.#http10 && extra.requestComplete && !this.#deps.draining();
    if (framing.kind === 'close') this.#delivery = this.#http10 ? 'bare' : 'encode';
    else if (this.#http10) this.#delivery = 'bare';
    this.#response.takeOver();
    this.#held = head;
    const asIs = head.clean && this.#keep && extra.warnings.length === 0 && !extra.shown;
    if (!asIs || this.#delivery !== 'verbatim') {
      this.#heldText = this.#headText(head, framing, extra);
    }
  }

  write(chunk: Buffer, start: number, end: number): boolean {
    if (end - start < MAX_JOINED_BYTES) holdWrites(this.#socket);
    const room = this.#writePiece(chunk, start, end);
    if (this.#socket.writableLength >= MAX_JOINED_BYTES) releaseWrites(this.#socket);
    return room;
  }

  #writePiece(chunk: Buffer, start: number, end: number): boolean {
    const held = this.#held;
    if (held === undefined) return this.#writeBody(chunk, start, end);
    this.#held = undefined;
    if (this.#heldText === '' && held.bytes === chunk && held.end === start) {
      this.#begun = true;
      const piece = chunk.subarray(held.start, end);
      return this.#socket.write(piece, releaseOf(piece));
    }
    this.#socket.cork();
    this.#writeHead(held);
    const room = this.#writeBody(chunk, start, end);
    this.#socket.uncork();
    return room;
  }

  flush(): boolean {
    const held = this.#held;
    this.#held = undefined;
    if (held !== undefined) holdWrites(this.#socket);
    const room = held === undefined || this.#writeHead(held);
    releaseAtTurnEnd();
    return room;
  }

  end(): void {
    const held = this.#held;
    this.#held = undefined;
    if (held !== undefined) this.#writeHead(held);
    if (this.#delivery === 'encode') this.#socket.write('0\r\n\r\n', 'latin1');
    // the response is complete, so waiting for the end of the turn would only delay it
    releaseWrites(this.#socket);
    this.#finish();
  }

  refuse({ httpStatus, body, retryAfterSeconds }: StatusResponse): void {
    if (this.#response.socket === null || !this.#socket.writable) return this.cut();
    this.#keep = this.#response.shouldKeepAlive && this.#request.complete && !this.#deps.draining();
    const bytes = Buffer.from(body);
    let text = `HTTP/1.1 ${httpStatus} ${STATUS_CODES[httpStatus] ?? 'Error'}\r\n`;
    for (let index = 0; index < STATUS_HEADERS.length; index += 2) {
      text += `${STATUS_HEADERS[index]}: ${STATUS_HEADERS[index + 1]}\r\n`;
    }
    if (retryAfterSeconds !== undefined) text += `Retry-After: ${retryAfterSeconds}\r\n`;
    text += `Content-Length: ${bytes.length}\r\n${this.#keep ? '' : 'Connection: close\r\n'}\r\n`;
    this.#response.takeOver();
    this.#begun = true;
    const head = Buffer.from(text, 'latin1');
    this.#socket.write(this.#request.method === 'HEAD' ? head : Buffer.concat([head, bytes]));
    this.#finish();
  }

  cut(): void {
    releaseWrites(this.#socket);
    this.#socket.destroy();
  }

  #finish(): void {
    this.#response.end();
    this.#connection.answered(this.#request, this.#keep);
  }

  #writeHead(head: ResponseHead): boolean {
    this.#begun = true;
    const text = this.#heldText;
    if (text !== '') return this.#socket.write(text, 'latin1');
    const piece = head.bytes.subarray(head.start, head.end);
    return this.#socket.write(piece, releaseOf(piece));
  }

  #writeBody(chunk: Buffer, start: number, end: number): boolean {
    const piece = start === 0 && end === chunk.length ? chunk : chunk.subarray(start, end);
    if (this.#delivery !== 'encode') {
      return this.#socket.write(piece, releaseOf(piece)) || this.#socket.writableLength < MAX_UNSENT_BYTES;
    }
    this.#socket.cork();
    this.#socket.write(`${piece.length.toString(16)}\r\n`, 'latin1');
    this.#socket.write(piece, releaseOf(piece));
    const room = this.#socket.write('\r\n', 'latin1');
    this.#socket.uncork();
    return room;
  }

  #headText(head: ResponseHead, framing: BodyFraming, { warnings, shown }: HeadExtra): string {
    let text = `HTTP/1.1 ${head.status} ${reasonPhrase(head)}\r\n${this.#fieldText(head, shown)}`;
    const chunked = head.chunked || framing.kind === 'close';
    if (chunked && !this.#http10) text += 'Transfer-Encoding: chunked\r\n';
    for (const warning of warnings) text += `Warning: ${formatWarning(warning)}\r\n`;
    return `${text}${this.#keep ? '' : 'Connection: close\r\n'}\r\n`;
  }

  /** Returns the relayed headers, one per line; the caller adds chunked framing. */
  #fieldText(head: ResponseHead, shown: boolean): string {
    const clean = cleanResponseHeaders(headerList(head), { keepCookies: this.#deps.keepCookies });
    const fields = shown ? fieldsForBrowser(clean) : clean;
    let text = '';
    for (let index = 0; index < fields.length; index += 2)
      text += `${fields[index]}: ${fields[index + 1]}\r\n`;
    return text;
  }
}

/**
 * Returns the error for a client whose request was malformed, too large or too slow. Returns undefined if the
 * connection failed (`ECONNRESET`, `EPIPE`, TLS), because the client cannot receive a response.
 */
export function clientError(code: string): TailcastError | undefined {
  switch (code) {
    case 'HPE_HEADER_OVERFLOW':
    case 'HPE_CHUNK_EXTENSIONS_OVERFLOW':
      return new TailcastError('HEADERS_TOO_LARGE', 'the request line and the headers are over 320 KiB');
    case 'ERR_HTTP_REQUEST_TIMEOUT':
      return new TailcastError('REQUEST_TIMEOUT');
    default:
      return code.startsWith('HPE_') ? new TailcastError('REQUEST_MALFORMED') : undefined;
  }
}
