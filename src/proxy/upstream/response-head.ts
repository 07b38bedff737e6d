/**
 * The head of an HTTP/1.1 response from the API server: scanned once, byte by byte, and kept as the bytes it was.
 *
 * The upstream is trusted to be the API server, not to be free of faults: names and values are checked against RFC 9112
 * (§4 status line, §5 fields, no obs-fold, no bare CR or LF), framing must be unambiguous (§6.3), sizes are bounded.
 * Node's parser is the oracle of the tests.
 *
 * Ownership: a head refers to the chunk it was found in until its text has been asked for.
 */
import { TailcastError } from '../../errors.ts';

/** How the body that follows is delimited. */
export type BodyFraming =
  | { readonly kind: 'none' }
  | { readonly kind: 'length'; readonly bytes: number }
  | { readonly kind: 'chunked' }
  | { readonly kind: 'close' };

export interface ResponseHead {
  readonly status: number;
  /** The chunk that holds the head at `start…end`; `end` is behind the empty line. */
  readonly bytes: Buffer;
  readonly start: number;
  readonly end: number;
  /** Framing as the header says it; a HEAD response has the header and no body. */
  readonly contentLength: number | undefined;
  readonly chunked: boolean;
  /** Whether the connection can be used again after this response. */
  readonly keepAlive: boolean;
  /** True when an HTTP/1.1 client may get `bytes` as they are: HTTP/1.1, and nothing in it is for us only. */
  readonly clean: boolean;
}

/** API servers send well under 4 KiB; header values of aggregated servers and of pods behind `/proxy` may be longer. */
export const MAX_RESPONSE_HEAD_BYTES = 256 * 1024;

/**
 * Scans a head that begins at `start`.
 * @returns the head, or undefined when `bytes` ends before the head does
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

/** The fields as received, flat `[name, value, …]`; nothing is left out. */
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

/** The reason phrase, which may be empty. */
export function reasonPhrase(head: ResponseHead): string {
  const text = headText(head);
  const end = text.indexOf('\r\n');
  return text.slice(13, end === -1 ? text.length : end);
}

function headText({ bytes, start, end }: ResponseHead): string {
  // without the last line's CR LF and the empty line, which are there even when there are no fields
  return bytes.toString('latin1', start, end - 4);
}

const CR = 0x0d;
const LF = 0x0a;
const SP = 0x20;
const COLON = 0x3a;
const DIGIT_0 = 0x30;

/** RFC 9110 §5.6.2 token bytes, and the bytes a field value may hold (§5.5: HTAB, SP, VCHAR, obs-text). */
const TOKEN = table((code) => /[!#$%&'*+\-.^_`|~0-9A-Za-z]/.test(String.fromCharCode(code)));
const VALUE = table((code) => code === 0x09 || (code >= SP && code !== 0x7f));

function table(allowed: (code: number) => boolean): Uint8Array {
  return Uint8Array.from({ length: 256 }, (_, code) => (allowed(code) ? 1 : 0));
}

/** `HTTP/1.x NNN` then a reason phrase or nothing; returns the offset of the first field, or -1 for "not all here". */
function scanStatusLine(bytes: Buffer, start: number): number {
  if (bytes.length - start < STATUS_LENGTH) return -1;
  if (!STATUS_LINE.test(bytes.toString('latin1', start, start + STATUS_LENGTH)))
    throw broken('not an HTTP/1 status line');
  return scanValue(bytes, start + STATUS_LENGTH - 1);
}
const STATUS_LINE = /^HTTP\/1\.[01] [1-5][0-9][0-9][ \r]$/;
const STATUS_LENGTH = 13;

/** Runs to the CR LF that ends a value; returns the offset behind it, or -1 for "not all here". */
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

/** One `name: value` line; fields that mean something to a proxy are kept in `special`. */
function scanField(bytes: Buffer, from: number, special: SpecialFields): number {
  let at = from;
  const length = bytes.length;
  while (at < length && TOKEN[bytes[at] ?? 0] === 1) at += 1;
  if (at >= length) return -1;
  if (bytes[at] !== COLON || at === from) throw broken('a malformed header line');
  const next = scanValue(bytes, at + 1);
  if (next === -1) return -1;
  // most fields are ruled out by the length of their name, without making a string
  if (SPECIAL_LENGTHS[at - from] === 1) {
    const name = bytes.toString('latin1', from, at).toLowerCase();
    if (SPECIAL.has(name))
      (special.seen ??= []).push([name, bytes.toString('latin1', at + 1, next - 2).trim()]);
  }
  return next;
}

/**
 * Fields for which the bytes cannot be handed on as they are. What is done about each is `cleanResponseHeaders` in
 * `kube/headers`; a test holds the two together.
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
