/**
 * The signed record of an access request. A gateway believes only records with its signature, so an object that a
 * person or program wrote into the API server has no effect. The signature covers the uid of the object, so a copy of
 * an object, also in another cluster, is invalid.
 */
import { createHmac, hkdfSync, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import { jsonOrUndefined } from '../wire/json-value.ts';
import type { Identity } from '../tailnet/identity.ts';

const texts = z.array(z.string()).readonly();

const PERSON = z.strictObject({
  kind: z.enum(['user', 'tagged']),
  /** Login name, or name of the tagged node. */
  name: z.string(),
  nodeId: z.string(),
  node: z.string(),
  /** Numeric id of a user. */
  userId: z.string(),
});
/** A caller at the time of a request or decision. */
export type Person = Readonly<z.infer<typeof PERSON>>;

const DECISION = z.strictObject({
  verdict: z.enum(['approved', 'denied', 'revoked']),
  by: PERSON,
  /** Kubernetes groups and tags of the decider at this time. */
  groups: texts,
  tags: texts,
  atMs: z.number(),
  reason: z.string(),
});
export type AccessDecision = Readonly<z.infer<typeof DECISION>>;

const RECORDING = z.discriminatedUnion('mode', [
  z.strictObject({ mode: z.literal('off') }),
  z.strictObject({
    mode: z.enum(['failOpen', 'failClosed']),
    recorders: texts,
    recorderTags: texts,
    tagsOf: z.record(z.string(), texts).exactOptional(),
    events: z.boolean(),
  }),
]);

const RECORD = z.strictObject({
  id: z.string(),
  /** Increases with each change; an older record of the same object is invalid. */
  revision: z.int(),
  state: z.enum(['pending', 'granted', 'denied', 'revoked', 'expired']),
  requester: PERSON,
  groups: texts,
  user: z.string(),
  writes: z.boolean(),
  /** Name of the cluster; empty at a gateway with one cluster. */
  cluster: z.string(),
  namespaces: texts,
  reason: z.string(),
  durationMs: z.number(),
  approvers: z
    .strictObject({ users: texts, groups: texts, tags: texts, count: z.int() })
    .readonly()
    .nullable(),
  createdMs: z.number(),
  /** End of the access if it is granted; otherwise the end of the time for decisions. */
  expiresMs: z.number(),
  decisions: z.array(DECISION.readonly()).readonly(),
  /** Recorders that store the evidence about this request. */
  recording: RECORDING,
  /** The gateway that stores the evidence of the expiry, until a time at which another gateway may do it. */
  expiry: z.strictObject({ claimedBy: z.string(), untilMs: z.number() }).exactOptional(),
});
export type AccessRecord = Readonly<z.infer<typeof RECORD>>;

/** The signed record in the status of an AccessRequest. */
export interface SealedRecord {
  readonly record: string;
  readonly signature: string;
}

/** Signs and checks records with a key that all gateways of a cluster share. */
export interface RecordSeal {
  seal(uid: string, record: AccessRecord): SealedRecord;
  /** @returns undefined for a record that no gateway with this key has signed for this object */
  open(uid: string, name: string, sealed: Partial<SealedRecord>): AccessRecord | undefined;
}

/** @param secret at least 32 random bytes */
export function createRecordSeal(secret: Uint8Array): RecordSeal {
  const key = Buffer.from(hkdfSync('sha256', secret, new Uint8Array(), 'tailcast access request', 32));
  const sign = (uid: string, text: string): Buffer =>
    createHmac('sha256', key).update(`${uid.length}\n${uid}\n${text}`).digest();
  return {
    seal(uid, record) {
      const text = JSON.stringify(record);
      return { record: text, signature: sign(uid, text).toString('base64') };
    },
    open(uid, name, { record: text, signature }) {
      if (text === undefined || signature === undefined) return undefined;
      const given = Buffer.from(signature, 'base64');
      const expected = sign(uid, text);
      if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
      const parsed = RECORD.safeParse(jsonOrUndefined(text));
      return parsed.success && parsed.data.id === name ? parsed.data : undefined;
    },
  };
}

/** The caller as a person in a record. */
export function personOf(identity: Identity): Person {
  const { kind, nodeId, nodeName: node } = identity;
  return kind === 'user'
    ? { kind, name: identity.login, nodeId, node, userId: String(identity.userId) }
    : { kind, name: node, nodeId, node, userId: '' };
}

/** True if two callers may be the same person: the same user, login, or node. */
export function mayBeSamePerson(left: Person, right: Person): boolean {
  if (left.nodeId === right.nodeId || left.name.toLowerCase() === right.name.toLowerCase()) return true;
  return left.userId !== '' && left.userId === right.userId;
}

/** True if this exact caller sent the request: the same node, and the same user or tagged node. */
export function isRequester({ requester }: AccessRecord, identity: Identity): boolean {
  const { kind, name, nodeId, userId } = personOf(identity);
  return (
    requester.kind === kind &&
    requester.nodeId === nodeId &&
    requester.userId === userId &&
    requester.name === name
  );
}
