/**
 * Derives the impersonated user and groups from identity and grants. With a missing or empty user, Kubernetes would run
 * the request as the gateway's own account. `resolveTarget` therefore returns a user or throws.
 */
import { TailcastError, type ErrorCode } from '../errors.ts';
import type { Identity } from '../tailnet/identity.ts';

/** The user, groups and extras that the API server sees. */
export interface ImpersonationTarget {
  /** User name. Never empty. May contain any Unicode text without control characters. */
  readonly user: string;
  /**
   * Groups in the order of the grants, without duplicates. With an empty list, the user is only in
   * `system:authenticated`.
   */
  readonly groups: readonly string[];
  /** Extras for the audit log of the cluster, as pairs of a lower-case key and a value. */
  readonly extra: readonly (readonly [key: string, value: string])[];
}

/** The fields of a grant that this file uses. */
export interface GroupRule {
  readonly groups: readonly string[];
}

/** Maximum size of a name in UTF-8, in bytes. */
const MAX_NAME_BYTES = 256;
export const MAX_GROUPS = 512;

/** Login name that tailscaled reports for tagged nodes. */
const TAGGED_PLACEHOLDER = 'tagged-devices';

/**
 * Returns the impersonation target. The user is the login name, or the full node name of a tagged node. The groups are
 * from the grants. If the grants contain no group, a tagged node gets its tags as groups.
 *
 * @throws TailcastError `IDENTITY_MALFORMED` or `GRANT_MALFORMED`
 */
export function resolveTarget(identity: Identity, rules: readonly GroupRule[]): ImpersonationTarget {
  const user = userOf(identity);
  const granted = new Set<string>();
  for (const rule of rules) {
    for (const group of rule.groups) {
      refuseBadName(group, 'a group', 'GRANT_MALFORMED');
      granted.add(group);
    }
  }
  if (granted.size > MAX_GROUPS) {
    throw new TailcastError('GRANT_MALFORMED', `it names more than ${MAX_GROUPS} groups`);
  }
  return { user, groups: granted.size > 0 ? [...granted] : defaultGroups(identity), extra: [] };
}

function userOf(identity: Identity): string {
  const { kind } = identity;
  const user = kind === 'user' ? identity.login : identity.nodeName.replace(/\.$/, '');
  refuseBadName(user, kind === 'user' ? 'the login name' : 'the node name', 'IDENTITY_MALFORMED');
  if (user.toLowerCase() === TAGGED_PLACEHOLDER) {
    throw new TailcastError('IDENTITY_MALFORMED', 'the login name is the placeholder of tagged nodes');
  }
  // Kubernetes reserves names with this prefix; a grant may assign such groups, but no identity may have such
  // a user name
  if (user.toLowerCase().startsWith('system:')) {
    throw new TailcastError(
      'IDENTITY_MALFORMED',
      'the name starts with "system:", which Kubernetes reserves',
    );
  }
  return user;
}

function defaultGroups(identity: Identity): readonly string[] {
  if (identity.kind === 'user') return [];
  for (const tag of identity.tags) refuseBadName(tag, 'a tag', 'IDENTITY_MALFORMED');
  return [...new Set(identity.tags)];
}

/**
 * Characters that names must not contain: control characters, formatting marks, lone surrogates, unassigned
 * code points, and line and paragraph separators.
 */
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/u;

function refuseBadName(name: string, what: string, code: ErrorCode): void {
  if (name === '') throw new TailcastError(code, `${what} is empty`);
  if (name.trim() !== name) throw new TailcastError(code, `${what} starts or ends with a space`);
  if (UNPRINTABLE.test(name))
    throw new TailcastError(code, `${what} holds a character that cannot be printed`);
  // a fast check: a UTF-16 unit is at most three bytes of UTF-8, so most names need not be encoded to check
  // their size
  if (name.length * 3 > MAX_NAME_BYTES && new TextEncoder().encode(name).length > MAX_NAME_BYTES) {
    throw new TailcastError(code, `${what} is longer than ${MAX_NAME_BYTES} bytes`);
  }
}
