/**
 * Reconciles the nodes of a ProxyGroup of type egress. `reconcile.ts` writes the forwarding rules of these nodes.
 * Effects.
 */
import { KINDS } from '../kube-object.ts';
import {
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
  createReconciler,
  report,
  type Observation,
} from '../workload/reconciler.ts';
import { nodeNames } from '../proxy-group/group.ts';
import { isEgressGroup, parseProxyGroup, type ProxyGroup } from '../proxy-group/resource.ts';
import { classOfGroup, managedGroup, proxyOfGroup, reportNodes } from '../proxy-group/shared.ts';
import { configMapName } from './config-map.ts';
import { removeFronts } from './fronts.ts';
import { removeConfigMap } from '../workload/cleanup.ts';
import { deployProxy } from '../workload/proxy.ts';
import { failed } from '../workload/status.ts';

export function createEgressNodesReconciler(deps: ReconcilerDeps): Reconciler {
  return createReconciler<ProxyGroup>(deps, {
    kind: KINDS.proxyGroup,
    deployed: deps.metrics.egressGroups,
    parse(object) {
      const proxyGroup = parseProxyGroup(object);
      return isEgressGroup(proxyGroup) ? proxyGroup : undefined;
    },
    managed: (proxyGroup) => managedGroup(deps, proxyGroup),
    names: (proxyGroup, { group }) => nodeNames(proxyGroup, group),
    deploy: (proxyGroup, ...more) => deploy(deps, proxyGroup, ...more),
    notReady: (proxyGroup, reason, message) =>
      report(deps, KINDS.proxyGroup, proxyGroup, { ProxyGroupReady: failed(`ProxyGroup${reason}`, message) }),
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
  await reportNodes(deps, proxyGroup, deployed, found, deployed.missing);
  return deployed.retryAfterMs;
}
