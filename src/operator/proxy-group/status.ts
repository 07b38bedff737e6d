/** Computes the status of a ProxyGroup from observations. Pure. */
import type { NodeState } from '../workload/node-state.ts';
import {
  sameJson,
  withCondition,
  type Condition,
  type ShownDevice,
  type Verdict,
} from '../workload/status.ts';
import type { ProxyGroup } from './resource.ts';

/** Types of conditions. The reference (Tailscale's operator) uses the same types. */
const CONDITIONS = {
  valid: 'KubeAPIServerProxyValid',
  configured: 'KubeAPIServerProxyConfigured',
  available: 'ProxyGroupAvailable',
  ready: 'ProxyGroupReady',
  /** Condition of groups with the annotation for additional clusters. The reference has no such condition. */
  clusters: 'KubeAPIServerProxyClusters',
} as const;

export type ProxyGroupReason =
  | 'KubeAPIServerProxyValid'
  | 'KubeAPIServerProxyInvalid'
  | 'KubeAPIServerProxyConfigured'
  | 'KubeAPIServerProxyNoBackends'
  | 'KubeAPIServerProxyClustersServed'
  | 'KubeAPIServerProxyClustersRefused'
  | 'KubeAPIServerProxyClustersMissing'
  | 'ProxyGroupAvailable'
  | 'ProxyGroupReady'
  | 'ProxyGroupCreating'
  | 'ProxyGroupCreationFailed'
  | 'ProxyGroupInvalid'
  | 'ProxyGroupTailnetUnavailable'
  | 'ProxyGroupNotServed'
  | 'ProxyGroupNameTaken'
  | 'ProxyGroupTagsNotAllowed';

export type GroupVerdict = Verdict<ProxyGroupReason>;

/** Condition of a group whose type the operator's settings disable. */
export function notServed({ spec }: ProxyGroup): GroupVerdict {
  const settings = spec.type === 'ingress' ? 'services or ingresses' : 'services';
  const message =
    `spec.type: ProxyGroups of type ${spec.type} are not served by this operator: add ${settings} ` +
    'to --controllers, and apply deploy/rbac/operator.yaml';
  return { ready: false, reason: 'ProxyGroupNotServed', message };
}

/** @param nowIso current time in RFC 3339 with seconds */
export function withNotServed({ status, metadata, spec }: ProxyGroup, nowIso: string): readonly Condition[] {
  return withCondition(
    status.conditions,
    CONDITIONS.ready,
    notServed({ status, metadata, spec }),
    metadata.generation,
    nowIso,
  );
}

/** Returns the status without the operator's entries, or undefined if the operator has no entries in it. */
export function clearedGroupStatus({ status }: ProxyGroup): Omit<ProxyGroupStatus, 'url'> | undefined {
  const ours: readonly string[] = Object.values(CONDITIONS);
  const conditions = status.conditions.filter(({ type }) => !ours.includes(type));
  if (conditions.length === status.conditions.length && status.devices.length === 0) return undefined;
  return { conditions, devices: [] };
}

/** Returns the conditions without the condition of {@link notServed}. */
export function withoutNotServed({ status }: ProxyGroup): readonly Condition[] {
  return status.conditions.filter(
    ({ reason }) => reason !== ('ProxyGroupNotServed' satisfies ProxyGroupReason),
  );
}

/**
 * Desired conditions. If this object lacks a condition, the condition stays unchanged. The value null removes the
 * condition.
 */
export type Verdicts = Partial<Readonly<Record<keyof typeof CONDITIONS, GroupVerdict | null>>>;

/** Observed state of a group. */
export interface Seen {
  readonly replicas: number;
  /** Number of ready pods in the status of the StatefulSet. */
  readonly readyPods: number;
  /** One entry for each replica. */
  readonly nodes: readonly NodeState[];
  /** Name of the Tailscale Service; undefined if the control server does not support Tailscale Services. */
  readonly service: string | undefined;
  /** False while the StatefulSet is being recreated, or replicas are being removed. */
  readonly settled: boolean;
}

export interface ProxyGroupStatus {
  readonly conditions: readonly Condition[];
  readonly devices: readonly ShownDevice[];
  /** Null removes the URL from the status. */
  readonly url: string | null;
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

/** Conditions after a successful pass. */
export function verdictsOf(seen: Seen): Verdicts {
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
    valid: { ready: true, reason: 'KubeAPIServerProxyValid', message: 'KubeAPIServerProxyValid' },
    configured:
      count > 0
        ? { ready: true, reason: 'KubeAPIServerProxyConfigured', message: configured }
        : { ready: false, reason: 'KubeAPIServerProxyNoBackends', message: configured },
    available:
      joined > 0
        ? { ready: true, reason: 'ProxyGroupAvailable', message: running }
        : { ready: false, reason: 'ProxyGroupCreating', message: running },
    ready: ready
      ? { ready: true, reason: 'ProxyGroupReady', message: 'ProxyGroupReady' }
      : {
          ready: false,
          reason: 'ProxyGroupCreating',
          message: seen.settled ? configured : 'replicas are being removed or recreated',
        },
  };
}

/**
 * Returns the new status, or undefined if nothing changes.
 *
 * @param observed observed state; undefined to keep devices and URL
 * @param nowIso current time in RFC 3339 with seconds
 */
export function nextStatus(
  { metadata, status }: ProxyGroup,
  verdicts: Verdicts,
  observed: { readonly devices: readonly ShownDevice[]; readonly url: string | undefined } | undefined,
  nowIso: string,
): ProxyGroupStatus | undefined {
  let conditions: readonly Condition[] = status.conditions;
  for (const key of ['valid', 'configured', 'available', 'clusters', 'ready'] as const) {
    const verdict = verdicts[key];
    if (verdict === null) conditions = conditions.filter(({ type }) => type !== CONDITIONS[key]);
    else if (verdict !== undefined) {
      conditions = withCondition(conditions, CONDITIONS[key], verdict, metadata.generation, nowIso);
    }
  }
  const url = observed === undefined ? status.url : observed.url;
  const devices = observed?.devices ?? status.devices;
  const same = sameJson({ conditions, devices, url }, { ...status });
  return same ? undefined : { conditions, devices, url: url ?? null };
}
