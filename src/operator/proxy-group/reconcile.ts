/**
 * Reconciles one ProxyGroup of type kube-apiserver: its gateways, and their shared name. For groups whose type is
 * disabled, writes a condition. Effects only.
 */
import { z } from 'zod';
import type { TailnetControl } from '../auth-keys.ts';
import { KINDS, type KubeObject } from '../kube-object.ts';
import {
  isActive,
  report,
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
  createReconciler,
  type Observation,
} from '../workload/reconciler.ts';
import { belongsTo, problemOfName, type NodeGroup } from '../workload/workload.ts';
import { applyOwned } from '../workload/apply.ts';
import { removeConfigMap } from '../workload/cleanup.ts';
import { listOwn } from '../workload/observe.ts';
import { deployWorkload, type DesiredWorkload } from '../workload/deploy.ts';
import { devicesOf, failed } from '../workload/status.ts';
import {
  chooseClusters,
  clustersConfigMap,
  clusterSelectorOf,
  clustersName,
  problemOfClusters,
  SECRET_FORMATS,
  secretSelector,
  secretsOfPods,
  type ServedClusters,
} from './clusters.ts';
import { nodeNames, proxyGroupNodes } from './group.ts';
import { isApiServerGroup, parseProxyGroup, settingsOf, type ProxyGroup } from './resource.ts';
import { decideGroupService, isServiceOfGroup, removeServicesExcept, serviceNameOf } from './service.ts';
import { gatewayStatefulSet } from './stateful-set-specs.ts';
import { isMarkedNotServed, notServed, urlOf, verdictsOf, type Seen } from './status.ts';

const FINALIZER = 'tailscale.com/kube-apiserver-finalizer';
/** Maximum length of a node's name: a DNS label. */
const MAX_HOSTNAME = 63;

export function createProxyGroupReconciler(deps: ReconcilerDeps): Reconciler {
  const { services, ingresses } = deps.options.reconciled;
  // Other controllers serve groups of these types. Groups of any further type get a condition which reports that their
  // type is not served.
  const others = [...(services ? ['egress'] : []), ...(services || ingresses ? ['ingress'] : [])];
  return createReconciler<ProxyGroup>(deps, {
    kind: KINDS.proxyGroup,
    deployed: deps.metrics.proxyGroups,
    parse(object) {
      const proxyGroup = parseProxyGroup(object);
      return others.includes(proxyGroup.spec.type) ? undefined : proxyGroup;
    },
    async managed(proxyGroup) {
      if (isApiServerGroup(proxyGroup)) return managed(deps, proxyGroup);
      await turnAway(deps, proxyGroup);
      return undefined;
    },
    isTrusted: true,
    names(proxyGroup, { group }) {
      const names = nodeNames(proxyGroup, group);
      return names.length === 0 ? [] : [serviceNameOf(proxyGroup).replace(/^svc:/, ''), ...names];
    },
    deploy: (proxyGroup, ...more) => deploy(deps, proxyGroup, ...more),
    notReady: (proxyGroup, reason, message) =>
      report(deps, KINDS.proxyGroup, proxyGroup, { ProxyGroupReady: failed(`ProxyGroup${reason}`, message) }),
    async removeMore({ group }, control) {
      await removeServicesExcept(control, [], (service) => isServiceOfGroup(service, group.uid));
      await removeConfigMap(deps, group, configOf(group, deps.options));
    },
  });
}

/**
 * Writes the condition that the group is not served, unless the status contains it. If the group is being deleted, or
 * the operator is being uninstalled, removes the condition. Status entries of other operators stay.
 */
async function turnAway(deps: ReconcilerDeps, proxyGroup: ProxyGroup): Promise<void> {
  const kind = KINDS.proxyGroup;
  if (isActive(deps, proxyGroup)) {
    const ProxyGroupReady = notServed(proxyGroup);
    const hasChanged = await report(deps, kind, proxyGroup, { ProxyGroupReady });
    if (hasChanged) await deps.events.warn({ kind, ...proxyGroup }, ProxyGroupReady);
  } else if (isMarkedNotServed(proxyGroup)) await report(deps, kind, proxyGroup, { ProxyGroupReady: null });
}

function managed({ options }: ReconcilerDeps, proxyGroup: ProxyGroup): Managed {
  return {
    kind: KINDS.proxyGroup,
    finalizer: FINALIZER,
    group: proxyGroupNodes(proxyGroup, options),
    tailnet: proxyGroup.spec.tailnet,
    metadata: proxyGroup.metadata,
  };
}

async function deploy(
  deps: ReconcilerDeps,
  proxyGroup: ProxyGroup,
  resource: Managed,
  found: Observation,
): Promise<number | undefined> {
  const { options, metrics } = deps;
  const { control, observed } = found;
  const { group } = resource;
  const problem =
    problemOf(proxyGroup, group, observed.serviceAccount, options.namespace) ??
    (await ensureService(proxyGroup, group, control));
  if (problem !== undefined) return refuse(deps, resource, proxyGroup, problem);
  metrics.proxyGroups.add(group.uid);
  await mentionClass(deps, resource, proxyGroup);
  const service = control.services === undefined ? undefined : serviceNameOf(proxyGroup);
  const context = { service, issuesCertificates: control.issuesCertificates };
  const clusters = await configureClusters(deps, proxyGroup, group);
  const desired: DesiredWorkload = {
    group,
    readableSecrets: SECRET_FORMATS.flatMap((format) => clusters?.secrets[format] ?? []).toSorted(),
    statefulSet: (...more) => gatewayStatefulSet(proxyGroup, context, ...more),
  };
  const { nodes, settled, retryAfterMs } = await deployWorkload(deps, desired, found);
  const kept = service === undefined ? [] : [service];
  await removeServicesExcept(control, kept, (one) => isServiceOfGroup(one, group.uid));
  if (clusters === undefined) await removeConfigMap(deps, group, configOf(group, deps.options));
  const seen: Seen = {
    replicas: group.replicas,
    readyPods: readyPodsOf(observed.statefulSet),
    nodes: nodes.map(({ state }) => state),
    service,
    settled,
  };
  const verdicts = { ...verdictsOf(seen), KubeAPIServerProxyClusters: clusters?.verdict ?? null };
  const shown = { devices: devicesOf(nodes, false), url: urlOf(seen) ?? null };
  await report(deps, KINDS.proxyGroup, proxyGroup, verdicts, shown);
  return retryAfterMs;
}

/** Returns the problem of a ProxyGroup that its schema does not detect. */
function problemOf(
  proxyGroup: ProxyGroup,
  group: NodeGroup,
  serviceAccount: KubeObject | undefined,
  namespace: string,
): string | undefined {
  const nameProblem = problemOfName(proxyGroup.metadata.name);
  if (nameProblem !== undefined) return nameProblem;
  const { hostnamePrefix } = proxyGroup.spec;
  const last = `${hostnamePrefix}-${Math.max(group.replicas - 1, 0)}`;
  if (last.length > MAX_HOSTNAME)
    return (
      `spec.hostnamePrefix: ${JSON.stringify(last)} has ${last.length} characters, and the name of a node ` +
      `allows at most ${MAX_HOSTNAME} characters: choose a shorter prefix`
    );
  const { name, shared } = group.account;
  if (shared && serviceAccount === undefined) {
    return (
      `ServiceAccount "${name}" does not exist in the ${namespace} namespace: install it with its right to ` +
      'impersonate (deploy/rbac/operator.yaml), or use mode: noauth'
    );
  }
  if (!shared && serviceAccount !== undefined && !belongsTo(group, serviceAccount)) {
    return `ServiceAccount name "${name}" conflicts with a pre-existing ServiceAccount in the ${namespace} namespace`;
  }
  return settingsOf(proxyGroup).problem ?? problemOfClusters(proxyGroup);
}

/**
 * Writes the clusters of the group, including its own, into the group's ConfigMap. Does nothing and returns undefined
 * if the group has no selector for additional clusters.
 */
async function configureClusters(
  deps: ReconcilerDeps,
  proxyGroup: ProxyGroup,
  group: NodeGroup,
): Promise<ServedClusters | undefined> {
  const selector = clusterSelectorOf(proxyGroup);
  if (selector === '') return undefined;
  const { client, options } = deps;
  const [capi, argocd, roles] = await Promise.all([
    listOwn(deps, KINDS.secret, secretSelector('capi', selector)),
    listOwn(deps, KINDS.secret, secretSelector('argocd', selector)),
    client.list(KINDS.role, { namespace: options.namespace }),
  ]);
  const clusters = chooseClusters(proxyGroup, { capi, argocd }, secretsOfPods(roles.items));
  const desired = clustersConfigMap(proxyGroup, group, clusters, options);
  const existing = await client.get(KINDS.configMap, configOf(group, options));
  await applyOwned(deps, group, desired, existing);
  return clusters;
}

function configOf(
  { name }: NodeGroup,
  { namespace }: ReconcilerDeps['options'],
): { readonly namespace: string; readonly name: string } {
  return { namespace, name: clustersName(name) };
}

/** @returns the reason why the group cannot use its Tailscale Service */
async function ensureService(
  proxyGroup: ProxyGroup,
  group: NodeGroup,
  { services }: TailnetControl,
): Promise<string | undefined> {
  if (services === undefined) return undefined;
  const existing = await services.get(serviceNameOf(proxyGroup));
  const decision = decideGroupService(proxyGroup, group, existing);
  if (decision.kind === 'refuse') return decision.message;
  if (decision.kind === 'put') await services.put(decision.service);
  return undefined;
}

async function refuse(
  deps: ReconcilerDeps,
  resource: Managed,
  proxyGroup: ProxyGroup,
  problem: string,
): Promise<undefined> {
  await deps.events.warn(resource, { reason: 'KubeAPIServerProxyInvalid', message: problem });
  await report(deps, KINDS.proxyGroup, proxyGroup, {
    KubeAPIServerProxyValid: failed('KubeAPIServerProxyInvalid', problem),
    ProxyGroupReady: failed(
      'ProxyGroupInvalid',
      'waiting for config in spec.kubeAPIServer to be marked valid',
    ),
  });
  return undefined;
}

async function mentionClass(deps: ReconcilerDeps, resource: Managed, proxyGroup: ProxyGroup): Promise<void> {
  const { proxyClass } = proxyGroup.spec;
  if (proxyClass === '') return;
  const message = `proxyClass "${proxyClass}" has no effect on gateways`;
  await deps.events.warn(resource, { reason: 'ProxyGroupFieldIgnored', message });
}

const replicasSchema = z.object({ status: z.object({ readyReplicas: z.number().default(0) }).prefault({}) });

function readyPodsOf(statefulSet: KubeObject | undefined): number {
  return statefulSet === undefined ? 0 : replicasSchema.parse(statefulSet).status.readyReplicas;
}
