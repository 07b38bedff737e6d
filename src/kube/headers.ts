/**
 * Header fields as flat lists `[name, value, name, value, …]`, the form of Node's `rawHeaders`: nothing is joined,
 * dropped or renamed before it is judged. Families are matched by prefix, so that a member nobody has heard of yet is
 * treated like its relatives.
 */
import { TailcastError } from '../errors.ts';

/** Names and values in turn; always of even length. */
export type RawHeaders = readonly string[];

/**
 * - `hopByHop`: ends at this proxy (RFC 9110 section 7.6.1), whatever `Connection` says
 * - `framing`: says where the body ends; the sender of the message writes it anew
 * - `credential`, `cookie`: who the client claims to be towards the API server
 * - `impersonation`: `Impersonate*`
 * - `identity`: what other proxies use to say who is calling: `X-Remote*`, `Tailscale*`
 * - `forwarded`: what other proxies use to say where a request came from
 * - `subprotocol`: may carry a bearer token
 * - `extensions`: WebSocket extensions, which would hide the payload from the recorder
 * - `auditId`: the API server would take the client's word for it
 * - `trace`: names by which other logs know a request; a client could make its own look like somebody else's
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
 * The family of a name as received. A name that is not a token, or that some server could fold into a protected name
 * (`Impersonate_User`, `X.Remote.User`), is refused.
 *
 * @param name in lower case
 * @throws TailcastError `HEADER_REFUSED`
 */
export function judgeHeaderName(name: string): HeaderFamily {
  for (let index = 0; index < name.length; index++) {
    const code = name.charCodeAt(index);
    if ((code >= 0x61 && code <= 0x7a) || code === 0x2d || (code >= 0x30 && code <= 0x39)) continue;
    return judgeOddName(name);
  }
  return name === '' ? judgeOddName(name) : headerFamily(name);
}

const TOKEN = /^[!#$%&'*+.^_`|~0-9a-z-]+$/;

function judgeOddName(name: string): HeaderFamily {
  if (!TOKEN.test(name)) throw new TailcastError('HEADER_REFUSED', 'a header name is malformed');
  const family = headerFamily(name);
  // the suffix of an extra is percent-encoded by design
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
 * Refuses values that could not be written on one line of latin1 text as they are.
 *
 * @param name only for the message
 * @throws TailcastError `HEADER_REFUSED`
 */
export function judgeHeaderValue(value: string, name: string): void {
  for (let index = 0; index < value.length; index++) {
    const code = value.charCodeAt(index);
    if ((code >= 0x20 && code < 0x7f) || code === 0x09 || (code >= 0x80 && code <= 0xff)) continue;
    throw new TailcastError('HEADER_REFUSED', `${name} holds a character that no header may hold`);
  }
}

/** Adds the lower-case tokens of a `Connection` value; the spacing around them means nothing. */
export function addConnectionTokens(value: string, tokens: Set<string>): void {
  for (const part of value.split(',')) {
    const token = part.trim().toLowerCase();
    if (token !== '') tokens.add(token);
  }
}

/** The list without the fields that are in `names` (lower case); the list itself when none is. */
export function withoutNamed(headers: RawHeaders, names: ReadonlySet<string>): RawHeaders {
  const kept: string[] = [];
  for (let index = 0; index < headers.length; index += 2) {
    const name = headers[index] ?? '';
    if (!names.has(name.toLowerCase())) kept.push(name, headers[index + 1] ?? '');
  }
  return kept.length === headers.length ? headers : kept;
}

/** Tokens that name nothing to remove: connection options, and fields that never get past this proxy anyway. */
const PLAIN_CONNECTION_TOKENS: ReadonlySet<string> = new Set(['close', 'keep-alive', 'upgrade', 'te']);

/** True when some token names a field that would otherwise be passed on. */
export function namesFields(tokens: ReadonlySet<string>): boolean {
  for (const token of tokens) if (!PLAIN_CONNECTION_TOKENS.has(token)) return true;
  return false;
}

const BEARER_SUBPROTOCOL = 'base64url.bearer.authorization.k8s.io';

/**
 * A `Sec-WebSocket-Protocol` value without the bearer token that browsers put there. The value itself when it has none,
 * the empty string when nothing else remains.
 * Source: `k8s.io/apiserver/pkg/authentication/request/websocket/protocol.go`.
 */
export function withoutBearerSubprotocol(value: string): string {
  if (!value.toLowerCase().includes(BEARER_SUBPROTOCOL)) return value;
  return value
    .split(',')
    .map((protocol) => protocol.trim())
    .filter((protocol) => protocol !== '' && !protocol.toLowerCase().startsWith(BEARER_SUBPROTOCOL))
    .join(', ');
}

/** What of a `Sec-WebSocket-Protocol` value is a credential and no protocol. */
export function bearerSubprotocols(value: string): readonly string[] {
  return value
    .split(',')
    .map((protocol) => protocol.trim())
    .filter((protocol) => protocol.toLowerCase().startsWith(BEARER_SUBPROTOCOL));
}

/** What `assertStripped` looks for; written apart from `headerFamily` on purpose. */
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
 * The last look before our own fields are added: nothing may be left that speaks for the client or ends at this proxy.
 *
 * @param except prefixes and names that the mode passes on
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
 * @param user the value as it is written, never empty
 * @throws TailcastError `INTERNAL` unless the list impersonates exactly this user, once
 */
export function assertImpersonates(headers: RawHeaders, user: string): void {
  let found = 0;
  for (let index = 0; index < headers.length; index += 2) {
    if (headers[index]?.toLowerCase() !== 'impersonate-user') continue;
    found++;
    if (headers[index + 1] !== user) found = Number.NaN;
  }
  if (found !== 1 || user === '') throw new TailcastError('INTERNAL', 'the request names no user');
}

/** Response fields that end at this proxy. `Trailer` stays: trailers are relayed. */
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
/** They would speak for this proxy's host name. */
const RESPONSE_HOST_BOUND: ReadonlySet<string> = new Set(['alt-svc', 'set-cookie', 'set-cookie2']);

/** Lengths of the names above; all other names need no closer look. */
const RESPONSE_LENGTHS: ReadonlySet<number> = new Set(
  [...RESPONSE_HOP_BY_HOP, ...RESPONSE_HOST_BOUND].map((name) => name.length),
);

/**
 * Upstream response fields as they may go to the client: hop-by-hop fields, what `Connection` names and, unless
 * `keepCookies`, cookies removed. `Content-Length` stays even if named: it is framing that the relay depends on. Returns
 * the list itself when there is nothing to remove.
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
