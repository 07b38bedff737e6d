/** Writes objects by server-side apply, and only if they differ from the cluster. */
import { createHash } from 'node:crypto';
import { TailcastError } from '../../errors.ts';
import type { KubeClient } from '../kube-client.ts';
import type { DesiredObject, KubeObject } from '../kube-object.ts';
import { belongsTo, type NodeGroup } from './node-group.ts';

/** Annotation with a digest of the applied object, which shows that a field has been removed from it. */
const APPLIED = 'tailcast.dev/applied';

/**
 * Applies an object unless the cluster has it already.
 *
 * @param group if given, the existing object must belong to it.
 * @returns the object in the cluster
 * @throws TailcastError `OBJECT_NOT_OURS`; KubeRefusal.
 */
export async function applyChanged(
  client: Pick<KubeClient, 'apply'>,
  desired: DesiredObject,
  existing: KubeObject | undefined,
  signal: AbortSignal,
  group?: NodeGroup,
): Promise<KubeObject> {
  if (group !== undefined) assertOwned(group, existing);
  if (existing !== undefined && isUnchanged(existing, desired)) return existing;
  return client.apply(withDigest(desired), signal);
}

/** @throws TailcastError `OBJECT_NOT_OURS` if the object exists and does not belong to the group */
export function assertOwned(group: NodeGroup, existing: KubeObject | undefined): void {
  if (existing === undefined || belongsTo(group, existing)) return;
  const { namespace, name } = existing.metadata;
  throw new TailcastError(
    'OBJECT_NOT_OURS',
    `${existing.kind} ${namespace ?? ''}/${name} exists and does not belong to ${group.kind} "${group.name}"`,
  );
}

/** Returns the object with the digest of its content. */
export function withDigest(desired: DesiredObject): DesiredObject {
  const annotations = { ...desired.metadata.annotations, [APPLIED]: digestOf(desired) };
  return { ...desired, metadata: { ...desired.metadata, annotations } };
}

/**
 * True if the operator has applied the same object and its fields have not changed since. A value that the API server
 * normalizes counts as a change, which costs one request.
 */
export function isUnchanged(existing: KubeObject, desired: DesiredObject): boolean {
  return existing.metadata.annotations?.[APPLIED] === digestOf(desired) && hasFields(existing, desired);
}

function digestOf(desired: DesiredObject): string {
  return createHash('sha256').update(JSON.stringify(desired)).digest('base64url').slice(0, 22);
}

/** True if the existing value has all fields of the desired one. */
function hasFields(existing: unknown, desired: unknown): boolean {
  if (desired === undefined) return true;
  if (isEmpty(desired)) return isEmpty(existing);
  if (Array.isArray(desired)) {
    return (
      Array.isArray(existing) &&
      existing.length === desired.length &&
      desired.every((item, index) => hasFields(existing[index], item))
    );
  }
  if (typeof desired !== 'object' || desired === null) return existing === desired;
  if (typeof existing !== 'object' || existing === null) return false;
  const members = new Map(Object.entries(existing));
  return Object.entries(desired).every(([key, value]) => hasFields(members.get(key), value));
}

/** True for values that the API server omits. */
function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === '' || value === false || value === 0) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}
