/** Computes the conditions of a member of an egress group. Pure. */
import { withCondition, type Condition, type Verdict } from '../workload/status.ts';
import { EGRESS_CONDITIONS } from '../service/status.ts';
import type { Serving } from './endpoints.ts';

export type MemberVerdicts = Readonly<Record<keyof typeof EGRESS_CONDITIONS, Verdict>>;

/** Conditions of a member that is not served. */
export function refusal(reason: 'EgressSvcInvalid' | 'ProxyGroupNotReady', message: string): MemberVerdicts {
  const unknown = reason === 'ProxyGroupNotReady';
  const not = (what: string): Verdict => ({ ready: false, reason: what, message });
  return {
    valid: { ready: false, unknown, reason, message },
    configured: not(reason),
    ready: not('ClusterResourcesNotReady'),
  };
}

/** @param target name or address of the member's target */
export function memberVerdictsOf(
  group: string,
  target: string,
  serving: Serving,
  replicas: number,
): MemberVerdicts {
  const { complete, unresolved } = serving;
  return {
    valid: { ready: true, reason: 'EgressSvcValid', message: 'EgressSvcValid' },
    configured: {
      ready: true,
      reason: 'EgressSvcConfigured',
      message: `Service configured for ProxyGroup ${group}`,
    },
    ready: readiness(`${complete}/${replicas} pods of ProxyGroup ${group} forward to ${target}`, {
      complete,
      replicas,
      unresolved:
        unresolved > 0
          ? `; ${target} is not known in the tailnet: check the name, and that the policy lets the group's ` +
            'tags reach it'
          : '',
    }),
  };
}

function readiness(
  message: string,
  {
    complete,
    replicas,
    unresolved,
  }: { readonly complete: number; readonly replicas: number; readonly unresolved: string },
): Verdict {
  if (replicas === 0)
    return { ready: false, reason: 'NoProxiesConfigured', message: `${message}: spec.replicas is 0` };
  if (complete === 0)
    return { ready: false, reason: 'NotReadyToRouteTraffic', message: `${message}${unresolved}` };
  return complete < replicas
    ? { ready: true, reason: 'PartiallyReadyToRouteTraffic', message }
    : { ready: true, reason: 'ReadyToRouteTraffic', message };
}

/** @param nowIso current time in RFC 3339 with seconds */
export function nextConditions(
  before: readonly Condition[],
  verdicts: MemberVerdicts,
  generation: number,
  nowIso: string,
): readonly Condition[] {
  let conditions = before;
  for (const key of ['valid', 'configured', 'ready'] as const) {
    conditions = withCondition(conditions, EGRESS_CONDITIONS[key], verdicts[key], generation, nowIso);
  }
  return conditions;
}
