/**
 * Identity and grants → whom the request impersonates. Kubernetes treats a missing or empty user as "no impersonation",
 * that is: the proxy's own account. So everything here either names a user or refuses.
 */
import { TailcastError, type ErrorCode } from '../errors.ts';
import type { Identity } from '../tailnet/identity.ts';

/** Whom the API server is told the caller is. */
export interface ImpersonationTarget {
  /** Never empty; any Unicode text without controls. */
  readonly user: string;
  /** In the order of the grants, without repeats. Empty: Kubernetes adds `system:authenticated` by itself. */
  readonly groups: readonly string[];
  /** Pairs of lower-case key and value for the cluster's audit log. */
  readonly extra: readonly (readonly [key: string, value: string])[];
}

/** The part of a grant that matters here. */
export interface GroupRule {
  readonly groups: readonly string[];
}

/** One name, in UTF-8. */
const MAX_NAME_BYTES = 256;
export const MAX_GROUPS = 512;

/** What tailscaled reports as the login name of every node that belongs to no person. */
const TAGGED_PLACEHOLDER = 'tagged-devices';

/**
 * A person is impersonated by login name, a tagged node by its full name; groups come from the grants. A tagged node
 * whose grants name no group gets its tags as groups.
 *
 * @param extra as in {@link ImpersonationTarget}
 * @throws TailcastError `IDENTITY_MALFORMED` or `GRANT_MALFORMED`
 */
export function resolveTarget(
  identity: Identity,
  rules: readonly GroupRule[],
  extra: ImpersonationTarget['extra'] = [],
): ImpersonationTarget {
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
  return { user, groups: granted.size > 0 ? [...granted] : defaultGroups(identity), extra };
}

function userOf(identity: Identity): string {
  const { kind } = identity;
  const user = kind === 'user' ? identity.login : identity.nodeName.replace(/\.$/, '');
  refuseBadName(user, kind === 'user' ? 'the login name' : 'the node name', 'IDENTITY_MALFORMED');
  if (user.toLowerCase() === TAGGED_PLACEHOLDER) {
    throw new TailcastError('IDENTITY_MALFORMED', 'the login name is the placeholder of tagged nodes');
  }
  // NOTE: Kubernetes gives meaning to these names; a grant may hand out such groups, but no identity may be such a user
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

/** Controls, formatting marks, lone surrogates, unassigned code points, line and paragraph separators. */
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/u;

function refuseBadName(name: string, what: string, code: ErrorCode): void {
  if (name === '') throw new TailcastError(code, `${what} is empty`);
  if (name.trim() !== name) throw new TailcastError(code, `${what} starts or ends with a space`);
  if (UNPRINTABLE.test(name))
    throw new TailcastError(code, `${what} holds a character that cannot be printed`);
  // a UTF-16 unit is at most three bytes of UTF-8, so most names need not be encoded to be measured
  if (name.length * 3 > MAX_NAME_BYTES && new TextEncoder().encode(name).length > MAX_NAME_BYTES) {
    throw new TailcastError(code, `${what} is longer than ${MAX_NAME_BYTES} bytes`);
  }
}
