/** What happens to every kind of resource: a finalizer comes first, and the nodes go before it does. Effects. */
import { TailcastError } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { TailnetControl } from '../auth-keys.ts';
import type { Clock } from '../clock.ts';
import type { EventRecorder } from '../event-recorder.ts';
import type { KubeClient } from '../kube-client.ts';
import type { ResourceKind } from '../kube-object.ts';
import type { ObjectCache } from '../object-cache.ts';
import type { OperatorMetrics } from '../operator-metrics.ts';
import type { Tailnets } from '../tailnets.ts';
import { KEY_LIFETIME_MS, SPENT_AFTER_MS } from './auth-key-decision.ts';
import { removeAll } from './cleanup.ts';
import type { KeyKeeper, ReplicaNode } from './keys.ts';
import type { NodeGroup, SpecOptions } from './node-group.ts';
import { observe } from './observe.ts';
import { releaseNames } from './names.ts';
import type { TagPolicy } from './tags.ts';

export interface ReconcilerDeps {
  readonly client: Omit<KubeClient, 'watch'>;
  readonly cache: ObjectCache;
  readonly tailnets: Tailnets;
  readonly options: SpecOptions;
  readonly keys: Pick<KeyKeeper, 'ensure' | 'forget'>;
  readonly tags: TagPolicy;
  readonly events: EventRecorder;
  readonly metrics: OperatorMetrics;
  readonly clock: Clock;
  readonly log: Logger;
  /** The operator is going for good: whatever it is called for is taken down. */
  readonly leaving?: boolean;
}

export interface Reconciler {
  /**
   * @param name of the resource; `<namespace>/<name>` of one that has a namespace.
   * @returns in how many milliseconds to look again without being asked; undefined: when something changes.
   * @throws what went wrong; the caller tries again later. It is in the status already.
   */
  reconcile(name: string, signal: AbortSignal): Promise<number | undefined>;
}

/** A resource, with what is the same for all kinds. */
export interface Managed {
  readonly kind: ResourceKind;
  readonly finalizer: string;
  readonly group: NodeGroup;
  /** `spec.tailnet`; empty: the operator's own. */
  readonly tailnet: string;
  readonly metadata: {
    readonly name: string;
    /** Undefined for cluster-scoped kinds. */
    readonly namespace?: string | undefined;
    readonly uid: string;
    readonly resourceVersion: string;
    readonly finalizers: readonly string[];
    readonly deletionTimestamp?: string | undefined;
  };
}

/** A pod that ends is looked for this often. */
export const SHORT_MS = 1000;
/** Interval between passes over a resource whose name or tags are refused, in milliseconds. */
export const REFUSED_AGAIN_MS = 60_000;
/** Pods on a lost node never end; a resource that is being deleted does not wait longer for them. */
const POD_PATIENCE_MS = 5 * 60_000;

/** Whether a resource is not being deleted, and the operator not going for good. */
export function stays(
  { leaving }: Pick<ReconcilerDeps, 'leaving'>,
  { metadata }: { readonly metadata: Pick<Managed['metadata'], 'deletionTimestamp'> },
): boolean {
  return metadata.deletionTimestamp === undefined && leaving !== true;
}

/** @throws TailcastError `CONTROL_FAILED` when the tailnet is not known */
export async function controlOf(
  { tailnets }: ReconcilerDeps,
  name: string,
  signal: AbortSignal,
): Promise<TailnetControl> {
  const answer = await tailnets.of(name, signal);
  if (answer.kind === 'gone') throw new TailcastError('CONTROL_FAILED', answer.message);
  return answer.control;
}

/** A resource with a finalizer of the operator. */
type Finalized = Pick<Managed, 'kind' | 'finalizer'> & {
  readonly metadata: Pick<Managed['metadata'], 'namespace' | 'name' | 'uid' | 'finalizers'>;
};

/** Adds the finalizer. Reads the resource first, because the given one may be old. */
export async function addFinalizer(
  { client }: Pick<ReconcilerDeps, 'client'>,
  { kind, finalizer, metadata }: Finalized,
  signal: AbortSignal,
): Promise<void> {
  if (metadata.finalizers.includes(finalizer)) return;
  const { namespace, name, uid } = metadata;
  const object = await client.get(kind, { namespace, name }, signal);
  const { resourceVersion, finalizers = [] } = object?.metadata ?? {};
  if (finalizers.includes(finalizer)) return;
  // The uid and the version make this fail for a resource that was deleted or changed meanwhile.
  const body = { metadata: { uid, resourceVersion, finalizers: [...finalizers, finalizer] } };
  await client.patch(kind, { namespace, name }, { kind: 'merge', body }, signal);
}

/** Removes the finalizer. Does nothing if the resource is gone. */
export async function removeFinalizer(
  { client }: Pick<ReconcilerDeps, 'client'>,
  { kind, finalizer, metadata: { namespace, name, uid } }: Finalized,
  signal: AbortSignal,
): Promise<void> {
  const object = await client.get(kind, { namespace, name }, signal);
  if (object === undefined || object.metadata.uid !== uid) return;
  const { resourceVersion, finalizers = [] } = object.metadata;
  const body = { metadata: { resourceVersion, finalizers: finalizers.filter((one) => one !== finalizer) } };
  await client.patch(kind, { namespace, name }, { kind: 'merge', body }, signal);
}

/**
 * A resource that is being deleted, or asks for nothing of ours any more: nodes first, then the finalizer.
 *
 * @param also what else must leave the tailnet, after the nodes.
 * @returns when to look again; undefined when nothing is left to do.
 */
export async function finish(
  deps: ReconcilerDeps,
  managed: Managed,
  signal: AbortSignal,
  also: (control: TailnetControl) => Promise<void> = () => Promise.resolve(),
): Promise<number | undefined> {
  const { client, tailnets, clock, options } = deps;
  const { kind, finalizer, group } = managed;
  const { namespace, name, uid, finalizers, deletionTimestamp } = managed.metadata;
  if (!finalizers.includes(finalizer)) return undefined;
  const tailnet = await tailnets.of(managed.tailnet, signal);
  const observed = await observe(client, group, options.namespace, signal);
  // One that stays has no time from which to count: its pods are waited for.
  const waitForPods =
    deletionTimestamp === undefined || clock.now() - Date.parse(deletionTimestamp) < POD_PATIENCE_MS;
  const control = tailnet.kind === 'found' ? tailnet.control : undefined;
  // What has its resource as owner goes with it, where that goes.
  const goWithResource = group.owned && deletionTimestamp !== undefined;
  const result = await removeAll(deps, group, observed, { control, waitForPods, goWithResource }, signal);
  if (result.kind === 'waiting') return SHORT_MS;
  if (control !== undefined) await also(control);
  if (tailnet.kind === 'gone' && result.left.length > 0) {
    const message = `${tailnet.message}, so these nodes could not be removed from it: ${result.left.join(', ')}`;
    const reason = `${kind.kind}DevicesLeft`;
    await deps.events.record({ kind, namespace, name, uid }, { type: 'Warning', reason, message }, signal);
  }
  await releaseNames(deps, { kind, metadata: managed.metadata, tailnet: managed.tailnet, names: [] }, signal);
  await removeFinalizer(deps, managed, signal);
  deps.log.info({ kind: kind.kind, namespace, name }, 'resource removed');
  return undefined;
}

/** Keys of nodes that have not joined are looked at again: they end, or turn out to be used up. */
export function nextLook(nodes: readonly ReplicaNode[], nowMs: number): number | undefined {
  const times = nodes.flatMap(({ stored, deliver }) => {
    if (deliver === undefined || stored?.expiresAtMs === undefined) return [];
    const madeAtMs = stored.expiresAtMs - KEY_LIFETIME_MS;
    return [Math.max(nowMs + 60_000, madeAtMs + SPENT_AFTER_MS)];
  });
  return times.length === 0 ? undefined : Math.min(...times) - nowMs;
}

/** RFC 3339 with seconds, as Kubernetes writes times. */
export function timeOf(clock: Clock): string {
  return new Date(clock.now()).toISOString().replace(/\.\d+Z$/, 'Z');
}
