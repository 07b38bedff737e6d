/** Common parts of the reconcilers of egress and ingress groups, whose nodes serve many Services. Effects. */
import { FINALIZER, KINDS } from '../kube-object.ts';
import {
  timeOf,
  type Managed,
  type ReconcilerDeps,
  failed,
  warn,
  writeStatus,
  type Observation,
} from '../workload/reconciler.ts';
import { problemOfName, type Duty, type Proxy } from '../workload/workload.ts';
import { devicesOf, type ShownDevice } from '../workload/status.ts';
import type { ProxyClass } from '../proxy-class/resource.ts';
import type { Deployed } from '../workload/deploy.ts';
import { hasJoined } from '../workload/readiness.ts';
import { nodeName, sharedNodes } from './group.ts';
import type { ProxyGroup } from './resource.ts';
import { nextStatus, type ProxyGroupReason, type Verdicts } from './status.ts';
import { privilegedClassOf } from '../workload/proxy.ts';

/** Converts a group to the form that the common reconciler needs. */
export function managedGroup({ options }: Pick<ReconcilerDeps, 'options'>, proxyGroup: ProxyGroup): Managed {
  const { metadata, spec } = proxyGroup;
  return {
    kind: KINDS.proxyGroup,
    finalizer: FINALIZER,
    group: sharedNodes(proxyGroup, options),
    tailnet: spec.tailnet,
    metadata,
  };
}

/**
 * Returns the ProxyClass of a group. If the group is invalid, or its class is missing or not ready, writes an event and
 * a condition, and returns the problem instead.
 */
export async function classOfGroup(
  deps: ReconcilerDeps,
  proxyGroup: ProxyGroup,
  defaultClass: string,
): Promise<{ readonly proxyClass: ProxyClass | undefined } | { readonly problem: string }> {
  const { metadata, spec } = proxyGroup;
  const problem = problemOfName(metadata.name);
  if (problem !== undefined) return refuseGroup(deps, proxyGroup, 'ProxyGroupInvalid', problem);
  const answer = await privilegedClassOf(deps, spec.proxyClass === '' ? defaultClass : spec.proxyClass);
  if (answer.kind === 'found') return answer;
  return refuseGroup(deps, proxyGroup, 'ProxyGroupCreating', `waiting: ${answer.message}`);
}

/** Reports in an event and in the status why a group is not deployed. */
export async function refuseGroup(
  deps: ReconcilerDeps,
  proxyGroup: ProxyGroup,
  reason: ProxyGroupReason,
  problem: string,
): Promise<{ readonly problem: string }> {
  const verdict = failed(reason, problem);
  await warn(deps, { kind: KINDS.proxyGroup, metadata: proxyGroup.metadata }, verdict);
  await reportGroup(deps, proxyGroup, { ready: verdict }, undefined);
  return { problem };
}

/** Returns the nodes of a group as a {@link Proxy}. */
export function proxyOfGroup(
  { options }: Pick<ReconcilerDeps, 'options'>,
  proxyGroup: ProxyGroup,
  duty: Duty,
): Proxy {
  const { name } = proxyGroup.metadata;
  return {
    parent: { type: 'proxygroup', namespace: options.namespace, name },
    group: sharedNodes(proxyGroup, options),
    duty,
    hostname: (ordinal) => nodeName(proxyGroup, ordinal),
  };
}

/**
 * Writes the status after the deployment of the nodes.
 *
 * @param missing text that says what the nodes still lack; undefined if the group is ready
 */
export async function reportNodes(
  deps: ReconcilerDeps,
  proxyGroup: ProxyGroup,
  { nodes }: Deployed,
  { observed }: Observation,
  missing: string | undefined,
): Promise<void> {
  const group = sharedNodes(proxyGroup, deps.options);
  const joined = nodes.filter((node) => hasJoined(group, node, observed));
  const running = `${joined.length}/${group.replicas} ProxyGroup pods running`;
  const verdicts: Verdicts = {
    available:
      joined.length > 0
        ? { ready: true, reason: 'ProxyGroupAvailable', message: running }
        : failed('ProxyGroupCreating', running),
    ready:
      missing === undefined
        ? { ready: true, reason: 'ProxyGroupReady', message: 'ProxyGroupReady' }
        : failed('ProxyGroupCreating', missing),
  };
  await reportGroup(deps, proxyGroup, verdicts, { devices: devicesOf(joined, false), url: undefined });
}

/**
 * Writes the status of a group, unless the group has this status already.
 *
 * @param shown devices and URL; undefined to keep those in the status
 */
export function reportGroup(
  deps: Pick<ReconcilerDeps, 'client' | 'clock'>,
  proxyGroup: ProxyGroup,
  verdicts: Verdicts,
  shown: { readonly devices: readonly ShownDevice[]; readonly url: string | undefined } | undefined,
): Promise<void> {
  const status = nextStatus(proxyGroup, verdicts, shown, timeOf(deps.clock));
  return writeStatus(deps, { kind: KINDS.proxyGroup, metadata: proxyGroup.metadata }, status);
}
