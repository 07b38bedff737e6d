/** Deploys the nodes of a proxy with the settings of its ProxyClass. Effects. */
import { FINALIZER, KINDS, type ResourceKind } from '../kube-object.ts';
import { listOwn } from './observe.ts';
import { configFiles } from './proxy-config.ts';
import { headlessService, proxyStatefulSet } from './proxy-specs.ts';
import { type Deployed, deployWorkload, type DesiredWorkload } from './deploy.ts';
import {
  type Parent,
  type ParentType,
  type Proxy,
  labelSelector,
  objectNameOf,
  parentLabels,
  proxyNodes,
  tagsOf,
} from './workload.ts';
import { withClass } from './class-specs.ts';
import { UNPRIVILEGED, isUnprivileged } from './unprivileged.ts';
import type { Managed, ReconcilerDeps, Observation } from './reconciler.ts';
import { type ProxyClass, parseProxyClass, isReady } from '../proxy-class/resource.ts';

/** The ProxyClass of a proxy, or the reason why the proxy must wait for its class. */
export type ClassAnswer =
  | { readonly kind: 'found'; readonly proxyClass: ProxyClass | undefined }
  | { readonly kind: 'waits'; readonly message: string };

/** Like {@link classOf}, for proxies that need privileges because they forward packets. */
export async function privilegedClassOf(
  deps: Pick<ReconcilerDeps, 'client'>,
  name: string,
): Promise<ClassAnswer> {
  const answer = await classOf(deps, name);
  if (answer.kind === 'waits' || !isUnprivileged(answer.proxyClass)) return answer;
  const message =
    `waiting: ProxyClass "${name}" has ${UNPRIVILEGED}, but forwarding needs privileges: name another ` +
    'class';
  return { kind: 'waits', message };
}

/** @param name name of the class; empty for none */
export async function classOf(
  { client }: Pick<ReconcilerDeps, 'client'>,
  name: string,
): Promise<ClassAnswer> {
  if (name === '') return { kind: 'found', proxyClass: undefined };
  const object = await client.get(KINDS.proxyClass, { name });
  if (object === undefined) return { kind: 'waits', message: `waiting: ProxyClass "${name}" does not exist` };
  const proxyClass = parseProxyClass(object);
  return isReady(proxyClass)
    ? { kind: 'found', proxyClass }
    : { kind: 'waits', message: `waiting: ProxyClass "${name}" is not ready` };
}

/**
 * Returns the name of the existing objects of a parent, or undefined if the parent has no objects. The name is read
 * from the cluster, because the reference (Tailscale's operator) may have created the objects under names that differ
 * from tailcast's. If the StatefulSet is gone, its Secrets still show the name, because they are deleted later.
 *
 * @throws Error if the objects of the parent have two different names
 */
export async function existingName(
  deps: Pick<ReconcilerDeps, 'client' | 'options'>,
  parent: Parent,
): Promise<string | undefined> {
  const selector = labelSelector(parentLabels(parent));
  const listed = async (kind: ResourceKind): Promise<readonly string[]> =>
    (await listOwn(deps, kind, selector, true)).map(({ metadata }) => metadata.name);
  const sets = await listed(KINDS.statefulSet);
  const names =
    sets.length > 0
      ? sets
      : (await listed(KINDS.secret)).flatMap((name) => /^(.+?)(?:-auth)?-\d+$/.exec(name)?.[1] ?? []);
  const [first, ...more] = new Set(names);
  if (first !== undefined && more.length > 0) {
    throw new Error(
      `several sets of objects exist for ${parent.namespace}/${parent.name}: ` +
        `${[first, ...more].join(', ')}: delete all but one`,
    );
  }
  return first;
}

/** Describes the nodes of a resource that has its own proxy. If its objects exist already, their name is reused. */
export async function manageProxy(
  deps: Pick<ReconcilerDeps, 'client' | 'options'>,
  kind: ResourceKind,
  type: ParentType,
  metadata: Managed['metadata'],
  more: { readonly tags: readonly string[]; readonly replicas?: number; readonly tailnet?: string },
): Promise<Managed> {
  const { tags, replicas = 1, tailnet = '' } = more;
  const { name, uid } = metadata;
  const parent = { type, namespace: metadata.namespace ?? deps.options.namespace, name };
  const existing = metadata.finalizers.includes(FINALIZER) ? await existingName(deps, parent) : undefined;
  const group = proxyNodes(kind.kind, parent, {
    name: existing ?? objectNameOf(parent),
    uid,
    replicas,
    tags: tagsOf(tags, deps.options.defaultTags),
  });
  return { kind, finalizer: FINALIZER, group, tailnet, metadata };
}

/** @throws TailcastError `OBJECT_NOT_OURS`, `CONTROL_FAILED`; KubeRefusal. */
export async function deployProxy(
  deps: ReconcilerDeps,
  proxy: Proxy,
  proxyClass: ProxyClass | undefined,
  found: Observation,
): Promise<Deployed> {
  const { group, duty } = proxy;
  const choices = { acceptRoutes: proxyClass?.spec.tailscale.acceptRoutes ?? false };
  const desired: DesiredWorkload = {
    group,
    // Groups need no headless Service: egress groups write their own EndpointSlices, and callers of ingress groups
    // connect through the tailnet.
    ...(group.owned ? {} : { service: headlessService(proxy, deps.options) }),
    stateData: (ordinal, authKey, options) => configFiles(proxy, ordinal, authKey, choices, options),
    statefulSet(options) {
      const restricted = isUnprivileged(proxyClass);
      const plain = proxyStatefulSet({ ...proxy, restricted }, options);
      return proxyClass === undefined ? plain : withClass(plain, proxyClass, duty);
    },
  };
  return deployWorkload(deps, desired, found);
}
