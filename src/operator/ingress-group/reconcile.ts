/**
 * Reconciles one ProxyGroup of type ingress: its nodes and all its members. Each reconciliation handles a complete
 * group, because the configuration of a node depends on all members. Effects only.
 */
import {
  classOfGroup,
  createGroupReconciler,
  proxyOfGroup,
  refuseGroup,
  reportNodes,
} from '../proxy-group/shared.ts';
import { createSequence } from '../../async/sequence.ts';
import type { TailnetControl } from '../auth-keys.ts';
import { KINDS } from '../kube-object.ts';
import { hostRoute } from '../networks.ts';
import { createApprovals } from '../workload/approvals.ts';
import {
  REFUSED_RETRY_MS,
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
  report,
  type Observation,
} from '../workload/reconciler.ts';
import { labelSelector, ordinals, stateSecretName, type NodeGroup } from '../workload/workload.ts';
import { forEachMember, throwFirst } from '../workload/for-each-member.ts';
import { removeExact } from '../workload/cleanup.ts';
import { listOwn } from '../workload/observe.ts';
import type { Deployed } from '../workload/deploy.ts';
import { openPodGate } from '../workload/readiness.ts';
import { GATES } from '../workload/proxy-specs.ts';
import { isIngressGroup, parseProxyGroup, type ProxyGroup } from '../proxy-group/resource.ts';
import { exposuresOf, type Accepted } from './accept.ts';
import { removeCertificates, writeAllocations } from './address-allocation.ts';
import {
  hasMemberFinalizer,
  allocationsOf,
  listCandidates,
  type Candidates,
  type GroupContext,
} from './candidates.ts';
import { allocationsName, type Allocation } from './allocations.ts';
import { keyOfMember, type GroupMember } from './member.ts';
import { releaseMember, releaseStrays, refuse, reportMember, rejectMembers } from './members.ts';
import { isIdle, ordersOf, servedHosts, type ServedMember, type ServeMode } from './plan.ts';
import { followsOrders, readGroupNode, serves, type GroupNode } from './reports.ts';
import { shownAddresses, exposureVerdictsOf } from './status.ts';
import { belongsToMember, tailnetServiceName } from './tailnet-service.ts';
import { removeServicesExcept } from '../proxy-group/service.ts';
import { deployProxy } from '../workload/proxy.ts';

const NO_ADDRESSES =
  'the control server has no Tailscale Services, and the operator has no addresses to give out: name networks in ' +
  'ingressAddresses';

/** Removes the conditions when the operator is uninstalled and the group stays. */
const CLEARED = { ProxyGroupAvailable: null, ProxyGroupReady: null };

export function createIngressGroupReconciler(deps: ReconcilerDeps): Reconciler {
  const context: GroupContext = { deps, approvals: createApprovals(deps), inTurn: createSequence() };
  const frame = createGroupReconciler(deps, 'ingress', {
    deployed: deps.metrics.ingressGroups,
    deploy: (proxyGroup, ...more) => deploy(context, proxyGroup, ...more),
    release: (proxyGroup, _resource) => report(deps, KINDS.proxyGroup, proxyGroup, CLEARED, { devices: [] }),
    removeMore: ({ group }, control) => removeMore(deps, group, control),
  });
  return {
    async reconcile(name) {
      const object = name === '' ? undefined : await deps.client.get(KINDS.proxyGroup, { name });
      const proxyGroup = object === undefined ? undefined : parseProxyGroup(object);
      if (deps.leaving !== true && (proxyGroup === undefined || !isIngressGroup(proxyGroup))) {
        const candidates = await listCandidates(deps, name, 'route');
        await rejectMembers(deps, candidates, name, proxyGroup);
      }
      // For the empty name, the reconciler only releases members without a group.
      return name === '' ? undefined : frame.reconcile(name);
    },
  };
}

async function deploy(
  context: GroupContext,
  proxyGroup: ProxyGroup,
  resource: Managed,
  found: Observation,
): Promise<number | undefined> {
  const { deps } = context;
  const { group } = resource;
  const mode: ServeMode = found.control.services === undefined ? 'route' : 'service';
  const candidates = await listCandidates(deps, group.name, mode);
  const strays = await releaseStrays(deps, candidates);
  const prepared =
    mode === 'route' && deps.options.networks.length === 0
      ? await refuseGroup(deps, proxyGroup, 'ProxyGroupNotServed', NO_ADDRESSES)
      : await classOfGroup(deps, proxyGroup);
  if ('problem' in prepared) {
    const waiting = candidates.members.filter((one) => one.group === group.name && !hasMemberFinalizer(one));
    const reject = (member: GroupMember): Promise<void> => refuse(deps, member, prepared.problem);
    throwFirst(strays, await forEachMember(deps, waiting, keyOfMember, reject));
    return undefined;
  }
  deps.metrics.ingressGroups.add(group.uid);
  const nodes = await nodesOf(deps, group, found);
  const { tailnet } = resource;
  const input = { group, tailnet, mode, candidates, nodes, control: found.control };
  const accepted = await exposuresOf(context, input);
  const { exposures } = accepted;
  const proxy = proxyOfGroup(deps, proxyGroup, {
    kind: 'ingress-group',
    orders: (ordinal) =>
      ordersOf(mode, exposures, nodes[ordinal] ?? readGroupNode(ordinal, undefined, undefined)),
    sharesCertificates: mode === 'service' && found.control.issuesCertificates,
  });
  const deployed = await deployProxy(deps, proxy, prepared.proxyClass, found);
  const pending = await approve(context, mode, exposures, deployed, found);
  const released = await takeBack(context, group, candidates, accepted, found.control);
  await openGates(deps, mode, exposures, nodes, deployed);
  const reports = new Map<GroupMember, () => Promise<void>>([
    ...exposures.map((exposure) => {
      const write = (): Promise<void> => reportExposure(deps, mode, exposure, nodes, group.replicas, pending);
      return [exposure.member, write] as const;
    }),
    ...[...accepted.refused].map(([member, message]) => {
      return [member, () => refuse(deps, member, message)] as const;
    }),
  ]);
  const reported = await forEachMember(
    deps,
    reports,
    ([member]) => member.key,
    ([, write]) => write(),
  );
  const missing = deployed.missing ?? unservedBy(mode, exposures, nodes);
  await reportNodes(deps, proxyGroup, deployed, missing);
  throwFirst(strays, accepted.failure, released, reported);
  return accepted.isNameTaken
    ? Math.min(deployed.retryAfterMs ?? REFUSED_RETRY_MS, REFUSED_RETRY_MS)
    : deployed.retryAfterMs;
}

/** @returns instructions for the user if the control server cannot approve routes through its API */
async function approve(
  { approvals }: GroupContext,
  mode: ServeMode,
  exposures: readonly ServedMember[],
  { nodes }: Deployed,
  { control }: Observation,
): Promise<string | undefined> {
  if (mode === 'service') return undefined;
  const routes = exposures.flatMap(({ addresses }) => addresses.map(hostRoute)).toSorted();
  return approvals.see(control, nodes, routes);
}

/**
 * Opens the readiness gates of pods that have applied the configuration of their node. The StatefulSet then replaces
 * the next pod.
 */
async function openGates(
  deps: ReconcilerDeps,
  mode: ServeMode,
  exposures: readonly ServedMember[],
  nodes: readonly GroupNode[],
  deployed: Deployed,
): Promise<void> {
  for (const node of nodes) {
    const replica = deployed.nodes.find(({ ordinal }) => ordinal === node.ordinal);
    if (replica === undefined || node.pod === undefined || node.pod.gate) continue;
    if (followsOrders(mode, exposures, node, replica)) await openPodGate(deps, node.pod, GATES.ingress);
  }
}

/** Returns the node of each replica, with the reports of its current pod. */
async function nodesOf(
  deps: ReconcilerDeps,
  group: NodeGroup,
  { observed }: Observation,
): Promise<readonly GroupNode[]> {
  const listed = await listOwn(deps, KINDS.pod, labelSelector(group.labels));
  const pods = new Map(listed.map((pod) => [pod.metadata.name, pod]));
  return ordinals(group).map((ordinal) => {
    // A pod and its state Secret have the same name.
    const name = stateSecretName(group.name, ordinal);
    return readGroupNode(ordinal, observed.secrets.get(name), pods.get(name));
  });
}

/**
 * Releases the allocations of members that were removed. Call this function after the configuration of the nodes was
 * written without these members.
 *
 * @returns the first failure
 */
async function takeBack(
  { deps }: GroupContext,
  group: NodeGroup,
  candidates: Candidates,
  { exposures, allocations, domains }: Accepted,
  control: TailnetControl,
): Promise<Error | undefined> {
  const served = exposures.map(({ member }) => tailnetServiceName(member));
  await removeServicesExcept(control, served, (service) => belongsToMember(service, group.uid));
  await removeCertificates(deps, group.name, domains);
  const hosts =
    control.services === undefined ? servedHosts(exposures) : new Map<string, readonly string[]>();
  const kept = new Map<string, Allocation>(
    exposures.map(({ member: { key, hostname }, addresses }) => [
      key,
      { hostname, addresses, hosts: hosts.get(key) },
    ]),
  );
  const gone = candidates.members.filter(({ key }) => allocations.has(key) && !kept.has(key));
  const release = async (member: GroupMember): Promise<void> => {
    const grant = allocations.get(member.key);
    // If the release fails, the allocation stays, so that the next reconciliation tries again.
    if (grant !== undefined) kept.set(member.key, grant);
    await releaseMember(deps, candidates, member, grant);
    kept.delete(member.key);
  };
  const failure = await forEachMember(deps, gone, keyOfMember, release);
  await writeAllocations(deps, group, kept);
  return failure;
}

async function reportExposure(
  deps: ReconcilerDeps,
  mode: ServeMode,
  exposure: ServedMember,
  nodes: readonly GroupNode[],
  replicas: number,
  pending: string | undefined,
): Promise<void> {
  const count = nodes.filter((node) => serves(mode, exposure, node)).length;
  // While pods restart, the addresses in the status stay.
  const shown = count > 0 || isIdle(exposure) ? shownAddresses(mode, exposure) : undefined;
  const why = exposure.unready ? 'no endpoint of the Service is ready' : pending;
  await reportMember(deps, exposure.member, exposureVerdictsOf(count, replicas, why), shown);
}

/**
 * Returns a message with the number of members that all nodes serve, or undefined if all nodes serve every active
 * member.
 */
function unservedBy(
  mode: ServeMode,
  exposures: readonly ServedMember[],
  nodes: readonly GroupNode[],
): string | undefined {
  const active = exposures.filter((exposure) => !isIdle(exposure));
  const served = active.filter((exposure) => nodes.every((node) => serves(mode, exposure, node))).length;
  return served < active.length
    ? `${served}/${active.length} Services and Ingresses are served by all replicas`
    : undefined;
}

/** Cleans up after the nodes of a deleted group are gone. */
async function removeMore(deps: ReconcilerDeps, group: NodeGroup, control: TailnetControl): Promise<void> {
  const found = await listCandidates(deps, group.name, 'route');
  // The cache may still contain the deleted group.
  const groups = new Set([...found.groups].filter((name) => name !== group.name));
  const candidates = { ...found, groups };
  const allocations = allocationsOf(candidates.ledgers, group.name);
  await removeServicesExcept(control, [], (service) => belongsToMember(service, group.uid));
  await removeCertificates(deps, group.name, []);
  const members = candidates.members.filter(
    (one) => allocations.has(one.key) || (hasMemberFinalizer(one) && one.group === group.name),
  );
  const release = (member: GroupMember): Promise<void> =>
    releaseMember(deps, candidates, member, allocations.get(member.key));
  throwFirst(await forEachMember(deps, members, keyOfMember, release));
  const object = candidates.ledgers.get(allocationsName(group.name));
  if (object !== undefined) await removeExact(deps, object);
}
