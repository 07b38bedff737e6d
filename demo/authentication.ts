import { isSameSecret } from '../src/kube/bearer-token.ts';
import { headerLines } from '../src/kube/headers.ts';
import { badRequest, forbidden, unauthorized } from './api-status.ts';

/** Effective user of a request, after impersonation. */
export interface UserInfo {
  readonly username: string;
  readonly uid: string;
  readonly groups: readonly string[];
  readonly extra: Readonly<Record<string, readonly string[]>>;
}

const AUTHENTICATED = 'system:authenticated';
const UNAUTHENTICATED = 'system:unauthenticated';
const ADMIN: UserInfo = {
  username: 'kubernetes-admin',
  uid: 'kubernetes-admin',
  groups: ['system:masters', AUTHENTICATED],
  extra: {},
};

/**
 * Returns all values of a header, in order. The values are decoded as UTF-8, as in Go, although Node decodes headers as
 * Latin-1.
 */
function headerValues(raw: readonly string[], name: string): readonly string[] {
  return headerLines(raw, name).map(utf8);
}

function utf8(value: string): string {
  return Buffer.from(value, 'latin1').toString('utf8');
}

/**
 * Returns the user of a request. The request must contain the administrator's token. The user is the administrator, or
 * the user that the administrator impersonates. `subprotocolToken` is a token from a WebSocket subprotocol. Throws a
 * 401 error if the token is missing, and a 400 error for impersonation headers without a user. Source: apiserver
 * `pkg/endpoints/filters/impersonation.go`.
 */
export function authenticate(
  raw: readonly string[],
  adminToken: string,
  subprotocolToken?: string,
): UserInfo {
  const [authorization = ''] = headerValues(raw, 'authorization');
  const presented = /^bearer +(\S+)$/i.exec(authorization)?.[1] ?? subprotocolToken;
  if (presented === undefined || !isSameSecret(presented, adminToken)) throw unauthorized();
  return impersonate(raw);
}

function impersonate(raw: readonly string[]): UserInfo {
  const [username] = headerValues(raw, 'impersonate-user');
  const asked = raw.some((name, index) => index % 2 === 0 && name.toLowerCase().startsWith('impersonate-'));
  if (username === undefined || username === '') {
    if (asked) throw badRequest('impersonation was requested without a user');
    return ADMIN;
  }
  const groups = headerValues(raw, 'impersonate-group');
  const extra = impersonatedExtra(raw);
  const [uid = ''] = headerValues(raw, 'impersonate-uid');
  return { username, uid, groups: withDerivedGroups(username, groups), extra };
}

function impersonatedExtra(raw: readonly string[]): Readonly<Record<string, readonly string[]>> {
  const prefix = 'impersonate-extra-';
  const extra = new Map<string, readonly string[]>();
  raw.forEach((name, index) => {
    if (index % 2 === 1 || !name.toLowerCase().startsWith(prefix)) return;
    const key = unescapeKey(name.toLowerCase().slice(prefix.length));
    extra.set(key, [...(extra.get(key) ?? []), utf8(raw[index + 1] ?? '')]);
  });
  return Object.fromEntries(extra);
}

function unescapeKey(key: string): string {
  try {
    return decodeURIComponent(key);
  } catch {
    return key;
  }
}

function withDerivedGroups(username: string, given: readonly string[]): readonly string[] {
  const account = /^system:serviceaccount:([^:]+):[^:]+$/.exec(username);
  const derived =
    account === null || given.length > 0
      ? given
      : ['system:serviceaccounts', `system:serviceaccounts:${account[1] ?? ''}`];
  if (username === 'system:anonymous' && given.length === 0) return [UNAUTHENTICATED];
  if (derived.includes(AUTHENTICATED) || derived.includes(UNAUTHENTICATED)) return derived;
  return username === 'system:anonymous' ? derived : [...derived, AUTHENTICATED];
}

/** Permits everything, except for the anonymous user. Throws a 403 error like the API server. */
export function authorize(
  user: UserInfo,
  verb: string,
  resource: string,
  group: string,
  namespace: string,
): void {
  if (!user.groups.includes(UNAUTHENTICATED)) return;
  const scope = namespace === '' ? 'at the cluster scope' : `in the namespace "${namespace}"`;
  throw forbidden(
    `${resource} is forbidden: User "${user.username}" cannot ${verb} resource "${resource}" in API group ` +
      `"${group}" ${scope}`,
    { kind: resource },
  );
}
