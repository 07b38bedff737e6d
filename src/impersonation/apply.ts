/**
 * Builds the headers for the API server from the client's headers and the impersonation target. The result
 * starts as an empty list. First, hop-by-hop headers and headers that `Connection` lists are removed; otherwise a
 * client could remove headers of the gateway. All other client headers are checked and copied. An assertion then checks
 * that no copied header carries an identity. After that, the gateway adds its own headers, and a second assertion
 * checks that they are present.
 */
import { TailcastError } from '../errors.ts';
import {
  addConnectionTokens,
  assertImpersonates,
  assertStripped,
  checkHeaderName,
  checkHeaderValue,
  namesFields,
  withoutBearerSubprotocol,
  withoutNamed,
  type HeaderFamily,
  type RawHeaders,
} from '../kube/headers.ts';
import type { ImpersonationTarget } from './target.ts';

/**
 * - `auth`: the request runs as `target`, with the gateway's own credential. The credential is `authorization`, or a
 *   client certificate if `authorization` is undefined
 * - `requestHeader`: the request runs as `target`, which the API server accepts because of the gateway's
 *   client certificate. With `passImpersonation`, `Impersonate-*` headers of the client are forwarded, and
 *   the API server checks whether `target` may impersonate
 * - `noauth`: the client's own credential is passed on unchanged; see `nameForAuditLog` for recorded sessions
 */
export type UpstreamIdentity =
  | {
      readonly mode: 'auth';
      readonly target: ImpersonationTarget;
      readonly authorization: string | undefined;
    }
  | {
      readonly mode: 'requestHeader';
      readonly target: ImpersonationTarget;
      readonly uid?: string;
      readonly passImpersonation: boolean;
    }
  | { readonly mode: 'noauth' };

export interface UpstreamHeadersRequest {
  /** Client headers as received, without the pseudo-headers of HTTP/2. */
  readonly rawHeaders: RawHeaders;
  /** Value of `Host` for the API server. */
  readonly host: string;
  readonly identity: UpstreamIdentity;
  /**
   * Value of the `Audit-ID` header that the gateway sets. If absent, the API server generates an id. In `auth` mode, an
   * id of the client is never forwarded.
   */
  readonly auditId?: string | undefined;
  /**
   * True if access on request has already checked the client's `Impersonate-*` headers. They are then removed
   * without another check.
   */
  readonly judged?: boolean;
}

/**
 * Returns the headers for the API server, without `Connection`, `Upgrade` and framing, which are added when
 * the request is written.
 *
 * @throws TailcastError `HEADER_REFUSED` or `IMPERSONATION_REFUSED` for a header of the client; `INTERNAL` if an
 *   assertion fails
 */
export function buildUpstreamHeaders(request: UpstreamHeadersRequest): RawHeaders {
  const { identity, auditId } = request;
  const passes = identity.mode === 'requestHeader' && identity.passImpersonation && request.judged !== true;
  const { kept, impersonates } = keepClientHeaders(request.rawHeaders, identity.mode !== 'noauth', passes);
  if (identity.mode === 'noauth') {
    assertStripped(kept, PASSED_WITHOUT_AUTH);
    return ['Host', request.host, ...kept];
  }
  assertStripped(kept, passes ? PASSED_WITH_REQUEST_HEADERS : []);
  const { target } = identity;
  if (impersonates && !passes && request.judged !== true) refuseOtherIdentity(request.rawHeaders, target);
  const headers = ['Host', request.host, ...kept];
  if (identity.mode === 'auth' && identity.authorization !== undefined) {
    headers.push('Authorization', identity.authorization);
  }
  if (auditId !== undefined) headers.push('Audit-ID', auditId);
  if (identity.mode === 'requestHeader' && identity.uid !== undefined) {
    headers.push('X-Remote-Uid', latin1Utf8(identity.uid));
  }
  addIdentity(headers, target, identity.mode === 'auth' ? 'Impersonate' : 'X-Remote');
  return headers;
}

function addIdentity(
  headers: string[],
  target: ImpersonationTarget,
  prefix: 'Impersonate' | 'X-Remote',
): void {
  const user = latin1Utf8(target.user);
  headers.push(`${prefix}-User`, user);
  for (const group of target.groups) headers.push(`${prefix}-Group`, latin1Utf8(group));
  for (const [key, value] of target.extra) headers.push(extraHeaderName(prefix, key), latin1Utf8(value));
  assertImpersonates(headers, user, `${prefix.toLowerCase()}-user`);
}

/**
 * Checks the `Impersonate-*` headers of a client in `auth` mode. A client may impersonate itself: `Impersonate-User`
 * equals the caller's user, and `Impersonate-Group` lists exactly the caller's groups. A subset of the groups, or no
 * group, is refused, because the request would run with more groups than the client listed.
 *
 * @param rawHeaders as received; all headers except `Impersonate*` are skipped
 * @throws TailcastError `IMPERSONATION_REFUSED`; `HEADER_REFUSED` for an unknown `Impersonate*` header
 */
export function refuseOtherIdentity(rawHeaders: RawHeaders, { user, groups }: ImpersonationTarget): void {
  const ownUser = latin1Utf8(user);
  const ownGroups = new Set(groups.map(latin1Utf8));
  const named = new Set<string>();
  let impersonates = false;
  let namesUser = false;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const name = (rawHeaders[index] ?? '').toLowerCase();
    if (!name.startsWith('impersonate')) continue;
    impersonates = true;
    checkImpersonation(name);
    const value = rawHeaders[index + 1] ?? '';
    if (name === 'impersonate-user' && value === ownUser) namesUser = true;
    else if (name === 'impersonate-group' && (ownGroups.has(value) || value === EVERY_USER)) named.add(value);
    else throw new TailcastError('IMPERSONATION_REFUSED', `${name} does not name your own identity`);
  }
  if (!impersonates) return;
  if (!namesUser) throw new TailcastError('IMPERSONATION_REFUSED', 'impersonate-user is missing');
  if ([...ownGroups].some((group) => group !== EVERY_USER && !named.has(group))) {
    throw new TailcastError(
      'IMPERSONATION_REFUSED',
      'impersonate-group does not name all of your own groups. Leave out --as to use all of them',
    );
  }
}

/** The group that the API server adds to every authenticated user. */
const EVERY_USER = 'system:authenticated';

/**
 * In `noauth` mode the audit log of the API server identifies a session by its audit id, so the gateway sets the id of
 * a recorded session. An id of the client, even an empty id, is kept, because client headers are not changed in this
 * mode.
 *
 * @returns the headers, and the gateway's id if the API server will use it
 */
export function nameForAuditLog(
  headers: RawHeaders,
  id: string,
): { readonly headers: RawHeaders; readonly auditId: string | undefined } {
  for (let index = 0; index < headers.length; index += 2) {
    if (headers[index]?.toLowerCase() === 'audit-id') return { headers, auditId: undefined };
  }
  return { headers: [...headers, 'Audit-ID', id], auditId: id };
}

/** Prefixes of headers that `assertStripped` accepts in `noauth` mode. */
const PASSED_WITHOUT_AUTH = ['authorization', 'cookie', 'impersonate'] as const;

/** Prefixes of headers that `assertStripped` accepts in `requestHeader` mode with `passImpersonation`. */
const PASSED_WITH_REQUEST_HEADERS = ['impersonate'] as const;

interface PassedHeaders {
  readonly kept: RawHeaders;
  /** True if the client sent a header of the `Impersonate*` family. */
  readonly impersonates: boolean;
}

/** Filters the client's headers in one pass. If `Connection` lists headers, a second pass removes those headers. */
function keepClientHeaders(rawHeaders: RawHeaders, auth: boolean, passes: boolean): PassedHeaders {
  const scan: Scan = {
    auth,
    passes,
    kept: [],
    connection: undefined,
    impersonates: false,
    hosts: 0,
    strippedProtocol: false,
  };
  for (let index = 0; index < rawHeaders.length; index += 2) {
    keepField(scan, rawHeaders[index] ?? '', rawHeaders[index + 1] ?? '');
  }
  const { kept, connection } = scan;
  if (scan.strippedProtocol) requireSubprotocol(kept);
  const named = connection !== undefined && namesFields(connection) ? withoutNamed(kept, connection) : kept;
  return { kept: named, impersonates: scan.impersonates };
}

interface Scan {
  readonly auth: boolean;
  /** True to keep `Impersonate-*` headers in a mode other than `noauth`. */
  readonly passes: boolean;
  readonly kept: string[];
  /** Header names in `Connection`, in lower case. */
  connection: Set<string> | undefined;
  impersonates: boolean;
  hosts: number;
  strippedProtocol: boolean;
}

function keepField(scan: Scan, name: string, value: string): void {
  const lower = name.toLowerCase();
  const family = checkHeaderName(lower);
  checkHeaderValue(value, lower);
  if (lower === 'connection') addConnectionTokens(value, (scan.connection ??= new Set()));
  if (family === 'host' && ++scan.hosts > 1) {
    throw new TailcastError('HEADER_REFUSED', 'there are two Host headers');
  }
  if (!scan.auth) {
    if (KEPT_WITHOUT_AUTH.has(family)) scan.kept.push(name, value);
  } else if (family === 'ordinary') {
    scan.kept.push(name, value);
  } else if (family === 'subprotocol') {
    keepSubprotocol(scan, name, value);
  } else if (family === 'impersonation') {
    scan.impersonates = true;
    if (!scan.passes) return;
    checkImpersonation(lower);
    scan.kept.push(name, value);
  }
}

/**
 * Header families that are forwarded in `noauth` mode. In `auth` mode, only ordinary headers and subprotocols
 * are forwarded.
 */
const KEPT_WITHOUT_AUTH: ReadonlySet<HeaderFamily> = new Set([
  'ordinary',
  'subprotocol',
  'credential',
  'cookie',
  'impersonation',
  'auditId',
  'trace',
]);

function keepSubprotocol(scan: Scan, name: string, value: string): void {
  const remaining = withoutBearerSubprotocol(value);
  if (remaining !== value) scan.strippedProtocol = true;
  if (remaining !== '' || value === '') scan.kept.push(name, remaining);
}

const KNOWN_IMPERSONATION: ReadonlySet<string> = new Set([
  'impersonate-user',
  'impersonate-group',
  'impersonate-uid',
]);

/**
 * Rejects an unknown `Impersonate*` header, because a newer API server may give it a meaning.
 *
 * @param name in lower case
 * @throws TailcastError `HEADER_REFUSED`
 */
export function checkImpersonation(name: string): void {
  if (KNOWN_IMPERSONATION.has(name) || name.startsWith('impersonate-extra-')) return;
  throw new TailcastError('HEADER_REFUSED', `${name} is not a known impersonation header`);
}

/** Throws if `Sec-WebSocket-Protocol` contains only a bearer token. Kubernetes requires another subprotocol, too. */
function requireSubprotocol(kept: RawHeaders): void {
  for (let index = 0; index < kept.length; index += 2) {
    if (kept[index]?.toLowerCase() === 'sec-websocket-protocol' && kept[index + 1] !== '') return;
  }
  throw new TailcastError('HEADER_REFUSED', 'Sec-WebSocket-Protocol offers nothing but a bearer token');
}

/**
 * Returns `<prefix>-Extra-<key>` with the key escaped as in client-go: token bytes except `%` stay unchanged, and every
 * other byte becomes `%XX`. Kubernetes requires keys in lower case, because the API server converts the suffix to lower
 * case before it unescapes the suffix: an unescaped `A` arrives as `a`.
 *
 * @throws TailcastError `INTERNAL` for an empty key, or a key that is not in lower case
 */
function extraHeaderName(prefix: string, key: string): string {
  if (key === '' || key !== key.toLowerCase())
    throw new TailcastError('INTERNAL', 'an extra key is malformed');
  let escaped = '';
  for (const byte of new TextEncoder().encode(key)) {
    const character = String.fromCharCode(byte);
    escaped += EXTRA_KEY_CHARACTER.test(character)
      ? character
      : `%${byte.toString(16).toUpperCase().padStart(2, '0')}`;
  }
  return `${prefix}-Extra-${escaped}`;
}

const EXTRA_KEY_CHARACTER = /[!#$&'*+.^_`|~0-9a-z-]/;

/** Returns the text with one UTF-16 unit per UTF-8 byte, because Node.js writes header values as one byte per unit. */
function latin1Utf8(text: string): string {
  let ascii = true;
  for (let index = 0; index < text.length; index++) {
    const code = text.charCodeAt(index);
    if (code < 0x20 || code === 0x7f) throw new TailcastError('INTERNAL', 'an identity value is malformed');
    if (code >= 0x80) ascii = false;
  }
  return ascii ? text : String.fromCharCode(...new TextEncoder().encode(text));
}
