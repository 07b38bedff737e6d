/**
 * Functions for headers in flat lists `[name, value, name, value, …]`, the format of `rawHeaders` in Node.js. In this
 * format, no header is joined, dropped or renamed. The name or its prefix determines the family of a header, so an
 * unknown header is treated like other headers with the same prefix.
 */
import { TailcastError } from '../errors.ts';

/** Alternating names and values; always of even length. */
export type RawHeaders = readonly string[];

/**
 * - `hopByHop`: never forwarded (RFC 9110 section 7.6.1), even if `Connection` does not list it
 * - `framing`: headers about the length of the body; set again when the message is sent
 * - `credential`, `cookie`: credentials of the client for the API server
 * - `impersonation`: `Impersonate*`
 * - `identity`: identity headers of other proxies: `X-Remote*`, `Tailscale*`
 * - `forwarded`: headers in which other proxies describe the client, such as `X-Forwarded-For`
 * - `subprotocol`: WebSocket subprotocols, which may include a bearer token
 * - `extensions`: WebSocket extensions, which would hide the payload from the recorder
 * - `auditId`: audit id; removed in `auth` mode, because the API server would trust the value of the client
 * - `trace`: request ids that appear in other logs; removed in `auth` mode, because a client could send the id of
 * another request
 */
export type HeaderFamily =
  | 'ordinary'
  | 'host'
  | 'hopByHop'
  | 'framing'
  | 'credential'
  | 'cookie'
  | 'impersonation'
  | 'identity'
  | 'forwarded'
  | 'subprotocol'
  | 'extensions'
  | 'auditId'
  | 'trace';

const EXACT: ReadonlyMap<string, HeaderFamily> = new Map([
  ['host', 'host'],
  ['connection', 'hopByHop'],
  ['keep-alive', 'hopByHop'],
  ['te', 'hopByHop'],
  ['trailer', 'hopByHop'],
  ['upgrade', 'hopByHop'],
  ['http2-settings', 'hopByHop'],
  ['transfer-encoding', 'framing'],
  ['content-length', 'framing'],
  ['authorization', 'credential'],
  ['cookie', 'cookie'],
  ['cookie2', 'cookie'],
  ['forwarded', 'forwarded'],
  ['x-real-ip', 'forwarded'],
  ['sec-websocket-protocol', 'subprotocol'],
  ['sec-websocket-extensions', 'extensions'],
  ['audit-id', 'auditId'],
  ['traceparent', 'trace'],
  ['tracestate', 'trace'],
  ['baggage', 'trace'],
  ['b3', 'trace'],
  ['x-request-id', 'trace'],
  ['x-correlation-id', 'trace'],
]);

/** @param name in lower case */
function headerFamily(name: string): HeaderFamily {
  const exact = EXACT.get(name);
  if (exact !== undefined) return exact;
  switch (name.charCodeAt(0)) {
    case 0x69: // i
      return name.startsWith('impersonate') ? 'impersonation' : 'ordinary';
    case 0x70: // p
      return name.startsWith('proxy-') ? 'hopByHop' : 'ordinary';
    case 0x74: // t
      return name.startsWith('tailscale') ? 'identity' : 'ordinary';
    case 0x78: // x
      if (name.startsWith('x-remote')) return 'identity';
      if (name.startsWith('x-b3-')) return 'trace';
      return name.startsWith('x-forwarded') ? 'forwarded' : 'ordinary';
    default:
      return 'ordinary';
  }
}

/**
 * Returns the family of a header that a client has sent. Rejects an invalid name, and a name that some server could
 * convert to a protected name (`Impersonate_User`, `X.Remote.User`).
 *
 * @param name in lower case
 * @throws TailcastError `HEADER_REFUSED`
 */
export function checkHeaderName(name: string): HeaderFamily {
  for (let index = 0; index < name.length; index++) {
    const code = name.charCodeAt(index);
    if ((code >= 0x61 && code <= 0x7a) || code === 0x2d || (code >= 0x30 && code <= 0x39)) continue;
    return oddNameFamily(name);
  }
  return name === '' ? oddNameFamily(name) : headerFamily(name);
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9a-z-]+$/;

function oddNameFamily(name: string): HeaderFamily {
  if (!TOKEN.test(name)) throw new TailcastError('HEADER_REFUSED', 'a header name is malformed');
  const family = headerFamily(name);
  // The suffix of an extra may contain percent-encoded characters.
  if (family !== 'ordinary' && (family !== 'impersonation' || name.startsWith('impersonate-extra-')))
    return family;
  const dashed = name.replaceAll(/[^a-z0-9-]/g, '-');
  const squeezed = name.replaceAll(/[^a-z0-9-]/g, '');
  if (headerFamily(dashed) !== 'ordinary' || headerFamily(squeezed) !== 'ordinary') {
    throw new TailcastError('HEADER_REFUSED', `${name} could be mistaken for ${dashed}`);
  }
  return 'ordinary';
}

/**
 * Rejects values that cannot be written unchanged as one line of latin1 text.
 *
 * @param name only for the message
 * @throws TailcastError `HEADER_REFUSED`
 */
export function checkHeaderValue(value: string, name: string): void {
  for (let index = 0; index < value.length; index++) {
    const code = value.charCodeAt(index);
    if ((code >= 0x20 && code < 0x7f) || code === 0x09 || (code >= 0x80 && code <= 0xff)) continue;
    throw new TailcastError('HEADER_REFUSED', `${name} holds a character that no header may hold`);
  }
}

/** Adds the tokens of a `Connection` value in lower case, without surrounding spaces. */
export function addConnectionTokens(value: string, tokens: Set<string>): void {
  for (const part of value.split(',')) {
    const token = part.trim().toLowerCase();
    if (token !== '') tokens.add(token);
  }
}

/**
 * Returns the list without the headers in `names` (lower case). Returns the given list itself if it contains none of
 * these headers.
 */
export function withoutNamed(headers: RawHeaders, names: ReadonlySet<string>): RawHeaders {
  const kept: string[] = [];
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] ?? '';
    if (!names.has(name.toLowerCase())) kept.push(name, headers[index + 1] ?? '');
  }
  return kept.length === headers.length ? headers : kept;
}

/** Tokens of `Connection` that need no removal: connection options, and headers that are never forwarded. */
const PLAIN_CONNECTION_TOKENS: ReadonlySet<string> = new Set(['close', 'keep-alive', 'upgrade', 'te']);

/** True if one of the tokens is a header that would otherwise be forwarded. */
export function namesFields(tokens: ReadonlySet<string>): boolean {
  for (const token of tokens) if (!PLAIN_CONNECTION_TOKENS.has(token)) return true;
  return false;
}

const BEARER_SUBPROTOCOL = 'base64url.bearer.authorization.k8s.io';

/**
 * Returns a `Sec-WebSocket-Protocol` value without the bearer token that browsers send in it. Returns the value
 * unchanged if it contains no token, and the empty string if no protocol remains. Source:
 * `k8s.io/apiserver/pkg/authentication/request/websocket/protocol.go`.
 */
export function withoutBearerSubprotocol(value: string): string {
  if (!value.toLowerCase().includes(BEARER_SUBPROTOCOL)) return value;
  return value
    .split(',')
    .map((protocol) => protocol.trim())
    .filter((protocol) => protocol !== '' && !protocol.toLowerCase().startsWith(BEARER_SUBPROTOCOL))
    .join(', ');
}

/** Returns the credentials in a `Sec-WebSocket-Protocol` value. */
export function bearerSubprotocols(value: string): readonly string[] {
  return value
    .split(',')
    .map((protocol) => protocol.trim())
    .filter((protocol) => protocol.toLowerCase().startsWith(BEARER_SUBPROTOCOL));
}

/**
 * Headers that `assertStripped` rejects. The list is independent of `headerFamily` on purpose, so that an error in
 * `headerFamily` does not affect this check.
 */
const NEVER_UPSTREAM_PREFIXES = ['impersonate', 'proxy-', 'tailscale', 'x-forwarded', 'x-remote'] as const;
const NEVER_UPSTREAM_NAMES: ReadonlySet<string> = new Set([
  'authorization',
  'connection',
  'content-length',
  'cookie',
  'forwarded',
  'keep-alive',
  'te',
  'trailer',
  'transfer-encoding',
  'upgrade',
  'x-real-ip',
]);

/**
 * Checks the headers before the gateway adds its own. Fails if the list contains a hop-by-hop header, a framing header,
 * or a credential or identity that the client has sent.
 *
 * @param except prefixes and names of headers that the gateway forwards in its current mode
 * @throws TailcastError `INTERNAL`
 */
export function assertStripped(headers: RawHeaders, except: readonly string[] = []): void {
  for (let index = 0; index < headers.length; index += 2) {
    const name = (headers[index] ?? '').toLowerCase();
    const found = NEVER_UPSTREAM_NAMES.has(name)
      ? name
      : NEVER_UPSTREAM_PREFIXES.find((prefix) => name.startsWith(prefix));
    if (found !== undefined && !except.includes(found)) {
      throw new TailcastError('INTERNAL', 'a protected header survived');
    }
  }
}

/**
 * @param user value that the gateway has written, never empty
 * @param field name of the header with the user, in lower case
 * @throws TailcastError `INTERNAL` unless the list has exactly one such header, and it contains this user
 */
export function assertImpersonates(headers: RawHeaders, user: string, field = 'impersonate-user'): void {
  let found = 0;
  for (let index = 0; index < headers.length; index += 2) {
    if (headers[index]?.toLowerCase() !== field) continue;
    found++;
    if (headers[index + 1] !== user) found = Number.NaN;
  }
  if (found !== 1 || user === '') throw new TailcastError('INTERNAL', 'the request names no user');
}

/** Response headers that are not forwarded. `Trailer` is forwarded, because trailers are relayed. */
const RESPONSE_HOP_BY_HOP: ReadonlySet<string> = new Set([
  'connection',
  'http2-settings',
  'keep-alive',
  'proxy-authenticate',
  'proxy-authentication-info',
  'proxy-connection',
  'te',
  'transfer-encoding',
  'upgrade',
]);
/** Response headers that would apply to the hostname of the gateway instead of the API server. */
const RESPONSE_HOST_BOUND: ReadonlySet<string> = new Set(['alt-svc', 'set-cookie', 'set-cookie2']);

/** Lengths of the names above. A fast check compares the length first. */
const RESPONSE_LENGTHS: ReadonlySet<number> = new Set(
  [...RESPONSE_HOP_BY_HOP, ...RESPONSE_HOST_BOUND].map((name) => name.length),
);

/**
 * Returns response headers for the client without hop-by-hop headers and headers that `Connection` lists. Also removes
 * `Alt-Svc`, and cookies unless `keepCookies` is set. `Content-Length` stays even if `Connection` lists it, because the
 * relay needs it. Returns the given list itself if no header is removed.
 */
export function cleanResponseHeaders(
  headers: RawHeaders,
  options: { readonly keepCookies: boolean },
): RawHeaders {
  let kept: string[] | undefined;
  let tokens: Set<string> | undefined;
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] ?? '';
    const value = headers[index + 1] ?? '';
    if (RESPONSE_LENGTHS.has(name.length) && endsHere(name.toLowerCase(), options.keepCookies)) {
      if (name.length === CONNECTION.length && name.toLowerCase() === CONNECTION) {
        addConnectionTokens(value, (tokens ??= new Set()));
      }
      kept ??= headers.slice(0, index);
    } else {
      kept?.push(name, value);
    }
  }
  if (kept === undefined) return headers;
  if (tokens === undefined || !namesFields(tokens)) return kept;
  tokens.delete('content-length');
  return withoutNamed(kept, tokens);
}

const CONNECTION = 'connection';

function endsHere(name: string, keepCookies: boolean): boolean {
  if (RESPONSE_HOP_BY_HOP.has(name)) return true;
  return RESPONSE_HOST_BOUND.has(name) && !(keepCookies && name.startsWith('set-cookie'));
}

/** Headers of a handshake response that a browser stores even if the handshake fails. */
const KEPT_OF_HANDSHAKES: ReadonlySet<string> = new Set([
  'alt-svc',
  'clear-site-data',
  'nel',
  'report-to',
  'reporting-endpoints',
  'set-cookie',
  'set-cookie2',
  'strict-transport-security',
  'www-authenticate',
]);

/** Returns the headers of a WebSocket handshake response, without headers that a browser would store. */
export function handshakeForBrowser(fields: readonly string[]): readonly string[] {
  return fields.filter(
    (_, index) => !KEPT_OF_HANDSHAKES.has((fields[index - (index % 2)] ?? '').toLowerCase()),
  );
}

/** Returns every value of the header `name` (lower case). */
export function headerLines(rawHeaders: readonly string[], name: string): readonly string[] {
  const lines: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    if (rawHeaders[index]?.toLowerCase() === name) lines.push(rawHeaders[index + 1] ?? '');
  }
  return lines;
}

/**
 * Returns the value of the header `name` (lower case) if it occurs exactly once, because several values would be
 * ambiguous.
 */
export function onlyLine(rawHeaders: readonly string[], name: string): string | undefined {
  const [value, ...more] = headerLines(rawHeaders, name);
  return more.length === 0 ? value : undefined;
}

/** Returns the list without the header `name` (lower case). */
export function withoutHeader(rawHeaders: readonly string[], name: string): readonly string[] {
  const kept: string[] = [];
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const line = rawHeaders[index] ?? '';
    if (line.toLowerCase() !== name) kept.push(line, rawHeaders[index + 1] ?? '');
  }
  return kept;
}
