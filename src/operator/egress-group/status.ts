/** Computes the conditions of a member of an egress group. Pure. */
import { failed, succeeded, type Verdict } from '../workload/status.ts';
import type { EGRESS_CONDITIONS } from '../service/status.ts';
import type { Serving } from './endpoints.ts';

export type MemberVerdicts = Readonly<Record<(typeof EGRESS_CONDITIONS)[number], Verdict>>;

/** Returns the conditions of a member that is not served. */
export function refusal(reason: 'EgressSvcInvalid' | 'ProxyGroupNotReady', message: string): MemberVerdicts {
  return {
    TailscaleEgressSvcValid: { ...failed(reason, message), unknown: reason === 'ProxyGroupNotReady' },
    TailscaleEgressSvcConfigured: failed(reason, message),
    TailscaleEgressSvcReady: failed('ClusterResourcesNotReady', message),
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
    TailscaleEgressSvcValid: succeeded('EgressSvcValid'),
    TailscaleEgressSvcConfigured: succeeded(
      'EgressSvcConfigured',
      `Service configured for ProxyGroup ${group}`,
    ),
    TailscaleEgressSvcReady: readiness(
      `${complete}/${replicas} pods of ProxyGroup ${group} forward to ${target}`,
      {
        complete,
        replicas,
        unresolved:
          unresolved > 0
            ? `; ${target} is not known in the tailnet: check the name, and that the policy lets the group's ` +
              'tags reach it'
            : '',
      },
    ),
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
  if (replicas === 0) return failed('NoProxiesConfigured', `${message}: spec.replicas is 0`);
  if (complete === 0) return failed('NotReadyToRouteTraffic', `${message}${unresolved}`);
  return succeeded(complete < replicas ? 'PartiallyReadyToRouteTraffic' : 'ReadyToRouteTraffic', message);
}
