/**
 * Reconciles all Services of one ProxyGroup of type egress: their front Services, the rules of the nodes, and the
 * EndpointSlices with the accepting pods. The key of a reconciliation is the name of the group, so that no two
 * reconciliations assign ports or write the same object at the same time.
 */
import { SERVICES, SERVICES_BY_GROUP } from '../indexes.ts';
import { FINALIZER, KINDS, type KubeObject } from '../kube-object.ts';
import { addFinalizer, report, type Reconciler, type ReconcilerDeps } from '../workload/reconciler.ts';
import { labelSelector, problemOfName, type NodeGroup } from '../workload/workload.ts';
import { forEachMember, throwFirst } from '../workload/for-each-member.ts';
import { applyChanged } from '../workload/apply.ts';
import { removeExact } from '../workload/cleanup.ts';
import { listOwn } from '../workload/observe.ts';
import { sharedNodes } from '../proxy-group/group.ts';
import { isEgressGroup, parseProxyGroup, type ProxyGroup } from '../proxy-group/resource.ts';
import { ANNOTATIONS } from '../service/predicates.ts';
import { openPodGate } from '../workload/readiness.ts';
import { leadServiceTo } from '../service/lead.ts';
import { parseService, type Service } from '../service/resource.ts';
import { egressProblemOf, leadsOut, targetOf, type TailnetTarget } from '../service/classify.ts';
import { configMap, configMapName } from './config-map.ts';
import {
  GATE,
  hasTakenOver,
  readPod,
  servingOf,
  slicesOf,
  type GroupPod,
  type Serving,
} from './endpoints.ts';
import { removeFronts } from './fronts.ts';
import {
  assignPorts,
  frontObject,
  frontSelector,
  keyOf,
  problemOfPorts,
  problemOfShare,
  readFront,
  type ServiceFront,
} from './member.ts';
import { refusal, memberVerdictsOf, type MemberVerdicts } from './status.ts';

/**
 * Interval of lookups of unresolved names, in milliseconds. Nodes look up names when their configuration file changes.
 */
const LOOKUP_INTERVAL_MS = 30_000;

/** Observed state of the cluster. */
interface Seen {
  readonly group: NodeGroup;
  readonly members: readonly Service[];
  /** Front Services of existing members. Map keys: key of the Service. */
  readonly fronts: ReadonlyMap<string, ServiceFront>;
  /** Front Services to delete: those of members that no longer exist, and duplicates. */
  readonly leaving: readonly ServiceFront[];
  readonly slices: ReadonlyMap<string, KubeObject>;
  readonly configMap: KubeObject | undefined;
  readonly pods: readonly GroupPod[];
}

export function createEgressReconciler(deps: ReconcilerDeps): Reconciler {
  return {
    async reconcile(name) {
      // During an uninstallation, the front Services are deleted together with the nodes.
      if (deps.leaving === true) return undefined;
      const object = await deps.client.get(KINDS.proxyGroup, { name });
      const proxyGroup = object === undefined ? undefined : parseProxyGroup(object);
      const members = await membersOf(deps, name);
      const problem = problemOfGroup(name, proxyGroup);
      if (proxyGroup === undefined || problem !== undefined) {
        await turnAway(deps, name, { members, isGone: proxyGroup === undefined }, problem ?? '');
        return undefined;
      }
      return serve(deps, await observeGroup(deps, proxyGroup, members));
    },
  };
}

/** Returns the Services of a group. */
async function membersOf({ cache }: ReconcilerDeps, group: string): Promise<readonly Service[]> {
  const cached = await cache.read([SERVICES]);
  return cached
    .by(SERVICES_BY_GROUP, group)
    .map(parseService)
    .filter(({ metadata }) => metadata.deletionTimestamp === undefined && leadsOut(metadata.annotations));
}

/** Returns the reason why a group cannot serve Services, or undefined. */
function problemOfGroup(name: string, proxyGroup: ProxyGroup | undefined): string | undefined {
  const field = `${ANNOTATIONS.proxyGroup}: ProxyGroup "${name}"`;
  if (proxyGroup === undefined)
    return `${field} does not exist: create it with spec.type: egress, or name another`;
  if (!isEgressGroup(proxyGroup))
    return `${field} is of type ${proxyGroup.spec.type}: name one of type egress`;
  const problem = problemOfName(name);
  return problem === undefined ? undefined : `${field}: ${problem}`;
}

async function turnAway(
  deps: ReconcilerDeps,
  name: string,
  { members, isGone }: { readonly members: readonly Service[]; readonly isGone: boolean },
  message: string,
): Promise<void> {
  // A group whose name is too long has no objects.
  if ((members.length > 0 || isGone) && problemOfName(name) === undefined) await removeFronts(deps, name);
  const reject = (member: Service): Promise<void> =>
    writeConditions(deps, member, refusal('ProxyGroupNotReady', message));
  throwFirst(await forEachMember(deps, members, keyOfMember, reject));
}

function keyOfMember({ metadata }: Service): string {
  return keyOf(metadata);
}

async function observeGroup(
  deps: ReconcilerDeps,
  proxyGroup: ProxyGroup,
  members: readonly Service[],
): Promise<Seen> {
  const { namespace } = deps.options;
  const group = sharedNodes(proxyGroup, deps.options);
  const own = labelSelector(group.labels);
  const [services, slices, pods, secrets, config] = await Promise.all([
    listOwn(deps, KINDS.service, frontSelector(group.name)),
    listOwn(deps, KINDS.endpointSlice, frontSelector(group.name)),
    listOwn(deps, KINDS.pod, own),
    listOwn(deps, KINDS.secret, own),
    deps.client.get(KINDS.configMap, { namespace, name: configMapName(group.name) }),
  ]);
  const keys = new Set(members.map(({ metadata }) => keyOf(metadata)));
  const fronts = new Map<string, ServiceFront>();
  const leaving: ServiceFront[] = [];
  for (const front of services.flatMap((service) => readFront(service) ?? [])) {
    // A second front Service of the same member is left over from an interrupted creation.
    if (keys.has(front.key) && !fronts.has(front.key)) fronts.set(front.key, front);
    else leaving.push(front);
  }
  const states = new Map(secrets.map((secret) => [secret.metadata.name, secret]));
  return {
    group,
    members,
    fronts,
    leaving,
    slices: new Map(slices.map((slice) => [slice.metadata.name, slice])),
    configMap: config,
    // A pod and its state Secret have the same name.
    pods: pods.map((pod) => readPod(pod, states.get(pod.metadata.name))),
  };
}

/** Result of {@link prepareAll} for the Services of a group. */
interface Prepared {
  readonly fronts: readonly ServiceFront[];
  readonly serving: ReadonlyMap<string, Serving>;
  readonly refusals: ReadonlyMap<string, MemberVerdicts>;
  /** First failure; further failures are only logged. */
  readonly failure: Error | undefined;
}

async function serve(deps: ReconcilerDeps, seen: Seen): Promise<number | undefined> {
  for (const front of seen.leaving) await removeExact(deps, front.object);
  const prepared = await prepareAll(deps, seen);
  const { fronts, serving, failure } = prepared;
  const unresolved = [...serving.values()].some((one) => one.unresolved > 0);
  const now = deps.clock.now();
  const observeGroup = unresolved ? Math.floor(now / LOOKUP_INTERVAL_MS) : undefined;
  await applyChanged(
    deps.client,
    configMap(seen.group, fronts, deps.options, observeGroup),
    seen.configMap,
    seen.group,
  );
  await writeSlices(deps, seen, prepared);
  // Readiness gates are opened last, when the EndpointSlices already contain the new pods.
  for (const pod of seen.pods) {
    if (!pod.gate && hasTakenOver(pod, fronts)) await openPodGate(deps, pod, GATE);
  }
  const update = (member: Service): Promise<void> => updateMember(deps, seen.group, member, prepared);
  throwFirst(failure, await forEachMember(deps, seen.members, keyOfMember, update));
  return unresolved ? LOOKUP_INTERVAL_MS - (now % LOOKUP_INTERVAL_MS) : undefined;
}

/**
 * Creates or updates the front Service of each member. If this fails for one member, the other members still get
 * theirs.
 */
async function prepareAll(deps: ReconcilerDeps, { group, members, pods, ...seen }: Seen): Promise<Prepared> {
  const fronts = new Map(seen.fronts);
  const refusals = new Map<string, MemberVerdicts>();
  const failure = await forEachMember(deps, members, keyOfMember, async (member) => {
    const answer = await prepare(deps, group, member, fronts);
    if ('TailscaleEgressSvcValid' in answer) refusals.set(keyOf(member.metadata), answer);
    else fronts.set(answer.key, answer);
  });
  const all = [...fronts.values()];
  const serving = new Map(all.map((front) => [front.key, servingOf(front, pods)] as const));
  return { fronts: all, serving, refusals, failure };
}

async function writeSlices(
  deps: ReconcilerDeps,
  { slices }: Seen,
  { fronts, serving }: Prepared,
): Promise<void> {
  for (const front of fronts) {
    const served = serving.get(front.key);
    for (const slice of served === undefined ? [] : slicesOf(front, served)) {
      await applyChanged(deps.client, slice, slices.get(slice.metadata.name));
    }
  }
}

/** Updates a member: the front Service to which it points, and its conditions. */
async function updateMember(
  deps: ReconcilerDeps,
  { name, replicas }: NodeGroup,
  member: Service,
  { fronts, serving, refusals }: Prepared,
): Promise<void> {
  const key = keyOf(member.metadata);
  const refused = refusals.get(key);
  if (refused !== undefined) return writeConditions(deps, member, refused);
  const front = fronts.find((one) => one.key === key);
  const served = serving.get(key);
  if (front === undefined || served === undefined) return undefined;
  const { namespace, clusterDomain } = deps.options;
  const fullName = `${front.object.metadata.name}.${namespace}.svc.${clusterDomain}`;
  await leadServiceTo(deps.client, member, fullName);
  const target = shownTarget(targetOf(member.metadata.annotations));
  return writeConditions(deps, member, memberVerdictsOf(name, target, served, replicas));
}

function shownTarget({ ip, fqdn }: TailnetTarget): string {
  return fqdn === '' ? ip : fqdn;
}

/**
 * Creates or updates the front Service of a member. Returns the conditions of the member if no front Service can be
 * created.
 */
async function prepare(
  deps: ReconcilerDeps,
  group: NodeGroup,
  member: Service,
  fronts: ReadonlyMap<string, ServiceFront>,
): Promise<ServiceFront | MemberVerdicts> {
  const { client, options } = deps;
  const key = keyOf(member.metadata);
  const before = fronts.get(key);
  const others = [...fronts.values()].filter((front) => front.key !== key);
  const taken = new Set(others.flatMap(({ ports }) => ports.map(({ nodePort }) => nodePort)));
  const pairs = assignPorts(member, before, taken);
  const { namespace = '' } = member.metadata;
  const tags = await deps.tags.problemOf({ namespace, tags: group.tags });
  const problem =
    egressProblemOf(member, options.servesUnclassed) ??
    problemOfPorts(member) ??
    (tags === undefined ? undefined : `${ANNOTATIONS.proxyGroup}: ${tags}`) ??
    problemOfShare(group.name, namespace, { wanted: pairs, before, others });
  if (problem !== undefined || pairs === undefined) {
    const message = problem ?? '';
    const target = { kind: KINDS.service, metadata: member.metadata };
    await deps.events.warn(target, { reason: 'EgressSvcInvalid', message });
    return refusal('EgressSvcInvalid', message);
  }
  await addFinalizer(deps, { kind: KINDS.service, finalizer: FINALIZER, metadata: member.metadata });
  const target = targetOf(member.metadata.annotations);
  const desired = frontObject(group.name, member, target, pairs, {
    namespace: options.namespace,
    name: before?.object.metadata.name,
  });
  if (before === undefined) {
    const { namespace, name } = desired.metadata;
    const other = await client.get(KINDS.service, { namespace, name });
    if (other !== undefined)
      throw new Error(
        `Service ${namespace}/${name} exists and is not of ProxyGroup "${group.name}": delete it`,
      );
  }
  const object = await applyChanged(client, desired, before?.object);
  const front = readFront(object);
  if (front === undefined) throw new Error(`Service ${object.metadata.name} has lost its labels`);
  return front;
}

async function writeConditions(
  deps: ReconcilerDeps,
  member: Service,
  verdicts: MemberVerdicts,
): Promise<void> {
  await report(deps, KINDS.service, member, verdicts);
}
