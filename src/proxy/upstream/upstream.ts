/**
 * HTTP/1.1 client for the API server. An *exchange* is one request and its response over a pooled connection.
 * The client streams the request body, and passes the response to a sink unchanged.
 *
 * The client never follows redirects, decodes bodies, or limits the time of a response. It never repeats a
 * request that may have reached the API server, with one exception. The API server may close a keep-alive
 * connection just before a request arrives. If a read-only request on a keep-alive connection fails
 * immediately and before the first byte of a response, the client sends it once more on a new connection.
 */
import { TailcastError } from '../../errors.ts';
import { SAFE_METHODS, staleWindow } from '../../stale-connections.ts';
import type { ResponseSink } from './response-reader.ts';
import type { ConnectionUser, UpstreamConnection, UpstreamPool, Waiter } from './upstream-pool.ts';

/** Framing of a request body. */
export type RequestFraming =
  | { readonly kind: 'none' }
  | { readonly kind: 'length'; readonly bytes: number }
  | { readonly kind: 'chunked' };

export interface UpstreamRequest {
  readonly method: string;
  /** Request target, including the base path of the API server. */
  readonly target: string;
  /** Flat list of all headers except connection and framing headers. */
  readonly headers: readonly string[];
  readonly framing: RequestFraming;
  /** True if the request is read-only. Such a request may be sent twice if it has a safe method and no body. */
  readonly repeatable: boolean;
}

/** Receives the response and all other events of an exchange. */
export interface ExchangeOwner extends ResponseSink {
  /** Called when all received bytes were passed to the sink. */
  flush(): void;
  /** Called when the owner may write again after `write` has returned false. */
  writable(): void;
  /**
   * Called when the exchange fails before the response is complete. Called at most once, as the last call.
   */
  failed(error: TailcastError): void;
}

export interface Exchange {
  /** Sends a piece of the request body. Returns false if the caller must wait for `writable`. */
  write(chunk: Uint8Array): boolean;
  /** Ends the request body. */
  end(): void;
  /** Aborts the exchange and closes its connection. The owner gets no further calls. */
  abort(): void;
  /** Pauses and resumes reading of the response. */
  pause(): void;
  resume(): void;
  /** True after the complete request was passed to the exchange, including the body. */
  readonly requestComplete: boolean;
}

/**
 * Starts an exchange. Before this function returns, it calls no function of the owner except `failed`.
 * @throws TailcastError `OVERLOADED`, `SHUTTING_DOWN`, `INTERNAL` if a header does not fit on one line
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
  /** Remaining bytes of a request body with a Content-Length. */
  #owed: number;
  /**
   * Body bytes that were passed to `write` before the connection was open. `write` returned false for them.
   */
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
    // the head is sent together with the first piece of the body, which is usually available already
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
    // drops request trailers: Kubernetes does not read them, and they could contain identity headers
    if (this.#request.framing.kind === 'chunked') socket.write('0\r\n\r\n', 'latin1');
  }

  /**
   * Fails the exchange because the body is shorter or longer than its Content-Length. Usually the parser of the
   * client's request detects this earlier.
   */
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

/**
 * Valid header names. The gate already creates valid headers; these patterns are the last check before
 * sending.
 */
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

/** @throws TailcastError `INTERNAL` if the method or the target is malformed */
function checkRequestLine(method: string, target: string): void {
  if (!HEADER_NAME.test(method) || !TARGET.test(target))
    throw new TailcastError('INTERNAL', 'a malformed request line');
}

/** @throws TailcastError `INTERNAL` for a header that does not fit on one line, or defines framing */
function checkField(name: string, value: string): void {
  if (!HEADER_NAME.test(name) || NOT_IN_VALUE.test(value) || isFraming(name))
    throw new TailcastError('INTERNAL', 'a malformed header');
}

/**
 * Returns true for framing headers. Only `encodeRequestHead` may write them: a second framing header could let the API
 * server parse the rest of a body as another request.
 */
function isFraming(name: string): boolean {
  return (name.length === 14 || name.length === 17) && FRAMING.has(name.toLowerCase());
}
const FRAMING: ReadonlySet<string> = new Set(['content-length', 'transfer-encoding']);
