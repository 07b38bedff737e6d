/**
 * Parses the bytes of one connection into responses. For each response, it calls a sink with interim heads,
 * the head, the body and the end. It reads one response at a time.
 */
import { TailcastError } from '../../errors.ts';
import { GrowingBytes } from '../../wire/growing-bytes.ts';
import { ChunkedScanner } from './chunked.ts';
import {
  MAX_RESPONSE_HEAD_BYTES,
  parseResponseHead,
  type BodyFraming,
  type ResponseHead,
} from './response-head.ts';

/** Receives a response. Order of calls: `informational` (any number), `head`, `body` (any number), `end`. */
export interface ResponseSink {
  /** True if `body` gets payload only; otherwise it also gets chunk framing and trailers. */
  readonly needsPayload: boolean;
  /** An interim response (100, 102, 103, …; never 101). */
  informational(head: ResponseHead): void;
  head(head: ResponseHead, framing: BodyFraming): void;
  /**
   * Bytes `start…end` of `chunk`. To use the bytes after `flush`, the sink must count another use of the
   * buffer, see `memory/read-buffers`.
   */
  body(chunk: Buffer, start: number, end: number): void;
  /** @param trailers flat list, empty for most bodies */
  end(trailers: readonly string[]): void;
}

/** Maximum number of interim responses before a response. Clients need no more. */
const MAX_INFORMATIONAL = 16;
/**
 * Size up to which an incomplete head is parsed again after each read, so that an error in it is noticed immediately.
 * Each attempt starts at the first byte, so a longer head is parsed again only when its end has arrived. Otherwise a
 * head in pieces of one byte would need minutes of CPU time.
 */
const EAGER_BYTES = 4 * 1024;
const END_OF_HEAD = '\r\n\r\n';

/** Reader of the responses of one connection. */
export class ResponseReader {
  /** True from `begin` until the end of the response. */
  reading = false;
  /** True after the first byte of the current response has arrived. */
  started = false;
  /**
   * True if the connection can be reused: the framing of the last response showed its exact end, the response allows
   * reuse, and no other bytes followed it.
   */
  reusable = true;
  #sink: ResponseSink | undefined;
  #method = '';
  #informational = 0;
  /** An incomplete head. */
  #partial: GrowingBytes | undefined;
  #framing: BodyFraming | undefined;
  #remaining = 0;
  #scanner: ChunkedScanner | undefined;
  #keepAlive = false;

  /** Starts reading the response to a request with this method. */
  begin(sink: ResponseSink, method: string): void {
    this.reading = true;
    this.started = false;
    this.reusable = false;
    this.#sink = sink;
    this.#method = method;
    this.#informational = 0;
    this.#partial = undefined;
    this.#framing = undefined;
  }

  /** @throws TailcastError `UPSTREAM_BROKEN`; the connection must then be destroyed */
  push(chunk: Buffer): void {
    const sink = this.#sink;
    if (sink === undefined || !this.reading) {
      this.reusable = false;
      return;
    }
    this.started = true;
    if (this.#framing !== undefined) return this.#pushBody(chunk, 0, sink);
    if (this.#partial === undefined) return this.#pushHead(chunk, sink);
    const bytes = addToHead(this.#partial, chunk);
    if (bytes === undefined) return;
    this.#partial = undefined;
    this.#pushHead(bytes, sink);
  }

  /**
   * Called when the API server has closed its side of the connection.
   * @throws TailcastError `UPSTREAM_BROKEN` if the response is incomplete
   */
  finish(): void {
    if (!this.reading) return;
    if (this.#framing?.kind === 'close' && this.#sink !== undefined)
      return this.#complete(this.#sink, NO_TRAILERS);
    throw new TailcastError('UPSTREAM_BROKEN', 'it closed the connection before the end of its response');
  }

  #pushHead(bytes: Buffer, sink: ResponseSink): void {
    let at = 0;
    for (;;) {
      const head = parseResponseHead(bytes, at);
      if (head === undefined) {
        this.#partial = new GrowingBytes();
        this.#partial.bytes(bytes.subarray(at));
        return;
      }
      at = head.end;
      if (head.status >= 200) {
        const framing = framingOf(head, this.#method);
        this.#beginBody(head, framing);
        sink.head(head, framing);
        return framing.kind === 'none' || (framing.kind === 'length' && framing.bytes === 0)
          ? this.#completeAt(bytes, at, sink, NO_TRAILERS)
          : this.#pushBody(bytes, at, sink);
      }
      this.#passInformational(head, sink);
      if (at === bytes.length) return;
    }
  }

  #passInformational(head: ResponseHead, sink: ResponseSink): void {
    if (head.status === 101)
      throw new TailcastError('UPSTREAM_BROKEN', 'it switched protocols without a request');
    this.#informational += 1;
    if (this.#informational > MAX_INFORMATIONAL) {
      throw new TailcastError('UPSTREAM_BROKEN', 'too many interim responses');
    }
    sink.informational(head);
  }

  #beginBody(head: ResponseHead, framing: BodyFraming): void {
    this.#framing = framing;
    this.#keepAlive = head.keepAlive && framing.kind !== 'close';
    if (framing.kind === 'length') this.#remaining = framing.bytes;
    if (framing.kind === 'chunked') this.#scanner = new ChunkedScanner();
  }

  #pushBody(bytes: Buffer, start: number, sink: ResponseSink): void {
    if (start === bytes.length) return;
    switch (this.#framing?.kind) {
      case 'length': {
        const end = Math.min(bytes.length, start + this.#remaining);
        this.#remaining -= end - start;
        sink.body(bytes, start, end);
        if (this.#remaining === 0) this.#completeAt(bytes, end, sink, NO_TRAILERS);
        return;
      }
      case 'chunked':
        return this.#pushChunked(bytes, start, sink);
      case 'close':
        return sink.body(bytes, start, bytes.length);
      case 'none':
      case undefined:
        throw new TailcastError('INTERNAL', 'a body without framing');
    }
  }

  #pushChunked(bytes: Buffer, start: number, sink: ResponseSink): void {
    const scanner = this.#scanner;
    if (scanner === undefined) throw new TailcastError('INTERNAL', 'no scanner');
    const end = sink.needsPayload
      ? scanner.scan(bytes, start, (from, to) => sink.body(bytes, from, to))
      : scanner.scan(bytes, start);
    if (!sink.needsPayload) sink.body(bytes, start, end === -1 ? bytes.length : end);
    if (end !== -1) this.#completeAt(bytes, end, sink, scanner.trailers);
  }

  #completeAt(bytes: Buffer, end: number, sink: ResponseSink, trailers: readonly string[]): void {
    // the API server sent bytes after the response without a request, so the connection is not reused
    if (end < bytes.length) this.#keepAlive = false;
    this.#complete(sink, trailers);
  }

  #complete(sink: ResponseSink, trailers: readonly string[]): void {
    this.reading = false;
    this.reusable = this.#keepAlive;
    this.#sink = undefined;
    this.#scanner = undefined;
    sink.end(trailers);
  }
}

/** Adds a chunk to an incomplete head. Returns all bytes if they must be parsed now. */
function addToHead(partial: GrowingBytes, chunk: Buffer): Buffer | undefined {
  let hasEnd = false;
  partial.write(chunk.length, (memory, at) => {
    const end = at + chunk.copy(memory, at);
    hasEnd = memory.subarray(Math.max(0, at - END_OF_HEAD.length + 1), end).includes(END_OF_HEAD);
    return end;
  });
  if (!hasEnd && partial.length > EAGER_BYTES && partial.length <= MAX_RESPONSE_HEAD_BYTES) return undefined;
  const { buffer, byteOffset, length } = partial.take();
  return Buffer.from(buffer, byteOffset, length);
}

const NO_TRAILERS: readonly string[] = [];
const NONE = { kind: 'none' } as const;
const CHUNKED = { kind: 'chunked' } as const;
const CLOSE = { kind: 'close' } as const;

/** Returns the framing of a response body (RFC 9112 §6.3). Throws if a response with status 204 has a body. */
function framingOf(head: ResponseHead, method: string): BodyFraming {
  if (method === 'HEAD' || head.status === 304) return NONE;
  if (head.status === 204) {
    if (head.chunked || (head.contentLength ?? 0) > 0) {
      throw new TailcastError('UPSTREAM_BROKEN', 'a 204 answer with a body');
    }
    return NONE;
  }
  if (head.chunked) return CHUNKED;
  return head.contentLength === undefined ? CLOSE : { kind: 'length', bytes: head.contentLength };
}
