/** Computes the status of a ProxyGroup from observations. Pure. */
import type { NodeState } from '../workload/node-state.ts';
import { failed, succeeded, type Verdict } from '../workload/status.ts';
import type { ProxyGroup } from './resource.ts';

/** Reason of the condition {@link notServed}. */
const NOT_SERVED = 'ProxyGroupNotServed';

/** Returns the condition of a group whose type the operator's settings disable. */
export function notServed({ spec }: ProxyGroup): Verdict {
  const settings = spec.type === 'ingress' ? 'services or ingresses' : 'services';
  const message =
    `spec.type: ProxyGroups of type ${spec.type} are not served by this operator: add ${settings} ` +
    'to --controllers, and apply deploy/rbac/operator.yaml';
  return failed(NOT_SERVED, message);
}

/** True if the status contains the condition of {@link notServed}. */
export function isMarkedNotServed({ status }: ProxyGroup): boolean {
  return status.conditions.some(({ reason }) => reason === NOT_SERVED);
}

/** Observed state of a group. */
export interface Seen {
  readonly replicas: number;
  /** Number of ready pods in the status of the StatefulSet. */
  readonly readyPods: number;
  /** States of the nodes, one for each replica. */
  readonly nodes: readonly NodeState[];
  /** Name of the Tailscale Service; undefined if the control server does not support Tailscale Services. */
  readonly service: string | undefined;
  /** False while the StatefulSet is being recreated, or replicas are being removed. */
  readonly settled: boolean;
}

/**
 * Returns the number of replicas that accept callers. Their nodes have joined, and advertise the Tailscale Service if
 * there is one.
 */
export function backends({ nodes, service, readyPods }: Seen): number {
  const joined = nodes.filter(
    ({ deviceId, advertised }) =>
      deviceId !== undefined && (service === undefined || advertised.includes(service)),
  ).length;
  return Math.min(joined, readyPods);
}

/**
 * Returns the URL of the gateways. It contains the name of the Tailscale Service in the tailnet's domain. Without a
 * Tailscale Service, it contains the name of the first node that has joined.
 */
export function urlOf(seen: Seen): string | undefined {
  if (backends(seen) === 0) return undefined;
  const name = seen.nodes.find(({ dnsName }) => dnsName !== undefined)?.dnsName;
  if (name === undefined) return undefined;
  if (seen.service === undefined) return `https://${name}`;
  return `https://${seen.service.replace(/^svc:/, '')}${name.slice(name.indexOf('.'))}`;
}

type GroupVerdicts = Readonly<
  Record<
    'KubeAPIServerProxyValid' | 'KubeAPIServerProxyConfigured' | 'ProxyGroupAvailable' | 'ProxyGroupReady',
    Verdict
  >
>;

/** Returns the conditions after a successful reconciliation. */
export function verdictsOf(seen: Seen): GroupVerdicts {
  const count = backends(seen);
  const joined = seen.nodes.filter(({ deviceId }) => deviceId !== undefined).length;
  const fallback =
    seen.service === undefined
      ? '; the control server has no Services, so each node has its own name only'
      : '';
  const configured = `${count}/${seen.replicas} proxy backends ready and advertising${fallback}`;
  const running = `${joined}/${seen.replicas} ProxyGroup pods running`;
  const ready = seen.settled && joined === seen.replicas && count === seen.replicas;
  return {
    KubeAPIServerProxyValid: succeeded('KubeAPIServerProxyValid'),
    KubeAPIServerProxyConfigured:
      count > 0
        ? succeeded('KubeAPIServerProxyConfigured', configured)
        : failed('KubeAPIServerProxyNoBackends', configured),
    ProxyGroupAvailable: availableIf(joined > 0, running),
    ProxyGroupReady: ready
      ? succeeded('ProxyGroupReady')
      : failed('ProxyGroupCreating', seen.settled ? configured : 'replicas are being removed or recreated'),
  };
}

/** Returns the condition `ProxyGroupAvailable`. */
export function availableIf(isAvailable: boolean, message: string): Verdict {
  return isAvailable ? succeeded('ProxyGroupAvailable', message) : failed('ProxyGroupCreating', message);
}
