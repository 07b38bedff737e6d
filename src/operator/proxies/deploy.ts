/** Makes the nodes of one proxy, following its ProxyClass. Effects. */
import { KINDS, type KubeObject, type ResourceKind } from '../kube-object.ts';
import { removeSurplus } from '../nodes/cleanup.ts';
import type { ReplicaNode } from '../nodes/keys.ts';
import { nextLook, SHORT_MS, type ReconcilerDeps } from '../nodes/lifecycle.ts';
import { labelSelector, type NodeGroup } from '../nodes/node-group.ts';
import type { Found } from '../nodes/pass.ts';
import { provision, type Wanted } from '../nodes/provision.ts';
import { isReady, parseProxyClass, type ProxyClass } from '../proxy-class/resource.ts';
import { withClass } from './class-specs.ts';
import { configFiles } from './config-file.ts';
import { parentLabels, type Parent } from './labels.ts';
import { headlessService, proxyStatefulSet } from './object-specs.ts';
import type { Proxy } from './proxy.ts';
import { waitsFor } from './readiness.ts';
import { isUnprivileged, UNPRIVILEGED } from './unprivileged.ts';

/** The class that a proxy is to follow, or why it has to wait for it. */
export type ClassAnswer =
  | { readonly kind: 'found'; readonly proxyClass: ProxyClass | undefined }
  | { readonly kind: 'waits'; readonly message: string };

/** As {@link classOf}, for what carries packets: that takes privileges. */
export async function privilegedClassOf(
  deps: Pick<ReconcilerDeps, 'client'>,
  name: string,
  signal: AbortSignal,
): Promise<ClassAnswer> {
  const answer = await classOf(deps, name, signal);
  if (answer.kind === 'waits' || !isUnprivileged(answer.proxyClass)) return answer;
  const message = `ProxyClass "${name}" says ${UNPRIVILEGED}, and packets are carried with privileges alone: name another class`;
  return { kind: 'waits', message };
}

/** @param name empty: none */
export async function classOf(
  { client }: Pick<ReconcilerDeps, 'client'>,
  name: string,
  signal: AbortSignal,
): Promise<ClassAnswer> {
  if (name === '') return { kind: 'found', proxyClass: undefined };
  const object = await client.get(KINDS.proxyClass, { name }, signal);
  if (object === undefined) return { kind: 'waits', message: `ProxyClass "${name}" does not exist` };
  const proxyClass = parseProxyClass(object);
  return isReady(proxyClass)
    ? { kind: 'found', proxyClass }
    : { kind: 'waits', message: `ProxyClass "${name}" is not ready` };
}

/**
 * The name of the objects that are there for a parent; undefined when there are none. The reference chose names that we
 * would not. Secrets count when the StatefulSet is gone already: they are what goes last.
 *
 * @throws Error when there are two
 */
export async function existingName(
  { client, options }: Pick<ReconcilerDeps, 'client' | 'options'>,
  parent: Parent,
  signal: AbortSignal,
): Promise<string | undefined> {
  const scope = {
    namespace: options.namespace,
    labelSelector: labelSelector(parentLabels(parent)),
    metadataOnly: true,
  };
  const listed = async (kind: ResourceKind): Promise<readonly string[]> =>
    (await client.list(kind, scope, signal)).items.map(({ metadata }) => metadata.name);
  const sets = await listed(KINDS.statefulSet);
  const names =
    sets.length > 0
      ? sets
      : (await listed(KINDS.secret)).flatMap((name) => /^(.+?)(?:-auth)?-\d+$/.exec(name)?.[1] ?? []);
  const [first, ...more] = new Set(names);
  if (first !== undefined && more.length > 0) {
    throw new Error(
      `there are objects of ${[first, ...more].join(' and ')} for ${parent.namespace}/${parent.name}: delete those of all but one`,
    );
  }
  return first;
}

export interface Deployed {
  readonly nodes: readonly ReplicaNode[];
  /** Undefined when it does its work. */
  readonly waitsFor: string | undefined;
  /** In how many milliseconds to look again, as `Reconciler` says it. */
  readonly again: number | undefined;
}

/** @throws TailcastError `OBJECT_NOT_OURS`, `CONTROL_FAILED`; KubeRefusal. */
export async function deployProxy(
  deps: ReconcilerDeps,
  proxy: Proxy,
  proxyClass: ProxyClass | undefined,
  { control, observed }: Found,
  signal: AbortSignal,
): Promise<Deployed> {
  const { group, duty } = proxy;
  const choices = { acceptRoutes: proxyClass?.spec.tailscale.acceptRoutes ?? false };
  const wanted: Wanted = {
    group,
    // The pods of groups are found by slices of Services of their own.
    ...(group.owned ? {} : { service: headlessService(proxy, deps.options) }),
    stateData: (ordinal, authKey, options) => configFiles(proxy, ordinal, authKey, choices, options),
    statefulSet(options, existing) {
      const restricted = isUnprivileged(proxyClass);
      const plain = proxyStatefulSet({ ...proxy, restricted }, options, existing);
      return proxyClass === undefined ? plain : withClass(plain, proxyClass, duty);
    },
  };
  const { nodes, complete } = await provision(deps, wanted, observed, control, signal);
  const surplusGone = await removeSurplus(deps, group, observed, control, signal);
  await removeOtherServices(deps, group, observed.services, signal);
  return {
    nodes,
    waitsFor: complete
      ? waitsFor(group, nodes, observed)
      : 'the StatefulSet is being recreated; its pods keep running',
    again: complete && surplusGone ? nextLook(nodes, deps.clock.now()) : SHORT_MS,
  };
}

/** Services that were left by a creation that ended half way under another name. */
async function removeOtherServices(
  { client }: Pick<ReconcilerDeps, 'client'>,
  group: NodeGroup,
  services: readonly KubeObject[],
  signal: AbortSignal,
): Promise<void> {
  for (const { metadata } of services) {
    const { namespace, name, uid } = metadata;
    const headless = name === group.name;
    if (!headless && metadata.labels?.['tailscale.com/metrics-target'] === undefined) {
      await client.remove(KINDS.service, { namespace, name }, { uid }, signal);
    }
  }
}
