/**
 * Common lifecycle of all resources that have nodes: adds the finalizer before nodes are created, and removes it after
 * the nodes are gone. Effects.
 */
import { TailcastError, errorText } from '../../errors.ts';
import type { TailnetControl } from '../auth-keys.ts';
import { timeOf, type Runtime } from '../clock.ts';
import type { EventRecorder, EventTarget } from '../event-recorder.ts';
import { type KubeClient, KubeRefusal } from '../kube-client.ts';
import type { ResourceKind, KubeObject, ObjectReference } from '../kube-object.ts';
import type { ObjectCache } from '../object-cache.ts';
import type { OperatorMetrics } from '../operator-metrics.ts';
import type { Tailnets } from '../tailnet/tailnets.ts';
import { removeAll } from './cleanup.ts';
import { KEY_LIFETIME_MS, SPENT_AFTER_MS, type KeyKeeper, type ReplicaNode } from './keys.ts';
import { releaseNames, claimNames, type NameClaim } from './names.ts';
import { observe, type Observed } from './observe.ts';
import { sameJson, withConditions, type Condition, type Verdicts } from './status.ts';
import type { TagPolicy } from './tags.ts';
import type { NodeGroup, SpecOptions } from './workload.ts';

export interface ReconcilerDeps extends Omit<Runtime, 'random'> {
  readonly client: Omit<KubeClient, 'watch'>;
  readonly cache: ObjectCache;
  readonly tailnets: Tailnets;
  readonly options: SpecOptions;
  readonly keys: Pick<KeyKeeper, 'ensure' | 'forget'>;
  readonly tags: TagPolicy;
  readonly events: EventRecorder;
  readonly metrics: OperatorMetrics;
  /** True if the operator is being uninstalled: reconcilers then delete all objects. */
  readonly leaving?: boolean;
}

export interface Reconciler {
  /**
   * @param name name of the resource, or `<namespace>/<name>`
   * @returns time until the next reconciliation in milliseconds; undefined if only a change starts it
   * @throws the error of a failed reconciliation after it was written to the status; the caller retries later
   */
  reconcile(name: string): Promise<number | undefined>;
}

/** Common properties of a resource of any kind. */
export interface Managed {
  readonly kind: ResourceKind;
  readonly finalizer: string;
  readonly group: NodeGroup;
  /** Name of the `Tailnet` resource; empty for the operator's tailnet. */
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

/** Interval between reconciliations while pods are stopping, in milliseconds. */
export const SHORT_MS = 1000;
/** Interval in milliseconds between reconciliations of a resource whose names or tags the operator refuses. */
export const REFUSED_RETRY_MS = 60_000;
/**
 * Maximum time in milliseconds that the operator waits for the pods of a deleted resource to stop. Pods on an
 * unreachable machine never stop.
 */
const POD_PATIENCE_MS = 5 * 60_000;

/** True if the resource is not being deleted, and the operator is not being uninstalled. */
export function isActive(
  { leaving }: Pick<ReconcilerDeps, 'leaving'>,
  { metadata }: { readonly metadata: Pick<Managed['metadata'], 'deletionTimestamp'> },
): boolean {
  return metadata.deletionTimestamp === undefined && leaving !== true;
}

/** @throws TailcastError `CONTROL_FAILED` for an unknown tailnet */
async function controlOf({ tailnets }: ReconcilerDeps, name: string): Promise<TailnetControl> {
  const answer = await tailnets.of(name);
  if (answer.kind === 'gone') throw new TailcastError('CONTROL_FAILED', answer.message);
  return answer.control;
}

/** A resource, and the finalizer to add or remove. */
type Finalized = Pick<Managed, 'kind' | 'finalizer'> & {
  readonly metadata: Pick<Managed['metadata'], 'namespace' | 'name' | 'uid' | 'finalizers'>;
};

/** Adds the finalizer. The resource is read first, because the given object may be outdated. */
export async function addFinalizer(
  { client }: Pick<ReconcilerDeps, 'client'>,
  { kind, finalizer, metadata }: Finalized,
): Promise<void> {
  if (metadata.finalizers.includes(finalizer)) return;
  const { namespace, name, uid } = metadata;
  const object = await client.get(kind, { namespace, name });
  const { resourceVersion, finalizers = [] } = object?.metadata ?? {};
  if (finalizers.includes(finalizer)) return;
  // Because of the uid and the version, the write fails if the resource was deleted or changed in the meantime.
  const body = { metadata: { uid, resourceVersion, finalizers: [...finalizers, finalizer] } };
  await client.patch(kind, { namespace, name }, { kind: 'merge', body });
}

/** Removes the finalizer. Does nothing if the resource is gone. */
export async function removeFinalizer(
  { client }: Pick<ReconcilerDeps, 'client'>,
  { kind, finalizer, metadata: { namespace, name, uid } }: Finalized,
): Promise<void> {
  const object = await client.get(kind, { namespace, name });
  if (object === undefined || object.metadata.uid !== uid) return;
  const { resourceVersion, finalizers = [] } = object.metadata;
  const body = { metadata: { resourceVersion, finalizers: finalizers.filter((one) => one !== finalizer) } };
  await client.patch(kind, { namespace, name }, { kind: 'merge', body });
}

/**
 * Handles a resource that is being deleted or no longer needs nodes: removes its nodes, then its finalizer.
 *
 * @param also function that removes other objects from the tailnet, called after the removal of the nodes
 * @returns time until the next reconciliation, in milliseconds; undefined if no work is left
 */
async function finish(
  deps: ReconcilerDeps,
  managed: Managed,
  also: (control: TailnetControl) => Promise<void> = () => Promise.resolve(),
): Promise<number | undefined> {
  const { client, tailnets, clock, options } = deps;
  const { kind, finalizer, group } = managed;
  const { namespace, name, finalizers, deletionTimestamp } = managed.metadata;
  if (!finalizers.includes(finalizer)) return undefined;
  const tailnet = await tailnets.of(managed.tailnet);
  const observed = await observe(client, group, options.namespace);
  // If the resource is not being deleted, it has no deletion time, so the wait for its pods has no limit.
  const waitForPods =
    deletionTimestamp === undefined || clock.now() - Date.parse(deletionTimestamp) < POD_PATIENCE_MS;
  const control = tailnet.kind === 'found' ? tailnet.control : undefined;
  // The garbage collector deletes owned objects together with the resource.
  const goWithResource = group.owned && deletionTimestamp !== undefined;
  const result = await removeAll(deps, group, observed, { control, waitForPods, goWithResource });
  if (result.kind === 'waiting') return SHORT_MS;
  if (control !== undefined) await also(control);
  if (tailnet.kind === 'gone' && result.left.length > 0) {
    const message = `${tailnet.message}, so these nodes could not be removed from it: ${result.left.join(', ')}`;
    const reason = `${kind.kind}DevicesLeft`;
    await deps.events.warn(managed, { reason, message });
  }
  await releaseNames(deps, { kind, metadata: managed.metadata, tailnet: managed.tailnet, names: [] });
  await removeFinalizer(deps, managed);
  deps.log.info({ kind: kind.kind, namespace, name }, 'resource removed');
  return undefined;
}

/**
 * Returns the time until the keys of nodes that have not joined must be checked again. By then, a key may have expired,
 * or a node may have used it.
 */
export function nextKeyCheckMs(nodes: readonly ReplicaNode[], nowMs: number): number | undefined {
  const times = nodes.flatMap(({ stored, deliver }) => {
    if (deliver === undefined || stored?.expiresAtMs === undefined) return [];
    const madeAtMs = stored.expiresAtMs - KEY_LIFETIME_MS;
    return [Math.max(nowMs + 60_000, madeAtMs + SPENT_AFTER_MS)];
  });
  return times.length === 0 ? undefined : Math.min(...times) - nowMs;
}

/** Observed state at the start of a reconciliation. */
export interface Observation {
  /** Control server of the resource's tailnet. */
  readonly control: TailnetControl;
  /** Existing objects of the group in the cluster. */
  readonly observed: Observed;
}

/** The parts of a reconciler that depend on the kind of resource. */
export interface ReconcilerSpec<Resource> {
  readonly kind: ResourceKind;
  /** Uids of deployed resources. A metric shows their number. */
  readonly deployed: Set<string>;
  /** @returns undefined if the operator does not handle the object */
  parse(object: KubeObject): Resource | undefined;
  /** @returns undefined if the operator does not handle the resource */
  managed(resource: Resource): Managed | undefined | Promise<Managed | undefined>;
  /**
   * Returns true if the resource needs nodes. If it returns false, the nodes and the finalizer of the resource are
   * removed. Default: true.
   */
  needsNodes?(resource: Resource): boolean | Promise<boolean>;
  /**
   * Clears the operator's status of a resource that needs no nodes any more.
   *
   * @returns true if the resource has changed
   */
  release?(resource: Resource, managed: Managed): Promise<boolean>;
  /** Returns the names that the nodes of a resource use in the tailnet; empty while the resource is invalid. */
  names(resource: Resource, managed: Managed): readonly string[];
  /**
   * True if the nodes of these resources are gateways or recorders. Other resources must not use the tags of these
   * nodes. Default: false.
   */
  readonly isTrusted?: boolean;
  /** @returns time until the next reconciliation, as in `Reconciler` */
  deploy(resource: Resource, managed: Managed, found: Observation): Promise<number | undefined>;
  /** Writes the reason why a resource is not ready to the status of the resource. */
  notReady(resource: Resource, reason: FailureReason, message: string): Promise<unknown>;
  /**
   * Removes from the tailnet everything else that belongs to a deleted resource. Called after the removal of the nodes.
   */
  removeMore?(managed: Managed, control: TailnetControl): Promise<void>;
}

/** Creates the reconciler of one kind of resource. */
export function createReconciler<Resource>(deps: ReconcilerDeps, pass: ReconcilerSpec<Resource>): Reconciler {
  /**
   * Uids of resources. Map keys: name of the resource. After the deletion of a resource, the reconciler discards its
   * state with this uid.
   */
  const uids = new Map<string, string>();

  function forget(name: string): void {
    const uid = uids.get(name);
    if (uid === undefined) return;
    uids.delete(name);
    pass.deployed.delete(uid);
    deps.keys.forget(uid);
  }

  async function deploy(resource: Resource, managed: Managed): Promise<number | undefined> {
    let control: TailnetControl;
    try {
      control = await controlOf(deps, managed.tailnet);
    } catch (error) {
      await pass.notReady(resource, 'TailnetUnavailable', errorText(error));
      throw error;
    }
    const names = pass.names(resource, managed);
    const { kind, metadata, tailnet } = managed;
    const claim: NameClaim = { kind, metadata, tailnet, names };
    try {
      const refusal = await refusalOf(deps, managed, claim, pass.isTrusted === true);
      if (refusal !== undefined) {
        const { reason, message } = refusal;
        await deps.events.warn(managed, { reason: `${kind.kind}${reason}`, message });
        await pass.notReady(resource, reason, message);
        return REFUSED_RETRY_MS;
      }
      await addFinalizer(deps, managed);
      const observed = await observe(deps.client, managed.group, deps.options.namespace);
      const retryAfterMs = await pass.deploy(resource, managed, { control, observed });
      if (names.length > 0) await releaseNames(deps, claim);
      return retryAfterMs;
    } catch (error) {
      if (!deps.signal.aborted)
        await reportFailure(deps, managed, error, (...problem) => pass.notReady(resource, ...problem));
      throw error;
    }
  }

  return {
    async reconcile(name) {
      const object = await deps.client.get(pass.kind, referenceOf(name));
      const resource = object === undefined ? undefined : pass.parse(object);
      if (resource === undefined) {
        forget(name);
        return undefined;
      }
      const managed = await pass.managed(resource);
      if (managed === undefined) return undefined;
      const { uid, deletionTimestamp } = managed.metadata;
      if (uids.get(name) !== uid) forget(name);
      uids.set(name, uid);
      const isActive = deletionTimestamp === undefined;
      if (isActive && deps.leaving !== true && (await pass.needsNodes?.(resource)) !== false)
        return deploy(resource, managed);
      if (isActive && (await pass.release?.(resource, managed)) === true) return SHORT_MS;
      const retryAfterMs = await finish(deps, managed, (control) =>
        Promise.resolve(pass.removeMore?.(managed, control)),
      );
      if (retryAfterMs === undefined) forget(name);
      return retryAfterMs;
    },
  };
}

/**
 * Checks the tags and claims the names, before any other object is created. Returns the reason why the nodes must not
 * be created, or undefined.
 */
async function refusalOf(
  deps: ReconcilerDeps,
  { metadata, group }: Managed,
  claim: NameClaim,
  isTrusted: boolean,
): Promise<{ readonly reason: 'NameTaken' | 'TagsNotAllowed'; readonly message: string } | undefined> {
  if (claim.names.length === 0) return undefined;
  const place = { namespace: metadata.namespace, tags: group.tags };
  const tags = isTrusted ? undefined : await deps.tags.problemOf(place);
  if (tags !== undefined) return { reason: 'TagsNotAllowed', message: tags };
  const taken = await claimNames(deps, claim);
  return taken === undefined ? undefined : { reason: 'NameTaken', message: taken };
}

/** Parses `<name>` or `<namespace>/<name>`. */
function referenceOf(name: string): ObjectReference {
  const [first = '', second] = name.split('/');
  return second === undefined ? { name: first } : { namespace: first, name: second };
}

/**
 * Maximum number of problems of one resource that get their own events in one reconciliation. The limit is necessary
 * because each event is a request to the API server, and users of a namespace can cause any number of problems.
 */
const MAX_EVENTS = 20;

/**
 * Emits an event for each problem. If there are more problems than `MAX_EVENTS` permits, one further event contains the
 * next problem and the number of omitted ones.
 */
export async function warnOfAll(
  deps: Pick<ReconcilerDeps, 'events'>,
  target: EventTarget,
  problems: readonly { readonly reason: string; readonly message: string }[],
): Promise<void> {
  for (const problem of problems.slice(0, MAX_EVENTS)) await deps.events.warn(target, problem);
  const [first, ...others] = problems.slice(MAX_EVENTS);
  if (first === undefined) return;
  const message = `${first.message}; and ${others.length} more problems`;
  await deps.events.warn(target, { reason: first.reason, message });
}

/**
 * Writes the fields that differ from those in the status of the resource. The uid prevents writes to a new resource
 * with the same name.
 *
 * @param fields undefined keeps a field, and null removes it
 * @returns true if a field differs
 */
export async function writeStatus(
  { client }: Pick<ReconcilerDeps, 'client'>,
  kind: ResourceKind,
  { metadata, status: before }: { readonly metadata: EventTarget['metadata']; readonly status: object },
  fields: object,
): Promise<boolean> {
  const known = new Map<string, unknown>(Object.entries(before));
  const changed = Object.entries(fields).filter(
    ([key, value]) => value !== undefined && !sameJson(value ?? undefined, known.get(key)),
  );
  if (changed.length === 0) return false;
  const { namespace, name, uid } = metadata;
  const body = { metadata: { uid }, status: Object.fromEntries(changed) };
  await client.patch(kind, { namespace, name, subresource: 'status' }, { kind: 'merge', body });
  return true;
}

/** Writes conditions and other fields of the status with {@link writeStatus}. */
export function report(
  deps: Pick<ReconcilerDeps, 'client' | 'clock'>,
  kind: ResourceKind,
  resource: {
    readonly metadata: EventTarget['metadata'] & { readonly generation: number };
    readonly status: { readonly conditions: readonly Condition[] };
  },
  verdicts: Verdicts,
  fields: object = {},
): Promise<boolean> {
  const { metadata, status } = resource;
  const conditions = withConditions(status.conditions, verdicts, metadata.generation, timeOf(deps.clock));
  return writeStatus(deps, kind, resource, { conditions, ...fields });
}

/**
 * Reason why a resource is not ready. In conditions and events, the kind of the resource precedes it, as in
 * `RecorderCreationFailed`.
 */
export type FailureReason =
  | 'TailnetUnavailable'
  | 'Creating'
  | 'CreationFailed'
  | 'NameTaken'
  | 'TagsNotAllowed';

/**
 * Reports a failed reconciliation in an event and the status. A write conflict is reported only in the status, because
 * the retry resolves it.
 *
 * @param notReady writes the status; its own failure is only logged
 */
async function reportFailure(
  deps: ReconcilerDeps,
  managed: EventTarget,
  error: unknown,
  notReady: (reason: FailureReason, message: string) => Promise<unknown>,
): Promise<void> {
  const { kind } = managed.kind;
  const conflict = error instanceof KubeRefusal && error.conflict;
  const reason = conflict ? 'Creating' : 'CreationFailed';
  const message = `${conflict ? 'optimistic lock error, retrying' : `failed creating ${kind}`}: ${errorText(error)}`;
  if (!conflict) await deps.events.warn(managed, { reason: `${kind}${reason}`, message });
  try {
    await notReady(reason, message);
  } catch (statusError) {
    deps.log.warn({ kind, name: managed.metadata.name, error: errorText(statusError) }, 'status not written');
  }
}
