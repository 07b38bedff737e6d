/** Computes the status of a Service from observations. Pure. */
import { isIP } from 'node:net';
import type { NodeState } from '../workload/node-state.ts';
import type { LoadBalancerIngress, Service } from './resource.ts';

/** Conditions of a Service in an egress group. */
export const EGRESS_CONDITIONS = [
  'TailscaleEgressSvcValid',
  'TailscaleEgressSvcConfigured',
  'TailscaleEgressSvcReady',
] as const;
/** Conditions of a Service in an ingress group. */
export const INGRESS_CONDITIONS = ['TailscaleIngressSvcValid', 'TailscaleIngressSvcConfigured'] as const;

/**
 * Returns the entries for the status of a load balancer: the name of the node, and its addresses in the IP families of
 * the Service.
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
