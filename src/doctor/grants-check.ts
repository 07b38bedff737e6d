/**
 * Lists the permissions of callers: the grants of the tailnet policy whose `dst` is this tailnet node. The grants are
 * evaluated by the same code that authorises requests.
 */
import { errorText, TailcastError } from '../errors.ts';
import { reservedGroups } from '../impersonation/group-limit.ts';
import { decideRecording, type RecordingPolicy } from '../recording/policy.ts';
import { parseClusterRules, parseKubernetesRules, type ClusterScope } from '../tailnet/capabilities.ts';
import type { Identity } from '../tailnet/identity.ts';
import { failed, ok, warning, type Check, type CheckVerdict } from './checks.ts';

/** A node of the tailnet that may be a caller. */
export interface NamedCaller {
  readonly name: string;
  readonly address: string;
}

/** The cluster to which the grants apply. */
export interface GrantScope extends ClusterScope {
  readonly service: string | undefined;
}

export interface GrantFacts {
  /** Undefined if the gateway serves only one cluster. */
  readonly scope?: GrantScope | undefined;
  readonly callers: () => Promise<readonly NamedCaller[]>;
  readonly whois: (address: string, signal: AbortSignal, service?: string) => Promise<Identity>;
  /**
   * Caller to which the result is limited: its name, the first label of its name, or its address. Undefined stands for
   * all callers.
   */
  readonly only: string | undefined;
}

/**
 * Grants of one caller; `none` if the caller has no grants, `malformed` if the gateway rejects the caller because of an
 * invalid grant.
 */
export type CallerGrant =
  | {
      readonly kind: 'granted';
      readonly caller: string;
      readonly groups: readonly string[];
      readonly recording: RecordingPolicy;
    }
  | { readonly kind: 'none'; readonly caller: string }
  | { readonly kind: 'malformed'; readonly caller: string; readonly problem: string };

const MAX_CALLERS = 200;
const AT_ONCE = 4;
const GRANT =
  'in the tailnet policy, add a grant whose dst is this node’s tag, with ip ["tcp:443"] and app ' +
  '"tailscale.com/cap/kubernetes": see docs/identity.md';

/** @throws TailcastError if tailscaled does not respond */
export async function readGrants(facts: GrantFacts, signal: AbortSignal): Promise<readonly CallerGrant[]> {
  const { only } = facts;
  const callers = (await facts.callers())
    .filter(
      ({ name, address }) =>
        only === undefined || name === only || name.startsWith(`${only}.`) || address === only,
    )
    .slice(0, MAX_CALLERS);
  const grants: CallerGrant[] = [];
  for (let start = 0; start < callers.length; start += AT_ONCE) {
    const some = callers.slice(start, start + AT_ONCE);
    grants.push(...(await Promise.all(some.map((caller) => readGrant(facts, caller, signal)))));
  }
  return grants;
}

async function readGrant(
  { whois, scope }: GrantFacts,
  caller: NamedCaller,
  signal: AbortSignal,
): Promise<CallerGrant> {
  try {
    return grantOf(await whois(caller.address, signal, scope?.service), scope);
  } catch (error) {
    signal.throwIfAborted();
    if (!(error instanceof TailcastError)) throw error;
    // A tailnet node that tailscaled does not know cannot connect. If tailscaled's response about a node is invalid,
    // the gateway rejects that node.
    if (error.code === 'IDENTITY_UNKNOWN') return { kind: 'none', caller: caller.name };
    if (error.code !== 'IDENTITY_MALFORMED') throw error;
    return { kind: 'malformed', caller: caller.name, problem: errorText(error) };
  }
}

/** Evaluates the grants of a caller with the parser of the gateway. */
export function grantOf(identity: Identity, scope?: GrantScope): CallerGrant {
  const caller = identity.kind === 'user' ? `${identity.login} on ${identity.nodeName}` : identity.nodeName;
  try {
    const { capabilities } = identity;
    const { impersonation, recording } =
      scope === undefined ? parseKubernetesRules(capabilities) : parseClusterRules(capabilities, scope);
    if (impersonation.length === 0) return { kind: 'none', caller };
    const groups = [...new Set(impersonation.flatMap((rule) => rule.groups))];
    return { kind: 'granted', caller, groups, recording: decideRecording(recording) };
  } catch (error) {
    return { kind: 'malformed', caller, problem: errorText(error) };
  }
}

export function grantsCheck(
  grants: (signal: AbortSignal) => Promise<readonly CallerGrant[]>,
  options: {
    readonly needs: readonly string[];
    readonly only: string | undefined;
    /** Undefined if the gateway serves only one cluster. */
    readonly cluster?: string;
  },
): Check {
  return {
    id: 'grants',
    title: 'grants',
    needs: options.needs,
    remedy: 'check that tailscaled is connected and its socket is accessible',
    run: async (signal) => grantsVerdict(await grants(signal), options),
  };
}

function grantsVerdict(
  grants: readonly CallerGrant[],
  { only, cluster }: { readonly only: string | undefined; readonly cluster?: string },
): CheckVerdict {
  if (grants.length === 0) {
    return only === undefined
      ? warning(
          'no other node of the tailnet is online, so grants cannot be checked',
          'run the check while another node is online',
        )
      : failed(`the tailnet has no node ${only}`, 'use a name from `tailscale status`');
  }
  const malformed = grants.filter((grant) => grant.kind === 'malformed');
  const [first] = malformed;
  if (first !== undefined) {
    const others = malformed.length === 1 ? '' : ` (and ${malformed.length - 1} more)`;
    return failed(
      `${first.caller}${others} is refused: ${first.problem}`,
      'fix the grant in the tailnet policy: one invalid rule disables all rules of a caller',
    );
  }
  const granted = grants.filter((grant) => grant.kind === 'granted');
  if (granted.length === 0) {
    if (cluster !== undefined)
      return warning(
        `none of ${grants.length} nodes has a grant for this cluster: all callers are refused`,
        `add a grant with "clusters": ["${cluster}"]: see docs/clusters.md`,
      );
    // If a caller has no grants, the gateway impersonates the caller's own user name. A user then has no groups, and
    // the groups of a tagged node are its tags. RBAC rules may name these users and tags, so this is only a warning.
    return warning(
      `none of ${grants.length} nodes has a grant for this gateway: callers have no groups, and no session is recorded`,
      GRANT,
    );
  }
  const shown = granted.slice(0, 3).map(describe);
  const reserved = granted.find(({ groups }) => reservedGroups(groups).length > 0);
  if (reserved !== undefined) {
    return warning(
      `${reserved.caller} has ${reservedGroups(reserved.groups).join(', ')}, with rights in every Kubernetes cluster`,
      'limit the groups with --claimable-groups, or fix the grant',
    );
  }
  const more = granted.length > shown.length ? `; and ${granted.length - shown.length} more` : '';
  return ok(`${granted.length} of ${grants.length} nodes have one: ${shown.join('; ')}${more}`);
}

function describe({ caller, groups, recording }: CallerGrant & { readonly kind: 'granted' }): string {
  const as = groups.length === 0 ? 'no groups' : groups.join(', ');
  const how = { off: 'not recorded', failOpen: 'recorded if possible', failClosed: 'recorded, or refused' };
  return `${caller} → ${as}, ${how[recording.mode]}`;
}
