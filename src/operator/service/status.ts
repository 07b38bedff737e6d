/** Computes the status of a Service from observations. Pure. */
import { isIP } from 'node:net';
import type { NodeState } from '../workload/node-state.ts';
import { sameJson, withCondition, type Condition, type Verdict } from '../workload/status.ts';
import type { LoadBalancerIngress, Service } from './resource.ts';

const READY = 'TailscaleProxyReady';
/** Conditions of a Service in an egress group. */
export const EGRESS_CONDITIONS = {
  valid: 'TailscaleEgressSvcValid',
  configured: 'TailscaleEgressSvcConfigured',
  ready: 'TailscaleEgressSvcReady',
} as const;
/** Conditions of a Service in an ingress group. */
export const INGRESS_CONDITIONS = {
  valid: 'TailscaleIngressSvcValid',
  configured: 'TailscaleIngressSvcConfigured',
} as const;
const OF_GROUPS: readonly string[] = [
  ...Object.values(EGRESS_CONDITIONS),
  ...Object.values(INGRESS_CONDITIONS),
];

/** Reasons of the Service's condition. They are stable, because dashboards and scripts match them. */
export type ServiceReason = 'ProxyCreated' | 'ProxyPartial' | 'ProxyPending' | 'ProxyFailed' | 'ProxyInvalid';

/**
 * Part of a Service's status that the operator writes. The operator changes only its own entries; entries of cloud
 * controllers stay.
 */
export interface ServiceStatus {
  readonly conditions: readonly Condition[];
  readonly loadBalancer?: { readonly ingress: readonly LoadBalancerIngress[] };
}

/**
 * Returns the new status, or undefined if nothing changes.
 *
 * @param ingress addresses for the status; undefined to keep the present ones
 * @param nowIso current time in RFC 3339 with seconds
 */
export function nextStatus(
  { metadata, status }: Service,
  verdict: Verdict<ServiceReason>,
  ingress: readonly LoadBalancerIngress[] | undefined,
  nowIso: string,
): ServiceStatus | undefined {
  const own = status.conditions.filter(({ type }) => !OF_GROUPS.includes(type));
  const conditions = withCondition(own, READY, verdict, metadata.generation, nowIso);
  const moved = ingress !== undefined && !sameJson(ingress, status.loadBalancer.ingress);
  if (!moved && sameJson(conditions, status.conditions)) return undefined;
  return { conditions, ...(moved ? { loadBalancer: { ingress } } : {}) };
}

/**
 * Returns the status without the operator's entries, or undefined if the operator has no entries in it.
 *
 * @param isOurs true if the operator has written an address
 * @param keep types of conditions that now belong to another controller
 */
export function clearedStatus(
  { status }: Service,
  isOurs: (entry: LoadBalancerIngress) => boolean,
  keep: readonly string[] = [],
): ServiceStatus | undefined {
  const gone = [READY, ...OF_GROUPS].filter((type) => !keep.includes(type));
  const conditions = status.conditions.filter(({ type }) => !gone.includes(type));
  const shown = status.loadBalancer.ingress;
  const left = shown.filter((entry) => !isOurs(entry));
  const moved = left.length < shown.length;
  if (conditions.length === status.conditions.length && !moved) return undefined;
  return { conditions, ...(moved ? { loadBalancer: { ingress: left } } : {}) };
}

/**
 * Entries for the status of a load balancer: the name of the node, and its addresses in the IP families of the
 * Service.
 */
export function ingressOf(
  { spec }: Service,
  { dnsName, addresses }: NodeState,
): readonly LoadBalancerIngress[] {
  if (dnsName === undefined) return [];
  const family = isIP(spec.clusterIP);
  return [
    { hostname: dnsName },
    ...addresses.filter((address) => isIP(address) === family).map((ip) => ({ ip })),
  ];
}
