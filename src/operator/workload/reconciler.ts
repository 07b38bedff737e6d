/** What happens to every kind of resource: a finalizer comes first, and the nodes go before it does. Effects. */
import { TailcastError, errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { TailnetControl } from '../auth-keys.ts';
import type { Clock } from '../clock.ts';
import type { EventRecorder } from '../event-recorder.ts';
import { type KubeClient, KubeRefusal } from '../kube-client.ts';
import type { ResourceKind, KubeObject, ObjectReference } from '../kube-object.ts';
import type { ObjectCache } from '../object-cache.ts';
import type { OperatorMetrics } from '../operator-metrics.ts';
import type { Tailnets } from '../tailnets.ts';
import { removeAll } from './cleanup.ts';
import { KEY_LIFETIME_MS, SPENT_AFTER_MS, type KeyKeeper, type ReplicaNode } from './keys.ts';
import { releaseNames, claimNames, type NameClaim } from './names.ts';
import { observe, type Observed } from './observe.ts';
import type { TagPolicy } from './tags.ts';
import type { NodeGroup, SpecOptions } from './workload.ts';

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
async function controlOf(
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
async function finish(
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

/** The frame of one pass over one resource, whatever its kind: find it, deploy it or take it down, say what came of it. */

/** What a pass goes by. */
export interface Observation {
  /** Of the resource's tailnet. */
  readonly control: TailnetControl;
  /** In the cluster. */
  readonly observed: Observed;
}

/** What a kind of resource brings to the frame. */
export interface ReconcilerSpec<Resource> {
  readonly kind: ResourceKind;
  /** Uids of those that are deployed: a metric. */
  readonly deployed: Set<string>;
  /** @returns undefined when it is none of ours */
  parse(object: KubeObject): Resource | undefined;
  /** @returns undefined when there is nothing of ours about it after all */
  managed(resource: Resource, signal: AbortSignal): Managed | undefined | Promise<Managed | undefined>;
  /** Whether it asks for nodes. Default: always. One that does no longer is rid of them, and of our finalizer. */
  wants?(resource: Resource, signal: AbortSignal): boolean | Promise<boolean>;
  /**
   * What we said in a resource that stays and asks for nothing any more is taken back.
   *
   * @returns whether there was anything, so that the resource has changed
   */
  release?(resource: Resource, managed: Managed, signal: AbortSignal): Promise<boolean>;
  /** Names that its nodes need in the tailnet; none while the resource is invalid. */
  names(resource: Resource, managed: Managed): readonly string[];
  /** True if its nodes are gateways or recorders, whose tags others may not have. Default: false. */
  readonly isTrusted?: boolean;
  /** @returns when to look again, as `Reconciler` does */
  deploy(
    resource: Resource,
    managed: Managed,
    found: Observation,
    signal: AbortSignal,
  ): Promise<number | undefined>;
  /** Says in the status that the resource is not ready. */
  notReady(resource: Resource, reason: FailureReason, message: string, signal: AbortSignal): Promise<void>;
  /** What else must leave the tailnet after the nodes of a resource that is being deleted. */
  removeMore?(managed: Managed, control: TailnetControl, signal: AbortSignal): Promise<void>;
}

export function createReconciler<Resource>(deps: ReconcilerDeps, pass: ReconcilerSpec<Resource>): Reconciler {
  /** Uids by name, to forget what is known of a resource that is gone. */
  const uids = new Map<string, string>();

  function forget(name: string): void {
    const uid = uids.get(name);
    if (uid === undefined) return;
    uids.delete(name);
    pass.deployed.delete(uid);
    deps.keys.forget(uid);
  }

  async function deploy(
    resource: Resource,
    managed: Managed,
    signal: AbortSignal,
  ): Promise<number | undefined> {
    let control: TailnetControl;
    try {
      control = await controlOf(deps, managed.tailnet, signal);
    } catch (error) {
      await pass.notReady(resource, 'TailnetUnavailable', errorText(error), signal);
      throw error;
    }
    const names = pass.names(resource, managed);
    const { kind, metadata, tailnet } = managed;
    const claim: NameClaim = { kind, metadata, tailnet, names };
    try {
      const refusal = await refusalOf(deps, managed, claim, pass.isTrusted === true, signal);
      if (refusal !== undefined) {
        const { reason, message } = refusal;
        await warn(deps, managed, { reason: `${kind.kind}${reason}`, message }, signal);
        await pass.notReady(resource, reason, message, signal);
        return REFUSED_AGAIN_MS;
      }
      await addFinalizer(deps, managed, signal);
      const observed = await observe(deps.client, managed.group, deps.options.namespace, signal);
      const again = await pass.deploy(resource, managed, { control, observed }, signal);
      if (names.length > 0) await releaseNames(deps, claim, signal);
      return again;
    } catch (error) {
      const say = (reason: FailureReason, message: string): Promise<void> =>
        pass.notReady(resource, reason, message, signal);
      if (!signal.aborted) await tellFailure(deps, managed, error, say, signal);
      throw error;
    }
  }

  return {
    async reconcile(name, signal) {
      const object = await deps.client.get(pass.kind, referenceOf(name), signal);
      const resource = object === undefined ? undefined : pass.parse(object);
      if (resource === undefined) {
        forget(name);
        return undefined;
      }
      const managed = await pass.managed(resource, signal);
      if (managed === undefined) return undefined;
      const { uid, deletionTimestamp } = managed.metadata;
      if (uids.get(name) !== uid) forget(name);
      uids.set(name, uid);
      const stays = deletionTimestamp === undefined;
      if (stays && deps.leaving !== true && (await pass.wants?.(resource, signal)) !== false)
        return deploy(resource, managed, signal);
      if (stays && (await pass.release?.(resource, managed, signal)) === true) return SHORT_MS;
      const again = await finish(deps, managed, signal, (control) =>
        Promise.resolve(pass.removeMore?.(managed, control, signal)),
      );
      if (again === undefined) forget(name);
      return again;
    },
  };
}

/** Why the nodes of a resource may not be made, before anything is made. */
async function refusalOf(
  deps: ReconcilerDeps,
  { metadata, group }: Managed,
  claim: NameClaim,
  isTrusted: boolean,
  signal: AbortSignal,
): Promise<{ readonly reason: 'NameTaken' | 'TagsNotAllowed'; readonly message: string } | undefined> {
  if (claim.names.length === 0) return undefined;
  const place = { namespace: metadata.namespace, tags: group.tags };
  const tags = isTrusted ? undefined : await deps.tags.problemOf(place, signal);
  if (tags !== undefined) return { reason: 'TagsNotAllowed', message: tags };
  const taken = await claimNames(deps, claim, signal);
  return taken === undefined ? undefined : { reason: 'NameTaken', message: taken };
}

/** What an event or a status is about. */
export interface EventTarget {
  readonly kind: ResourceKind;
  readonly metadata: Pick<Managed['metadata'], 'namespace' | 'name' | 'uid'>;
}

/** Names have no slash. */
function referenceOf(name: string): ObjectReference {
  const [first = '', second] = name.split('/');
  return second === undefined ? { name: first } : { namespace: first, name: second };
}

/** An event on the resource. */
export function warn(
  { events }: Pick<ReconcilerDeps, 'events'>,
  { kind, metadata: { namespace, name, uid } }: EventTarget,
  { reason, message }: { readonly reason: string; readonly message: string },
  signal: AbortSignal,
): Promise<void> {
  return events.record({ kind, namespace, name, uid }, { type: 'Warning', reason, message }, signal);
}

/** @param status undefined: nothing changed. The uid keeps it off a resource that was made anew under the same name. */
export async function writeStatus(
  { client }: Pick<ReconcilerDeps, 'client'>,
  { kind, metadata: { namespace, name, uid } }: EventTarget,
  status: object | undefined,
  signal: AbortSignal,
): Promise<void> {
  if (status === undefined) return;
  const body = { metadata: { uid }, status };
  await client.patch(kind, { namespace, name, subresource: 'status' }, { kind: 'merge', body }, signal);
}

/** Why a resource is not ready, behind the name of its kind. */
export type FailureReason =
  | 'TailnetUnavailable'
  | 'Creating'
  | 'CreationFailed'
  | 'NameTaken'
  | 'TagsNotAllowed';

/**
 * Says in event and status that a pass failed. Somebody else's write in between is tried again without an event.
 *
 * @param report writes the status; that it fails as well is only logged.
 */
async function tellFailure(
  deps: ReconcilerDeps,
  managed: EventTarget,
  error: unknown,
  report: (reason: FailureReason, message: string) => Promise<void>,
  signal: AbortSignal,
): Promise<void> {
  const { kind } = managed.kind;
  const conflict = error instanceof KubeRefusal && error.conflict;
  const reason = conflict ? 'Creating' : 'CreationFailed';
  const message = `${conflict ? 'optimistic lock error, retrying' : `failed creating ${kind}`}: ${errorText(error)}`;
  if (!conflict) await warn(deps, managed, { reason: `${kind}${reason}`, message }, signal);
  try {
    await report(reason, message);
  } catch (statusError) {
    deps.log.warn({ kind, name: managed.metadata.name, error: errorText(statusError) }, 'status not written');
  }
}

/** A condition that does not hold. */
export function failed<Reason extends string>(
  reason: Reason,
  message: string,
): { readonly ready: false; readonly reason: Reason; readonly message: string } {
  return { ready: false, reason, message };
}
