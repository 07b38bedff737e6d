/** The frame of one pass over one resource, whatever its kind: find it, deploy it or take it down, say what came of it. */
import { errorText } from '../../errors.ts';
import type { TailnetControl } from '../auth-keys.ts';
import { KubeRefusal } from '../kube-client.ts';
import type { KubeObject, ObjectReference, ResourceKind } from '../kube-object.ts';
import {
  addFinalizer,
  controlOf,
  finish,
  REFUSED_AGAIN_MS,
  SHORT_MS,
  type Managed,
  type Reconciler,
  type ReconcilerDeps,
} from './lifecycle.ts';
import { claimNames, releaseNames, type NameClaim } from './names.ts';
import { observe, type Observed } from './observe.ts';

/** What a pass goes by. */
export interface Found {
  /** Of the resource's tailnet. */
  readonly control: TailnetControl;
  /** In the cluster. */
  readonly observed: Observed;
}

/** What a kind of resource brings to the frame. */
export interface PassOf<Resource> {
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
    found: Found,
    signal: AbortSignal,
  ): Promise<number | undefined>;
  /** Says in the status that the resource is not ready. */
  notReady(resource: Resource, reason: FailureReason, message: string, signal: AbortSignal): Promise<void>;
  /** What else must leave the tailnet after the nodes of a resource that is being deleted. */
  removeMore?(managed: Managed, control: TailnetControl, signal: AbortSignal): Promise<void>;
}

export function createReconciler<Resource>(deps: ReconcilerDeps, pass: PassOf<Resource>): Reconciler {
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
export interface Told {
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
  { kind, metadata: { namespace, name, uid } }: Told,
  { reason, message }: { readonly reason: string; readonly message: string },
  signal: AbortSignal,
): Promise<void> {
  return events.record({ kind, namespace, name, uid }, { type: 'Warning', reason, message }, signal);
}

/** @param status undefined: nothing changed. The uid keeps it off a resource that was made anew under the same name. */
export async function writeStatus(
  { client }: Pick<ReconcilerDeps, 'client'>,
  { kind, metadata: { namespace, name, uid } }: Told,
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
  managed: Told,
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
