/**
 * Reconciles the nodes of a ProxyGroup of type egress. `reconcile.ts` writes the forwarding rules of these nodes.
 * Effects.
 */
import type { Managed, Reconciler, ReconcilerDeps, Observation } from '../workload/reconciler.ts';
import type { ProxyGroup } from '../proxy-group/resource.ts';
import { classOfGroup, createGroupReconciler, proxyOfGroup, reportNodes } from '../proxy-group/shared.ts';
import { configMapName } from './config-map.ts';
import { removeFronts } from './fronts.ts';
import { removeConfigMap } from '../workload/cleanup.ts';
import { deployProxy } from '../workload/proxy.ts';

export function createEgressNodesReconciler(deps: ReconcilerDeps): Reconciler {
  return createGroupReconciler(deps, 'egress', {
    deployed: deps.metrics.egressGroups,
    deploy: (proxyGroup, ...more) => deploy(deps, proxyGroup, ...more),
    async removeMore({ group }, _control) {
      await removeFronts(deps, group.name);
      const { namespace } = deps.options;
      await removeConfigMap(deps, group, { namespace, name: configMapName(group.name) });
    },
  });
}

async function deploy(
  deps: ReconcilerDeps,
  proxyGroup: ProxyGroup,
  _resource: Managed,
  found: Observation,
): Promise<number | undefined> {
  const answer = await classOfGroup(deps, proxyGroup);
  if ('problem' in answer) return undefined;
  const { name, uid } = proxyGroup.metadata;
  deps.metrics.egressGroups.add(uid);
  const proxy = proxyOfGroup(deps, proxyGroup, { kind: 'egress-group', configMap: configMapName(name) });
  const deployed = await deployProxy(deps, proxy, answer.proxyClass, found);
  await reportNodes(deps, proxyGroup, deployed, deployed.missing);
  return deployed.retryAfterMs;
}
