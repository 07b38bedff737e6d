/** Common parts of the reconcilers of egress and ingress groups, whose nodes serve many Services. Effects. */
import { FINALIZER, KINDS } from '../kube-object.ts';
import {
  createReconciler,
  report,
  type Reconciler,
  type ReconcilerDeps,
  type ReconcilerSpec,
} from '../workload/reconciler.ts';
import { problemOfName, type Duty, type Proxy } from '../workload/workload.ts';
import { devicesOf, failed, succeeded } from '../workload/status.ts';
import type { ProxyClass } from '../proxy-class/resource.ts';
import type { Deployed } from '../workload/deploy.ts';
import { nodeName, nodeNames, sharedNodes } from './group.ts';
import { parseProxyGroup, type ProxyGroup } from './resource.ts';
import { availableIf } from './status.ts';
import { privilegedClassOf } from '../workload/proxy.ts';

/** Creates the reconciler of the nodes of groups of one type. */
export function createGroupReconciler(
  deps: ReconcilerDeps,
  type: 'egress' | 'ingress',
  spec: Pick<ReconcilerSpec<ProxyGroup>, 'deployed' | 'deploy' | 'release' | 'removeMore'>,
): Reconciler {
  return createReconciler<ProxyGroup>(deps, {
    kind: KINDS.proxyGroup,
    parse(object) {
      const proxyGroup = parseProxyGroup(object);
      return proxyGroup.spec.type === type ? proxyGroup : undefined;
    },
    managed: (proxyGroup) => ({
      kind: KINDS.proxyGroup,
      finalizer: FINALIZER,
      group: sharedNodes(proxyGroup, deps.options),
      tailnet: proxyGroup.spec.tailnet,
      metadata: proxyGroup.metadata,
    }),
    names: (proxyGroup, { group }) => nodeNames(proxyGroup, group),
    notReady: (proxyGroup, reason, message) =>
      report(deps, KINDS.proxyGroup, proxyGroup, { ProxyGroupReady: failed(`ProxyGroup${reason}`, message) }),
    ...spec,
  });
}

/**
 * Returns the ProxyClass of a group. If the group is invalid, or its class is missing or not ready, writes an event and
 * a condition, and returns the problem instead.
 */
export async function classOfGroup(
  deps: ReconcilerDeps,
  proxyGroup: ProxyGroup,
): Promise<{ readonly proxyClass: ProxyClass | undefined } | { readonly problem: string }> {
  const { metadata, spec } = proxyGroup;
  const problem = problemOfName(metadata.name);
  if (problem !== undefined) return refuseGroup(deps, proxyGroup, 'ProxyGroupInvalid', problem);
  const answer = await privilegedClassOf(
    deps,
    spec.proxyClass === '' ? deps.options.defaultClass : spec.proxyClass,
  );
  if (answer.kind === 'found') return answer;
  return refuseGroup(deps, proxyGroup, 'ProxyGroupCreating', answer.message);
}

/** Reports in an event and in the status why a group is not deployed. */
export async function refuseGroup(
  deps: ReconcilerDeps,
  proxyGroup: ProxyGroup,
  reason: string,
  problem: string,
): Promise<{ readonly problem: string }> {
  const verdict = failed(reason, problem);
  await deps.events.warn({ kind: KINDS.proxyGroup, metadata: proxyGroup.metadata }, verdict);
  await report(deps, KINDS.proxyGroup, proxyGroup, { ProxyGroupReady: verdict });
  return { problem };
}

/** Returns the nodes of a group as a {@link Proxy}. */
export function proxyOfGroup(
  { options }: Pick<ReconcilerDeps, 'options'>,
  proxyGroup: ProxyGroup,
  duty: Duty,
): Proxy {
  return {
    group: sharedNodes(proxyGroup, options),
    duty,
    hostname: (ordinal) => nodeName(proxyGroup, ordinal),
  };
}

/**
 * Writes the status after the deployment of the nodes.
 *
 * @param missing description of the condition that the nodes do not meet yet; undefined if the group is ready
 */
export async function reportNodes(
  deps: ReconcilerDeps,
  proxyGroup: ProxyGroup,
  { joined }: Deployed,
  missing: string | undefined,
): Promise<void> {
  const running = `${joined.length}/${proxyGroup.spec.replicas} ProxyGroup pods running`;
  const verdicts = {
    ProxyGroupAvailable: availableIf(joined.length > 0, running),
    ProxyGroupReady:
      missing === undefined ? succeeded('ProxyGroupReady') : failed('ProxyGroupCreating', missing),
  };
  await report(deps, KINDS.proxyGroup, proxyGroup, verdicts, {
    devices: devicesOf(joined, false),
    url: null,
  });
}
