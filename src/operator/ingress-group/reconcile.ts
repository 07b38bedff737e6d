/**
 * One pass over one ProxyGroup of type ingress: its nodes, and everything that they serve. One key for a group, so that what its
 * nodes are told is computed as a whole. Effects only.
 */
import {
  classOfGroup,
  managedGroup,
  proxyOfGroup,
  refuseGroup,
  reportGroup,
  reportNodes,
} from '../proxy-group/shared.ts';
import { createSequence, type Sequence } from '../../async/sequence.ts';
import type { TailnetControl } from '../auth-keys.ts';
import { KINDS, type KubeObject } from '../kube-object.ts';
import { hostRoute } from '../networks.ts';
import { createApprovals, type Approvals } from '../workload/approvals.ts';
import {
  REFUSED_AGAIN_MS,
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
  createReconciler,
  failed,
  writeStatus,
  type Found,
} from '../workload/reconciler.ts';
import { labelSelector, ordinals, stateSecretName, type NodeGroup } from '../workload/workload.ts';
import type { Deployed } from '../workload/deploy.ts';
import { openPodGate } from '../workload/readiness.ts';
import { GATES } from '../workload/proxy-specs.ts';
import { nodeNames } from '../proxy-group/group.ts';
import { isIngressGroup, parseProxyGroup, type ProxyGroup } from '../proxy-group/resource.ts';
import { clearedGroupStatus } from '../proxy-group/status.ts';
import { frontsOf, type Accepted } from './accept.ts';
import { leaveServices, removeCertificates, writeLedger } from './grants.ts';
import { isMarked, ledgerOf, listCandidates, type Candidates, type IngressGroupChoices } from './look.ts';
import { ledgerName } from './ledger.ts';
import { letGo, letStraysGo, refuse, tell, turnAway } from './members.ts';
import { isIdle, ordersOf, type ServedMember, type Way } from './plan.ts';
import { doesAsTold, readGroupNode, serves, type GroupNode } from './reports.ts';
import { shownAddresses, exposureVerdictsOf } from './status.ts';
import { tailnetServiceName } from './tailnet-service.ts';
import { deployProxy } from '../workload/proxy.ts';

/** What a pass goes by besides what it found. */
interface Tools {
  readonly deps: ReconcilerDeps;
  readonly choices: IngressGroupChoices;
  readonly approvals: Approvals;
  readonly inTurn: Sequence;
}

const NO_ADDRESSES =
  'the control server has no Tailscale Services, and the operator has no addresses to give out: name networks in ingressAddresses';

export function createIngressGroupReconciler(deps: ReconcilerDeps, choices: IngressGroupChoices): Reconciler {
  const tools: Tools = { deps, choices, approvals: createApprovals(deps), inTurn: createSequence() };
  const frame = createReconciler<ProxyGroup>(deps, {
    kind: KINDS.proxyGroup,
    deployed: deps.metrics.ingressGroups,
    parse(object) {
      const proxyGroup = parseProxyGroup(object);
      return isIngressGroup(proxyGroup) ? proxyGroup : undefined;
    },
    managed: (proxyGroup) => managedGroup(deps, proxyGroup),
    names: (proxyGroup, { group }) => nodeNames(proxyGroup, group),
    deploy: (proxyGroup, ...more) => deploy(tools, proxyGroup, ...more),
    release: (proxyGroup, _resource, signal) => release(deps, proxyGroup, signal),
    notReady: (proxyGroup, reason, message, signal) =>
      reportGroup(deps, proxyGroup, { ready: failed(`ProxyGroup${reason}`, message) }, undefined, signal),
    removeMore: ({ group }, control, signal) => removeMore(tools, group, control, signal),
  });
  return {
    async reconcile(name, signal) {
      const object = name === '' ? undefined : await deps.client.get(KINDS.proxyGroup, { name }, signal);
      const proxyGroup = object === undefined ? undefined : parseProxyGroup(object);
      if (deps.leaving !== true && (proxyGroup === undefined || !isIngressGroup(proxyGroup))) {
        const candidates = await listCandidates(deps, choices, name, 'route', signal);
        await turnAway(deps, candidates, name, proxyGroup, signal);
      }
      // No name: what is marked, and names no group.
      return name === '' ? undefined : frame.reconcile(name, signal);
    },
  };
}

async function deploy(
  tools: Tools,
  proxyGroup: ProxyGroup,
  resource: Managed,
  found: Found,
  signal: AbortSignal,
): Promise<number | undefined> {
  const { deps, choices } = tools;
  const { group } = resource;
  const way: Way = found.control.services === undefined ? 'route' : 'service';
  const candidates = await listCandidates(deps, choices, group.name, way, signal);
  await letStraysGo(deps, candidates, signal);
  const prepared =
    way === 'route' && choices.networks.length === 0
      ? await refuseGroup(deps, proxyGroup, 'ProxyGroupNotServed', NO_ADDRESSES, signal)
      : await classOfGroup(deps, proxyGroup, choices.defaultClass, signal);
  if ('problem' in prepared) {
    const waiting = candidates.members.filter((one) => one.group === group.name && !isMarked(one));
    for (const member of waiting) await refuse(deps, member, prepared.problem, signal);
    return undefined;
  }
  deps.metrics.ingressGroups.add(group.uid);
  const nodes = await nodesOf(deps, group, found, signal);
  const { tailnet } = resource;
  const scene = { group, tailnet, way, candidates, nodes, control: found.control };
  const accepted = await frontsOf(tools, scene, signal);
  const { fronts } = accepted;
  const proxy = proxyOfGroup(deps, proxyGroup, {
    kind: 'ingress-group',
    orders: (ordinal) =>
      ordersOf(way, fronts, nodes[ordinal] ?? readGroupNode(ordinal, undefined, undefined)),
    sharesCertificates: way === 'service' && found.control.issuesCertificates,
  });
  const deployed = await deployProxy(deps, proxy, prepared.proxyClass, found, signal);
  const pending = await approve(tools, way, fronts, deployed, found, signal);
  await takeBack(tools, group, candidates, accepted, found.control, signal);
  await openGates(deps, way, fronts, nodes, deployed, signal);
  for (const front of fronts) await tellFront(deps, way, front, nodes, group.replicas, pending, signal);
  for (const [member, message] of accepted.refused) await refuse(deps, member, message, signal);
  const waitsFor = deployed.waitsFor ?? unservedBy(way, fronts, nodes);
  await reportNodes(deps, proxyGroup, deployed, found, waitsFor, signal);
  if (accepted.failure !== undefined) throw accepted.failure;
  return accepted.waitsForName
    ? Math.min(deployed.again ?? REFUSED_AGAIN_MS, REFUSED_AGAIN_MS)
    : deployed.again;
}

/** @returns what people have to do, where the control server does not do it for us */
async function approve(
  { approvals }: Tools,
  way: Way,
  fronts: readonly ServedMember[],
  { nodes }: Deployed,
  { control }: Found,
  signal: AbortSignal,
): Promise<string | undefined> {
  if (way === 'service') return undefined;
  const routes = fronts.flatMap(({ addresses }) => addresses.map(hostRoute)).toSorted();
  return approvals.see(control, nodes, routes, signal);
}

/** The StatefulSet goes on to the next pod when this one has taken over. */
async function openGates(
  deps: ReconcilerDeps,
  way: Way,
  fronts: readonly ServedMember[],
  nodes: readonly GroupNode[],
  deployed: Deployed,
  signal: AbortSignal,
): Promise<void> {
  for (const node of nodes) {
    const replica = deployed.nodes.find(({ ordinal }) => ordinal === node.ordinal);
    if (replica === undefined || node.pod === undefined || node.pod.gate) continue;
    if (doesAsTold(way, fronts, node, replica)) await openPodGate(deps, node.pod, GATES.ingress, signal);
  }
}

/** One for each replica. */
async function nodesOf(
  { client, options }: ReconcilerDeps,
  group: NodeGroup,
  { observed }: Found,
  signal: AbortSignal,
): Promise<readonly GroupNode[]> {
  const scope = { namespace: options.namespace, labelSelector: labelSelector(group.labels) };
  const pods = new Map<string, KubeObject>(
    (await client.list(KINDS.pod, scope, signal)).items.map((pod) => [pod.metadata.name, pod]),
  );
  return ordinals(group).map((ordinal) => {
    // A pod is called as its state Secret is.
    const name = stateSecretName(group.name, ordinal);
    return readGroupNode(ordinal, observed.secrets.get(name), pods.get(name));
  });
}

/** What was given to those that are not served any more: nodes have been told, so nothing leads to them. */
async function takeBack(
  { deps }: Tools,
  group: NodeGroup,
  candidates: Candidates,
  { fronts, ledger, domains }: Accepted,
  control: TailnetControl,
  signal: AbortSignal,
): Promise<void> {
  await leaveServices(
    control,
    group.uid,
    new Set(fronts.map(({ member }) => tailnetServiceName(member))),
    signal,
  );
  await removeCertificates(deps, group.name, domains, signal);
  const kept = new Map(
    fronts.map(({ member, addresses }) => [member.key, { hostname: member.hostname, addresses }] as const),
  );
  for (const [key, grant] of ledger) {
    const member = candidates.members.find((one) => one.key === key);
    if (kept.has(key) || member === undefined) continue;
    await letGo(deps, candidates, member, grant, signal);
  }
  await writeLedger(deps, group, kept, signal);
}

async function tellFront(
  deps: ReconcilerDeps,
  way: Way,
  front: ServedMember,
  nodes: readonly GroupNode[],
  replicas: number,
  pending: string | undefined,
  signal: AbortSignal,
): Promise<void> {
  const count = nodes.filter((node) => serves(way, front, node)).length;
  // What callers are told stays while pods start again.
  const shown = count > 0 || isIdle(front) ? shownAddresses(way, front) : undefined;
  const why = front.deserted ? 'no endpoint of the Service is ready' : pending;
  await tell(deps, front.member, exposureVerdictsOf(count, replicas, why), shown, signal);
}

/** Returns how many members are not served by all nodes, or undefined if there are none. */
function unservedBy(
  way: Way,
  fronts: readonly ServedMember[],
  nodes: readonly GroupNode[],
): string | undefined {
  const active = fronts.filter((front) => !isIdle(front));
  const served = active.filter((front) => nodes.every((node) => serves(way, front, node))).length;
  return served < active.length
    ? `${served}/${active.length} Services and Ingresses are served by all replicas`
    : undefined;
}

/** The group is going, and its nodes are gone. */
async function removeMore(
  { deps, choices }: Tools,
  group: NodeGroup,
  control: TailnetControl,
  signal: AbortSignal,
): Promise<void> {
  const found = await listCandidates(deps, choices, group.name, 'route', signal);
  // The cache may not have the deletion yet.
  const groups = new Set([...found.groups].filter((name) => name !== group.name));
  const candidates = { ...found, groups };
  const ledger = ledgerOf(candidates.ledgers, group.name);
  await leaveServices(control, group.uid, new Set(), signal);
  await removeCertificates(deps, group.name, [], signal);
  for (const member of candidates.members) {
    const grant = ledger.get(member.key);
    if (grant !== undefined || (isMarked(member) && member.group === group.name))
      await letGo(deps, candidates, member, grant, signal);
  }
  const object = candidates.ledgers.get(ledgerName(group.name));
  if (object === undefined) return;
  const { namespace, name, uid } = object.metadata;
  await deps.client.remove(KINDS.configMap, { namespace, name }, { uid }, signal);
}

/** What was said of a group that stays while the operator goes. */
async function release(deps: ReconcilerDeps, proxyGroup: ProxyGroup, signal: AbortSignal): Promise<boolean> {
  const status = clearedGroupStatus(proxyGroup);
  await writeStatus(deps, { kind: KINDS.proxyGroup, metadata: proxyGroup.metadata }, status, signal);
  return status !== undefined;
}
