/** Whether an object in the cluster is what we want it to be already, so that nothing needs to be written. Pure. */
import { createHash } from 'node:crypto';
import type { DesiredObject, KubeObject } from '../kube-object.ts';

/** On each object that is applied: what we stated, so that something we state no longer is noticed. */
const APPLIED = 'tailcast.dev/applied';

/** The object with a digest of what it states. */
export function withDigest(desired: DesiredObject): DesiredObject {
  const annotations = { ...desired.metadata.annotations, [APPLIED]: digestOf(desired) };
  return { ...desired, metadata: { ...desired.metadata, annotations } };
}

/**
 * Whether we have applied just this before and everything that it states is still so. Values that the API server writes
 * in another way than we do count as changed, which costs a request and nothing else.
 */
export function isUnchanged(existing: KubeObject, desired: DesiredObject): boolean {
  return existing.metadata.annotations?.[APPLIED] === digestOf(desired) && holds(existing, desired);
}

function digestOf(desired: DesiredObject): string {
  // The order of members is that of our own code: another one costs a request.
  return createHash('sha256').update(JSON.stringify(desired)).digest('base64url').slice(0, 22);
}

/** Whether everything that is stated is there; what is not stated may be anything. */
function holds(existing: unknown, stated: unknown): boolean {
  if (stated === undefined) return true;
  if (isEmpty(stated)) return isEmpty(existing);
  if (Array.isArray(stated)) {
    return (
      Array.isArray(existing) &&
      existing.length === stated.length &&
      stated.every((item, index) => holds(existing[index], item))
    );
  }
  if (typeof stated !== 'object' || stated === null) return existing === stated;
  if (typeof existing !== 'object' || existing === null) return false;
  const members = new Map(Object.entries(existing));
  return Object.entries(stated).every(([key, value]) => holds(members.get(key), value));
}

/** The API server leaves these out. */
function isEmpty(value: unknown): boolean {
  if (value === undefined || value === null || value === '' || value === false || value === 0) return true;
  return typeof value === 'object' && Object.keys(value).length === 0;
}
