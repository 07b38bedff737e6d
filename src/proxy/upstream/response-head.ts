/**
 * Parses the head of an HTTP/1.1 response of the API server in one pass. The result keeps the received bytes,
 * so that the gateway can forward them unchanged.
 *
 * The API server is trusted but may have defects. The parser checks names and values against RFC 9112 (§4 status line,
 * §5 fields, no obs-fold, no bare CR or LF). It rejects ambiguous framing (§6.3) and limits sizes. Tests compare the
 * result with the parser of Node.js.
 *
 * Ownership: `ResponseHead` refers to the memory of the chunk, so the chunk must not change while the head is
 * in use.
 */
import { TailcastError } from '../../errors.ts';

/** Framing of a response body. `close` means that the end of the connection ends the body. */
export type BodyFraming =
  | { readonly kind: 'none' }
  | { readonly kind: 'length'; readonly bytes: number }
  | { readonly kind: 'chunked' }
  | { readonly kind: 'close' };

export interface ResponseHead {
  readonly status: number;
  /** The chunk that contains the head at `start…end`; `end` is the offset after the empty line. */
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
  /** Value of Content-Length. A HEAD response may have this header although it has no body. */
  readonly contentLength: number | undefined;
  readonly chunked: boolean;
  /** True if the connection can be reused after this response. */
  readonly keepAlive: boolean;
  /**
   * True if `bytes` can be forwarded to an HTTP/1.1 client unchanged: the response is HTTP/1.1 and contains
   * none of the headers in {@link NOT_AS_IS}.
   */
  readonly clean: boolean;
}

/**
 * Maximum size of a head. API servers send well under 4 KiB; aggregated servers and pods behind `/proxy` may send
 * more.
 */
export const MAX_RESPONSE_HEAD_BYTES = 256 * 1024;

/**
 * Parses a head that begins at `start`.
 * @returns the head, or undefined if the head in `bytes` is incomplete
 * @throws TailcastError `UPSTREAM_BROKEN`
 */
export function parseResponseHead(bytes: Buffer, start: number): ResponseHead | undefined {
  const lineEnd = scanStatusLine(bytes, start);
  if (lineEnd === -1) return incomplete(bytes, start);
  const minor = (bytes[start + 7] ?? 0) - DIGIT_0;
  const status =
    ((bytes[start + 9] ?? 0) - DIGIT_0) * 100 +
    ((bytes[start + 10] ?? 0) - DIGIT_0) * 10 +
    ((bytes[start + 11] ?? 0) - DIGIT_0);
  const special: SpecialFields = { seen: undefined };
  let at = lineEnd;
  while (bytes[at] !== CR) {
    if (at >= bytes.length) return incomplete(bytes, start);
    const next = scanField(bytes, at, special);
    if (next === -1) return incomplete(bytes, start);
    at = next;
  }
  if (at + 1 >= bytes.length) return incomplete(bytes, start);
  if (bytes[at + 1] !== LF) throw broken('a bare CR in its head');
  const end = at + 2;
  if (end - start > MAX_RESPONSE_HEAD_BYTES) throw broken('its head is too long');
  return conclude({ bytes, start, end, status }, minor, special.seen);
}

/** Returns all headers as received, as a flat list `[name, value, …]`. */
export function headerList(head: ResponseHead): string[] {
  const flat: string[] = [];
  const lines = headText(head).split('\r\n');
  for (let index = 1; index < lines.length; index++) {
    const line = lines[index] ?? '';
    const colon = line.indexOf(':');
    flat.push(line.slice(0, colon), line.slice(colon + 1).trim());
  }
  return flat;
}

/** Returns the reason phrase, which may be empty. */
export function reasonPhrase(head: ResponseHead): string {
  const text = headText(head);
  const end = text.indexOf('\r\n');
  return text.slice(13, end === -1 ? text.length : end);
}

function headText({ bytes, start, end }: ResponseHead): string {
  // omits the CR LF of the last line and the empty line
  return bytes.toString('latin1', start, end - 4);
}

const CR = 0x0d;
const LF = 0x0a;
const SP = 0x20;
const COLON = 0x3a;
const DIGIT_0 = 0x30;

/** Allowed bytes of header names (RFC 9110 §5.6.2, token) and of header values (§5.5: HTAB, SP, VCHAR, obs-text). */
const TOKEN = table((code) => /[!#$%&'*+\-.^_`|~0-9A-Za-z]/.test(String.fromCharCode(code)));
const VALUE = table((code) => code === 0x09 || (code >= SP && code !== 0x7f));

function table(allowed: (code: number) => boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, code) => (allowed(code) ? 1 : 0));
}

/**
 * Parses `HTTP/1.x NNN` with an optional reason phrase. Returns the offset of the first header, or -1 if the
 * status line is incomplete.
 */
function scanStatusLine(bytes: Buffer, start: number): number {
  if (bytes.length - start < STATUS_LENGTH) return -1;
  if (!STATUS_LINE.test(bytes.toString('latin1', start, start + STATUS_LENGTH)))
    throw broken('not an HTTP/1 status line');
  return scanValue(bytes, start + STATUS_LENGTH - 1);
}
const STATUS_LINE = /^HTTP\/1\.[01] [1-5][0-9][0-9][ \r]$/;
const STATUS_LENGTH = 13;

/** Returns the offset after the CR LF that ends a value, or -1 if the value is incomplete. */
function scanValue(bytes: Buffer, from: number): number {
  let at = from;
  const length = bytes.length;
  while (at < length && VALUE[bytes[at] ?? 0] === 1) at += 1;
  if (at >= length) return -1;
  if (bytes[at] !== CR) throw broken('a control character in its head');
  if (at + 1 >= length) return -1;
  if (bytes[at + 1] !== LF) throw broken('a bare CR in its head');
  return at + 2;
}

interface SpecialFields {
  seen: (readonly [name: string, value: string])[] | undefined;
}

/** Parses one `name: value` line, and adds headers with a name in {@link SPECIAL} to `special`. */
function scanField(bytes: Buffer, from: number, special: SpecialFields): number {
  let at = from;
  const length = bytes.length;
  while (at < length && TOKEN[bytes[at] ?? 0] === 1) at += 1;
  if (at >= length) return -1;
  if (bytes[at] !== COLON || at === from) throw broken('a malformed header line');
  const next = scanValue(bytes, at + 1);
  if (next === -1) return -1;
  // a fast check: most names differ in length from all names in `SPECIAL`, so no string is created for them
  if (SPECIAL_LENGTHS[at - from] === 1) {
    const name = bytes.toString('latin1', from, at).toLowerCase();
    if (SPECIAL.has(name))
      (special.seen ??= []).push([name, bytes.toString('latin1', at + 1, next - 2).trim()]);
  }
  return next;
}

/**
 * A head that contains one of these headers cannot be forwarded unchanged. `cleanResponseHeaders` in `kube/headers`
 * handles each of these headers. A test checks that this list and the function agree.
 */
const NOT_AS_IS = [
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-connection',
  'proxy-authenticate',
  'proxy-authentication-info',
  'te',
  'upgrade',
  'alt-svc',
  'set-cookie',
  'set-cookie2',
] as const;
const SPECIAL: ReadonlySet<string> = new Set([...NOT_AS_IS, 'content-length', 'transfer-encoding']);
const SPECIAL_LENGTHS = Uint8Array.from({ length: 32 }, () => 0);
for (const name of SPECIAL) SPECIAL_LENGTHS[name.length] = 1;

function conclude(
  head: Pick<ResponseHead, 'bytes' | 'start' | 'end' | 'status'>,
  minor: number,
  special: SpecialFields['seen'],
): ResponseHead {
  let contentLength: number | undefined;
  let chunked = false;
  let keepAlive = minor === 1;
  let clean = minor === 1;
  for (const [name, value] of special ?? []) {
    if (name === 'content-length') {
      if (contentLength !== undefined || !/^\d{1,15}$/.test(value))
        throw broken('an ambiguous Content-Length');
      contentLength = Number(value);
    } else if (name === 'transfer-encoding') {
      if (chunked || value.toLowerCase() !== 'chunked') throw broken('an unknown Transfer-Encoding');
      chunked = true;
    } else {
      clean = false;
      if (name === 'connection' && /(?:^|,)[ \t]*close[ \t]*(?:,|$)/i.test(value)) keepAlive = false;
    }
  }
  if (chunked && contentLength !== undefined) throw broken('both Content-Length and Transfer-Encoding');
  return { ...head, contentLength, chunked, keepAlive, clean };
}

function incomplete(bytes: Buffer, start: number): undefined {
  if (bytes.length - start > MAX_RESPONSE_HEAD_BYTES) throw broken('its head is too long');
  return undefined;
}

function broken(what: string): TailcastError {
  return new TailcastError('UPSTREAM_BROKEN', what);
}
