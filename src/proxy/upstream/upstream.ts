/**
 * Our HTTP/1.1 client for the API server: one request and its response over a pooled connection. The head goes out as one
 * string, the body as it comes; the response is passed to a sink without being rebuilt.
 *
 * What it never does: follow a redirect, decode a body, time out a response, or send a request twice that may have
 * reached the API server. The one exception to the last is a pure read on a keep-alive connection that closes at once,
 * before a single byte came back: the API server had closed it before the request arrived. The read is sent once more, on a
 * fresh connection.
 */
import { TailcastError } from '../../errors.ts';
import { SAFE_METHODS, staleWindow } from '../../kept-connections.ts';
import type { ResponseSink } from './response-reader.ts';
import type { ConnectionUser, UpstreamConnection, UpstreamPool, Waiter } from './upstream-pool.ts';

/** How the request body is delimited on its way up. */
export type RequestFraming =
  | { readonly kind: 'none' }
  | { readonly kind: 'length'; readonly bytes: number }
  | { readonly kind: 'chunked' };

export interface UpstreamRequest {
  readonly method: string;
  /** Request target with the base path of the API server in front. */
  readonly target: string;
  /** Flat list, complete but for connection and framing. */
  readonly headers: readonly string[];
  readonly framing: RequestFraming;
  /** True if the request, with a safe method and without a body, may be sent twice. */
  readonly repeatable: boolean;
}

/** Who an exchange works for: takes the response, and hears of everything else. */
export interface ExchangeOwner extends ResponseSink {
  /** Everything that has arrived so far has been passed on. */
  flush(): void;
  /** The request body may go on after `write` has returned false. */
  writable(): void;
  /** The exchange is over without a whole response. Called at most once, and nothing after it. */
  failed(error: TailcastError): void;
}

export interface Exchange {
  /** Sends a piece of the request body. False: wait for `writable`. */
  write(chunk: Uint8Array): boolean;
  /** The request body is complete. */
  end(): void;
  /** Gives the exchange up and closes its connection. The owner hears nothing more. */
  abort(): void;
  /** Stops and restarts reading the response. */
  pause(): void;
  resume(): void;
  /** True when the whole request, body included, has been handed over. */
  readonly requestComplete: boolean;
}

/**
 * Starts an exchange. The owner may be called before this returns only by `failed`.
 * @throws TailcastError `OVERLOADED`, `SHUTTING_DOWN`, `INTERNAL` when a header could not be sent as one line
 */
export function startExchange(request: UpstreamRequest, owner: ExchangeOwner, pool: UpstreamPool): Exchange {
  const exchange = new PooledExchange(request, owner, pool);
  exchange.open(false);
  return exchange;
}

class PooledExchange implements Exchange, ConnectionUser, Waiter {
  requestComplete: boolean;
  readonly #request: UpstreamRequest;
  readonly #owner: ExchangeOwner;
  readonly #pool: UpstreamPool;
  readonly #head: string;
  #connection: UpstreamConnection | undefined;
  #over = false;
  #retried = false;
  #isRecent = (): boolean => true;
  #paused = false;
  /** Body bytes still owed, of a request with a length. */
  #owed: number;
  /** Body that came before there was a connection; the owner was told to wait after the first piece. */
  #early: Uint8Array[] = [];

  constructor(request: UpstreamRequest, owner: ExchangeOwner, pool: UpstreamPool) {
    this.#request = request;
    this.#owner = owner;
    this.#pool = pool;
    this.#head = encodeRequestHead(request);
    this.#owed = request.framing.kind === 'length' ? request.framing.bytes : 0;
    this.requestComplete =
      request.framing.kind === 'none' || (request.framing.kind === 'length' && this.#owed === 0);
  }

  open(fresh: boolean): void {
    this.#pool.acquire(this, fresh);
  }

  connected(connection: UpstreamConnection): void {
    this.#connection = connection;
    connection.begin(this, this.#owner, this.#request.method);
    this.#isRecent = staleWindow(this.#pool.nowMs);
    const { socket } = connection;
    if (this.#paused) socket.pause();
    if (this.#request.framing.kind === 'none') {
      socket.write(this.#head, 'latin1');
      return;
    }
    // the head waits for the first piece of the body, which mostly is at hand
    socket.cork();
    process.nextTick(() => socket.uncork());
    socket.write(this.#head, 'latin1');
    const early = this.#early;
    this.#early = [];
    for (const chunk of early) this.#send(connection, chunk);
    if (this.requestComplete) this.#sendEnd(connection);
    else if (early.length > 0) this.#owner.writable();
  }

  connectFailed(error: TailcastError): void {
    this.#fail(error);
  }

  write(chunk: Uint8Array): boolean {
    if (this.#over || chunk.length === 0) return true;
    if (this.#request.framing.kind === 'length') {
      this.#owed -= chunk.length;
      if (this.#owed < 0) return this.#breakRequest();
    }
    if (this.#connection !== undefined) return this.#send(this.#connection, chunk);
    this.#early.push(chunk);
    return false;
  }

  end(): void {
    if (this.#over || this.requestComplete) return;
    if (this.#owed !== 0) {
      this.#breakRequest();
      return;
    }
    this.requestComplete = true;
    if (this.#connection !== undefined) this.#sendEnd(this.#connection);
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    this.#early = [];
    if (this.#connection === undefined) this.#pool.cancel(this);
    else this.#connection.destroy();
  }

  pause(): void {
    if (this.#paused) return;
    this.#paused = true;
    if (!this.#over) this.#connection?.socket.pause();
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    if (!this.#over) this.#connection?.socket.resume();
  }

  flush(): void {
    this.#owner.flush();
  }

  drained(): void {
    if (!this.requestComplete) this.#owner.writable();
  }

  responseEnded(): void {
    this.#over = true;
    this.#connection?.finish(this.requestComplete);
  }

  connectionLost(error: TailcastError): void {
    const connection = this.#connection;
    this.#connection = undefined;
    const stale =
      connection !== undefined && connection.uses > 1 && !connection.responseStarted && this.#isRecent();
    if (stale && !this.#retried && this.#isRepeatable()) {
      this.#retried = true;
      try {
        return this.open(true);
      } catch (cause) {
        return this.#fail(cause instanceof TailcastError ? cause : error);
      }
    }
    this.#fail(error);
  }

  #isRepeatable(): boolean {
    const { repeatable, framing, method } = this.#request;
    return repeatable && framing.kind === 'none' && SAFE_METHODS.has(method);
  }

  #send({ socket }: UpstreamConnection, chunk: Uint8Array): boolean {
    if (this.#request.framing.kind === 'length') return socket.write(chunk);
    socket.cork();
    socket.write(`${chunk.length.toString(16)}\r\n`, 'latin1');
    socket.write(chunk);
    const room = socket.write('\r\n', 'latin1');
    socket.uncork();
    return room;
  }

  #sendEnd({ socket }: UpstreamConnection): void {
    // request trailers are not forwarded: nothing in Kubernetes reads them, and they could carry identity headers
    if (this.#request.framing.kind === 'chunked') socket.write('0\r\n\r\n', 'latin1');
  }

  /** The client's body is not as long as it said. Its parser normally finds that first. */
  #breakRequest(): true {
    this.abort();
    this.#owner.failed(new TailcastError('WIRE_MALFORMED', 'the body is not as long as its Content-Length'));
    return true;
  }

  #fail(error: TailcastError): void {
    if (this.#over) return;
    this.#over = true;
    this.#early = [];
    this.#owner.failed(error);
  }
}

/** A header name and value that stay on their line. The gate builds them so; this is the last look before the wire. */
const HEADER_NAME = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
const NOT_IN_VALUE = /[^\t\x20-\x7e\x80-\xff]/;
const TARGET = /^\/[\x21-\x7e]*$/;

function encodeRequestHead({ method, target, headers, framing }: UpstreamRequest): string {
  checkRequestLine(method, target);
  let head = `${method} ${target} HTTP/1.1\r\n`;
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] ?? '';
    const value = headers[index + 1] ?? '';
    checkField(name, value);
    head += `${name}: ${value}\r\n`;
  }
  if (framing.kind === 'length' && !(Number.isSafeInteger(framing.bytes) && framing.bytes >= 0))
    throw new TailcastError('INTERNAL', 'a malformed Content-Length');
  if (framing.kind === 'length') head += `Content-Length: ${framing.bytes}\r\n`;
  else if (framing.kind === 'chunked') head += 'Transfer-Encoding: chunked\r\n';
  return `${head}\r\n`;
}

/** @throws TailcastError `INTERNAL` when it could not be sent as one line */
function checkRequestLine(method: string, target: string): void {
  if (!HEADER_NAME.test(method) || !TARGET.test(target))
    throw new TailcastError('INTERNAL', 'a malformed request line');
}

/** @throws TailcastError `INTERNAL` when it could not be sent as one line, or says where the body ends */
function checkField(name: string, value: string): void {
  if (!HEADER_NAME.test(name) || NOT_IN_VALUE.test(value) || isFraming(name))
    throw new TailcastError('INTERNAL', 'a malformed header');
}

/** Where the body ends is said once, below: a second word about it would let the rest of a body be another request. */
function isFraming(name: string): boolean {
  return (name.length === 14 || name.length === 17) && FRAMING.has(name.toLowerCase());
}
const FRAMING: ReadonlySet<string> = new Set(['content-length', 'transfer-encoding']);
