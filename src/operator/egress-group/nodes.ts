/** One pass over the nodes of a ProxyGroup of type egress. What they forward is `reconcile.ts`'s. Effects only. */
import { FINALIZER, KINDS } from '../kube-object.ts';
import { timeOf, type Managed, type Reconciler, type ReconcilerDeps } from '../nodes/lifecycle.ts';
import { createReconciler, failed, warn, writeStatus, type Found } from '../nodes/pass.ts';
import { problemOfName } from '../nodes/node-group.ts';
import { devicesOf, type ShownDevice } from '../nodes/status.ts';
import { privilegedClassOf, deployProxy } from '../proxies/deploy.ts';
import { dnsLabel } from '../proxies/proxy.ts';
import { hasJoined } from '../proxies/readiness.ts';
import { nodeNames, sharedNodes } from '../proxy-group/group.ts';
import { isEgressGroup, parseProxyGroup, type ProxyGroup } from '../proxy-group/resource.ts';
import { nextStatus, type ProxyGroupReason, type Verdicts } from '../proxy-group/status.ts';
import { configMapName } from './config-map.ts';
import { removeConfig, removeFronts } from './fronts.ts';

export function createEgressNodesReconciler(
  deps: ReconcilerDeps,
  choices: { readonly defaultClass: string },
): Reconciler {
  return createReconciler<ProxyGroup>(deps, {
    kind: KINDS.proxyGroup,
    deployed: deps.metrics.egressGroups,
    parse(object) {
      const proxyGroup = parseProxyGroup(object);
      return isEgressGroup(proxyGroup) ? proxyGroup : undefined;
    },
    managed: (proxyGroup) => managed(deps, proxyGroup),
    names: (proxyGroup, { group }) => nodeNames(proxyGroup, group),
    deploy: (proxyGroup, ...more) => deploy(deps, choices.defaultClass, proxyGroup, ...more),
    notReady: (proxyGroup, reason, message, signal) =>
      report(deps, proxyGroup, { ready: failed(`ProxyGroup${reason}`, message) }, undefined, signal),
    async removeMore({ group }, _control, signal) {
      await removeFronts(deps, group.name, signal);
      await removeConfig(deps, group, signal);
    },
  });
}

function managed({ options }: ReconcilerDeps, proxyGroup: ProxyGroup): Managed {
  return {
    kind: KINDS.proxyGroup,
    finalizer: FINALIZER,
    group: sharedNodes(proxyGroup, options),
    tailnet: proxyGroup.spec.tailnet,
    metadata: proxyGroup.metadata,
  };
}

async function deploy(
  deps: ReconcilerDeps,
  defaultClass: string,
  proxyGroup: ProxyGroup,
  resource: Managed,
  found: Found,
  signal: AbortSignal,
): Promise<number | undefined> {
  const { metadata, spec } = proxyGroup;
  const { group } = resource;
  const problem = problemOfName(metadata.name);
  if (problem !== undefined) {
    const verdict = failed<ProxyGroupReason>('ProxyGroupInvalid', problem);
    await warn(deps, resource, verdict, signal);
    await report(deps, proxyGroup, { ready: verdict }, undefined, signal);
    return undefined;
  }
  const answer = await privilegedClassOf(
    deps,
    spec.proxyClass === '' ? defaultClass : spec.proxyClass,
    signal,
  );
  if (answer.kind === 'waits') {
    const verdict = failed<ProxyGroupReason>('ProxyGroupCreating', `waiting: ${answer.message}`);
    await warn(deps, resource, verdict, signal);
    await report(deps, proxyGroup, { ready: verdict }, undefined, signal);
    return undefined;
  }
  deps.metrics.egressGroups.add(metadata.uid);
  const prefix = spec.hostnamePrefix === '' ? metadata.name : spec.hostnamePrefix;
  const deployed = await deployProxy(
    deps,
    {
      parent: { type: 'proxygroup', namespace: deps.options.namespace, name: metadata.name },
      group,
      duty: { kind: 'egress-group', configMap: configMapName(metadata.name) },
      hostname: (ordinal) => dnsLabel(`${prefix}-${ordinal}`),
    },
    answer.proxyClass,
    found,
    signal,
  );
  const joined = deployed.nodes.filter((node) => hasJoined(group, node, found.observed));
  const running = `${joined.length}/${group.replicas} ProxyGroup pods running`;
  const verdicts: Verdicts = {
    available:
      joined.length > 0
        ? { ready: true, reason: 'ProxyGroupAvailable', message: running }
        : failed('ProxyGroupCreating', running),
    ready:
      deployed.waitsFor === undefined
        ? { ready: true, reason: 'ProxyGroupReady', message: 'ProxyGroupReady' }
        : failed('ProxyGroupCreating', deployed.waitsFor),
  };
  await report(deps, proxyGroup, verdicts, devicesOf(joined, false), signal);
  return deployed.again;
}

/** Writes the status when it changes. */
function report(
  deps: ReconcilerDeps,
  proxyGroup: ProxyGroup,
  verdicts: Verdicts,
  devices: readonly ShownDevice[] | undefined,
  signal: AbortSignal,
): Promise<void> {
  const shown = devices === undefined ? undefined : { devices, url: undefined };
  const status = nextStatus(proxyGroup, verdicts, shown, timeOf(deps.clock));
  return writeStatus(deps, managed(deps, proxyGroup), status, signal);
}
