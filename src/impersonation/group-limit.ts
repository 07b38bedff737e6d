/**
 * Groups that a gateway may claim for a caller. Grants decide, as with the reference; whoever edits the tailnet policy can
 * then hand out `system:masters`. The limit is said where the gateway runs, by whoever answers for the cluster. Pure.
 */
import { TailcastError } from '../errors.ts';

/** Names under which every caller, or nobody, is known anyway: to claim them gives no right. */
const HARMLESS: ReadonlySet<string> = new Set(['system:authenticated', 'system:unauthenticated']);

/** The groups among `groups` to which Kubernetes itself gives rights. */
export function reservedGroups(groups: readonly string[]): readonly string[] {
  return groups.filter((group) => group.startsWith('system:') && !HARMLESS.has(group));
}

/**
 * @param claimable names, each of which may end with `*`; none: any group
 * @throws TailcastError `POLICY_REFUSED` that names the first group beyond the limit
 */
export function refuseBeyond(claimable: readonly string[], groups: readonly string[]): void {
  if (claimable.length === 0) return;
  const beyond = groups.find((group) => !claimable.some((name) => covers(name, group)));
  if (beyond !== undefined) {
    throw new TailcastError(
      'POLICY_REFUSED',
      `a grant names the group ${beyond}, which this gateway may not claim (claimableGroups)`,
    );
  }
}

function covers(name: string, group: string): boolean {
  return name.endsWith('*') ? group.startsWith(name.slice(0, -1)) : group === name;
}
