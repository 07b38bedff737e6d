/**
 * Scanner for the chunked transfer coding (RFC 9112 §7.1). Finds the payload and the end of a body, however
 * the bytes are split into pieces. Copies nothing: the caller forwards either all received bytes or only the
 * payload ranges.
 */
import { TailcastError } from '../../errors.ts';

/**
 * Maximum number of bytes of the extensions of one chunk, and of all trailers of a body. API servers send no
 * extensions and no trailers.
 */
const MAX_CHUNK_EXTENSION_BYTES = 4 * 1024;
const MAX_TRAILER_BYTES = 64 * 1024;

/** Receives the payload ranges of the scanned bytes. */
export type PayloadRange = (start: number, end: number) => void;

const SIZE = 0; // hex digits of a chunk's size
const EXTENSION = 1; // chunk extension: the bytes after the size, up to CR
const SIZE_LF = 2;
const DATA = 3;
const DATA_CR = 4;
const DATA_LF = 5;
const TRAILER = 6; // the trailer section, including its empty line
const DONE = 7;

const CR = 0x0d;
const LF = 0x0a;
const SEMICOLON = 0x3b;
/** Maximum hexadecimal digits of a chunk size: up to 2^52 bytes. Larger numbers would lose precision. */
const MAX_SIZE_DIGITS = 13;

/** Scanner for one body. */
export class ChunkedScanner {
  #state: number = SIZE;
  #digits = 0;
  /**
   * In the size line: the part of the size that was read so far. After the size line: the number of payload bytes of
   * the chunk that are still missing.
   */
  #remaining = 0;
  #extension = 0;
  #trailerText = '';
  /** Number of bytes of the current trailer line, without CR. */
  #lineLength = 0;
  #trailers: readonly string[] = NO_TRAILERS;

  /** Flat trailer list, complete after `scan` has found the end. Names are in lower case. */
  get trailers(): readonly string[] {
    return this.#trailers;
  }

  /**
   * Scans `bytes` from `start`.
   * @returns the offset after the body's last byte, or -1 if the body continues
   * @throws TailcastError `UPSTREAM_BROKEN`; do not use the scanner afterwards
   */
  scan(bytes: Buffer, start: number, payload?: PayloadRange): number {
    let at = start;
    while (at < bytes.length) {
      if (this.#state === DATA) {
        const end = Math.min(bytes.length, at + this.#remaining);
        payload?.(at, end);
        this.#remaining -= end - at;
        at = end;
        if (this.#remaining === 0) this.#state = DATA_CR;
      } else if (this.#state === TRAILER) {
        at = this.#scanTrailer(bytes, at);
        if (this.#isDone()) return at;
      } else {
        this.#scanByte(bytes[at] ?? 0);
        at += 1;
      }
    }
    return -1;
  }

  #isDone(): boolean {
    return this.#state === DONE;
  }

  #scanByte(byte: number): void {
    switch (this.#state) {
      case SIZE:
        return this.#scanSize(byte);
      case EXTENSION:
        if (byte === CR) this.#state = SIZE_LF;
        else if (byte === LF || ++this.#extension > MAX_CHUNK_EXTENSION_BYTES)
          throw broken('a malformed chunk size');
        return;
      case SIZE_LF:
        if (byte !== LF) throw broken('a malformed chunk size');
        this.#state = this.#remaining === 0 ? TRAILER : DATA;
        this.#digits = 0;
        this.#extension = 0;
        return;
      case DATA_CR:
        if (byte !== CR) throw broken('a chunk that is longer than it said');
        this.#state = DATA_LF;
        return;
      case DATA_LF:
        if (byte !== LF) throw broken('a chunk that is longer than it said');
        this.#state = SIZE;
        return;
      default:
        throw broken('bytes behind the end of a body');
    }
  }

  #scanSize(byte: number): void {
    const digit = HEX[byte] ?? NOT_HEX;
    if (digit !== NOT_HEX) {
      if (++this.#digits > MAX_SIZE_DIGITS) throw broken('a chunk size that is too large');
      this.#remaining = this.#remaining * 16 + digit;
      return;
    }
    if (this.#digits === 0) throw broken('a malformed chunk size');
    if (byte === CR) this.#state = SIZE_LF;
    else if (byte === SEMICOLON) this.#state = EXTENSION;
    else throw broken('a malformed chunk size');
  }

  /**
   * Scans the trailers up to the empty line. Without trailers, the empty line directly follows the size line
   * of the last chunk.
   */
  #scanTrailer(bytes: Buffer, from: number): number {
    let at = from;
    let ended = false;
    while (at < bytes.length && !ended) {
      const byte = bytes[at] ?? 0;
      at += 1;
      if (byte === LF) {
        ended = this.#lineLength === 0;
        this.#lineLength = 0;
      } else if (byte !== CR) {
        this.#lineLength += 1;
      }
    }
    this.#trailerText += bytes.toString('latin1', from, at);
    if (this.#trailerText.length > MAX_TRAILER_BYTES) throw broken('a trailer section that is too long');
    if (ended) {
      this.#trailers = parseTrailers(this.#trailerText);
      this.#trailerText = '';
      this.#state = DONE;
    }
    return at;
  }
}

const NO_TRAILERS: readonly string[] = [];
const NOT_HEX = 255;
const HEX = Uint8Array.from({ length: 256 }, (_, code) => {
  const digit = '0123456789abcdef'.indexOf(String.fromCharCode(code).toLowerCase());
  return digit === -1 ? NOT_HEX : digit;
});

const TRAILER_LINE = /^([!#$%&'*+\-.^_`|~0-9A-Za-z]+):[ \t]*([\t\x20-\x7e\x80-\xff]*)$/;
/**
 * Framing headers. A response with such a trailer is rejected, because it could confuse a parser (RFC 9110
 * §6.5.1).
 */
const FRAMING: ReadonlySet<string> = new Set(['transfer-encoding', 'content-length']);
/** Other headers that are not allowed as trailers. They are removed. */
const FORBIDDEN: ReadonlySet<string> = new Set([
  'connection',
  'host',
  'trailer',
  'upgrade',
  'set-cookie',
  'te',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authentication-info',
  'http2-settings',
  'set-cookie2',
  'alt-svc',
]);

function parseTrailers(text: string): readonly string[] {
  if (text === '\r\n') return NO_TRAILERS;
  if (!text.endsWith('\r\n\r\n')) throw broken('a malformed trailer');
  const flat: string[] = [];
  for (const line of text.slice(0, -4).split('\r\n')) {
    const match = TRAILER_LINE.exec(line);
    const name = match?.[1]?.toLowerCase();
    if (name === undefined) throw broken('a malformed trailer');
    if (FRAMING.has(name)) throw broken('framing in a trailer');
    if (!FORBIDDEN.has(name)) flat.push(name, (match?.[2] ?? '').trimEnd());
  }
  return flat;
}

function broken(what: string): TailcastError {
  return new TailcastError('UPSTREAM_BROKEN', what);
}
