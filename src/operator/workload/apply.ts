/**
 * Writes objects by server-side apply. Most objects are written only if they differ from the objects in the cluster.
 */
import { hash } from 'node:crypto';
import { TailcastError } from '../../errors.ts';
import { FIELD_MANAGER, type KubeClient } from '../kube-client.ts';
import {
  KINDS,
  knownKindOf,
  type DesiredObject,
  type KubeObject,
  type ManagedFields,
} from '../kube-object.ts';
import { belongsTo, type NodeGroup, type ObjectOwner } from './workload.ts';

/**
 * Annotation with a digest of the applied object. If an update only removes fields, the existing object contains all
 * desired fields, and only the digest shows the change.
 */
const APPLIED = 'tailcast.dev/applied';

/**
 * Applies an object, unless the object in the cluster is already equal.
 *
 * @param group if set, an existing object must belong to this resource
 * @returns the object in the cluster
 * @throws TailcastError `OBJECT_NOT_OURS`; KubeRefusal.
 */
export async function applyChanged(
  client: Pick<KubeClient, 'apply'>,
  desired: DesiredObject,
  existing: KubeObject | undefined,
  group?: ObjectOwner,
): Promise<KubeObject> {
  if (group !== undefined) assertOwned(group, existing);
  if (existing !== undefined && isUnchanged(existing, desired)) return existing;
  return client.apply(withDigest(desired));
}

/** @throws TailcastError `OBJECT_NOT_OURS` if the object exists and does not belong to the resource */
export function assertOwned(group: ObjectOwner, existing: KubeObject | undefined): void {
  if (existing === undefined || belongsTo(group, existing)) return;
  const { namespace, name } = existing.metadata;
  throw new TailcastError(
    'OBJECT_NOT_OURS',
    `${existing.kind} ${namespace ?? ''}/${name} exists and does not belong to ${group.kind} "${group.name}"`,
  );
}

/** Returns the object with the digest of its content. */
function withDigest(desired: DesiredObject): DesiredObject {
  const annotations = { ...desired.metadata.annotations, [APPLIED]: digestOf(desired) };
  return { ...desired, metadata: { ...desired.metadata, annotations } };
}

/**
 * True if the operator has applied this object before, and its fields have not changed since then. If the API server
 * has normalized a value, the object counts as changed, and the operator applies it again.
 */
function isUnchanged(existing: KubeObject, desired: DesiredObject): boolean {
  return existing.metadata.annotations?.[APPLIED] === digestOf(desired) && hasFields(existing, desired);
}

function digestOf(desired: DesiredObject): string {
  return hash('sha256', JSON.stringify(desired), 'base64url').slice(0, 22);
}

/** True if the existing value contains all fields of the desired value. */
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

/** Returns true for empty values, which the API server omits. */
function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === '' || value === false || value === 0) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}

/**
 * Transfers the managed fields of another operator to this operator, as in client-go's csaupgrade, and returns the
 * result. The next server-side apply then also removes fields that only the other operator has set. Returns undefined
 * if this operator has an entry already, or if no other operator has one.
 */
export function adoptedFields(
  object: KubeObject,
  fieldManager: string,
): readonly ManagedFields[] | undefined {
  const entries = object.metadata.managedFields ?? [];
  if (entries.some((entry) => entry.manager === fieldManager && entry.operation === 'Apply'))
    return undefined;
  const theirs = entries.filter(isOperators);
  if (theirs.length === 0) return undefined;
  const [first, ...more] = theirs;
  const merged: ManagedFields = {
    ...first,
    manager: fieldManager,
    operation: 'Apply',
    fieldsV1: more.reduce((fields, entry) => union(fields, entry.fieldsV1 ?? {}), first?.fieldsV1 ?? {}),
  };
  return [merged, ...entries.filter((entry) => !isOperators(entry))];
}

/**
 * True if another operator wrote this entry of the managed fields. Every program except kubectl that wrote the complete
 * object counts as an operator.
 */
function isOperators({ manager, operation, subresource }: ManagedFields): boolean {
  return (
    operation === 'Update' &&
    (subresource === undefined || subresource === '') &&
    manager?.startsWith('kubectl') !== true
  );
}

type FieldSet = Readonly<Record<string, unknown>>;

/** Merges two field sets, which are nested records with empty leaves (structured-merge-diff, fieldpath). */
function union(left: FieldSet, right: FieldSet): Record<string, unknown> {
  const merged = new Map(Object.entries(left));
  for (const [path, fields] of Object.entries(right)) {
    const known = merged.get(path);
    merged.set(path, isFieldSet(known) && isFieldSet(fields) ? union(known, fields) : fields);
  }
  return Object.fromEntries(merged);
}

function isFieldSet(value: unknown): value is FieldSet {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/**
 * Applies an object of a group, and takes over the fields that another operator has set in it.
 *
 * @throws TailcastError `OBJECT_NOT_OURS`; KubeRefusal.
 */
export async function applyOwned(
  { client }: { readonly client: Pick<KubeClient, 'apply' | 'patch'> },
  group: NodeGroup,
  desired: DesiredObject,
  existing: KubeObject | undefined,
): Promise<void> {
  assertOwned(group, existing);
  // A cluster may have thousands of proxies, so their unchanged objects are not written again.
  if (!group.owned && existing !== undefined && isUnchanged(existing, desired)) return;
  const kind = knownKindOf(desired);
  // The managed fields of Secrets are not transferred, because tailscaled writes its own fields into Secrets.
  const managedFields =
    existing === undefined || kind === KINDS.secret ? undefined : adoptedFields(existing, FIELD_MANAGER);
  if (existing !== undefined && managedFields !== undefined) {
    const { namespace, name, resourceVersion } = existing.metadata;
    const body = [
      { op: 'test', path: '/metadata/resourceVersion', value: resourceVersion },
      { op: 'replace', path: '/metadata/managedFields', value: managedFields },
    ];
    await client.patch(kind, { namespace, name }, { kind: 'json', body });
  }
  await client.apply(group.owned ? desired : withDigest(desired));
}
