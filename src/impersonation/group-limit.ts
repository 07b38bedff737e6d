/**
 * Limits the groups that a gateway may assign to a caller. Grants assign groups, so without a limit, editors
 * of the tailnet policy could assign `system:masters`. The administrator of the cluster configures the limit
 * at the gateway. Pure.
 */
import { TailcastError } from '../errors.ts';

/** Groups that every authenticated caller has anyway. Assigning them gives no additional rights. */
const HARMLESS: ReadonlySet<string> = new Set(['system:authenticated', 'system:unauthenticated']);

/** Returns the items of `groups` that are built into Kubernetes and have rights by default. */
export function reservedGroups(groups: readonly string[]): readonly string[] {
  return groups.filter((group) => group.startsWith('system:') && !HARMLESS.has(group));
}

/**
 * @param claimable allowed names; a name may end with `*`. An empty list allows any group and user
 * @param rules rules of access on request. If `claimable` is not empty, no rule may name a user, because the rights of
 *   that user are unknown
 * @throws TailcastError `POLICY_REFUSED` that names the first group or user that is not allowed
 */
export function requireClaimable(
  claimable: readonly string[],
  groups: readonly string[],
  rules: readonly { readonly users: readonly string[] }[] = [],
): void {
  if (claimable.length === 0) return;
  const [user] = rules.flatMap(({ users }) => users);
  if (user !== undefined)
    throw new TailcastError(
      'POLICY_REFUSED',
      `a grant names the user ${user}, but this gateway may claim only groups (claimableGroups)`,
    );
  const excess = groups.find((group) => !claimable.some((name) => covers(name, group)));
  if (excess !== undefined) {
    throw new TailcastError(
      'POLICY_REFUSED',
      `a grant names the group ${excess}, which this gateway may not claim (claimableGroups)`,
    );
  }
}

function covers(name: string, group: string): boolean {
  return name.endsWith('*') ? group.startsWith(name.slice(0, -1)) : group === name;
}
