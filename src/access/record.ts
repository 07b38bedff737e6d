/**
 * The signed record of an access request. A gateway accepts only records that are signed with its key. An AccessRequest
 * object that another program or a person wrote to the API server therefore has no effect. The signature covers the uid
 * of the object. A copy of an object is therefore invalid, even in another cluster.
 */
import { createHmac, hkdfSync, randomInt, timingSafeEqual } from 'node:crypto';
import { z } from 'zod';
import { jsonOrUndefined } from '../wire/json-value.ts';
import type { Identity } from '../tailnet/identity.ts';

const texts = z.array(z.string()).readonly();

const PERSON = z.strictObject({
  kind: z.enum(['user', 'tagged']),
  /** Login name of a user, or name of a tagged node. */
  name: z.string(),
  nodeId: z.string(),
  node: z.string(),
  /** Numeric id of a user; empty for a tagged node. */
  userId: z.string(),
});
/** A caller, as known at the time of the request or decision. */
export type Person = Readonly<z.infer<typeof PERSON>>;

const DECISION = z.strictObject({
  verdict: z.enum(['approved', 'denied', 'revoked']),
  by: PERSON,
  /**
   * Kubernetes groups that the caller had at the time of the decision. Only the groups that later checks need are
   * stored.
   */
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
  /**
   * Number that increases with each change. A record is invalid if the gateway knows another record of the same object
   * with a higher number.
   */
  revision: z.int(),
  state: z.enum(['pending', 'granted', 'denied', 'revoked', 'expired']),
  requester: PERSON,
  groups: texts,
  user: z.string(),
  writes: z.boolean(),
  /** Name of the cluster; empty if the gateway serves only one cluster. */
  cluster: z.string(),
  namespaces: texts,
  /** Reason that the requester typed, or an empty text. */
  reason: z.string(),
  /** Gateway's description of the call that caused the request; empty if the requester sent the request. */
  call: z.string(),
  durationMs: z.number(),
  /** Maximum duration that the requester's rules allowed for this access. */
  maxDurationMs: z.number(),
  approvers: z
    .strictObject({ users: texts, groups: texts, tags: texts, count: z.int() })
    .readonly()
    .nullable(),
  createdMs: z.number(),
  /**
   * Time at which granted access ends; for a pending request, the time until which approvers can decide; for a revoked
   * request, the time until which the revocation blocks other access.
   */
  expiresMs: z.number(),
  decisions: z.array(DECISION.readonly()).readonly(),
  /** Recorders that store the evidence about this access request. */
  recording: RECORDING,
  /**
   * Claim: the gateway that stores the evidence of the expiry, and the time until which no other gateway may
   * do this.
   */
  expiry: z.strictObject({ claimedBy: z.string(), untilMs: z.number() }).exactOptional(),
});
export type AccessRecord = Readonly<z.infer<typeof RECORD>>;

/** The signed record, as stored in the status of an AccessRequest. */
export interface SealedRecord {
  readonly record: string;
  readonly signature: string;
}

/** Signs and verifies records with a key that all gateways of a cluster share. */
export type RecordSeal = ReturnType<typeof createRecordSeal>;

/** @param secret at least 32 random bytes */
export function createRecordSeal(secret: Uint8Array) {
  const key = Buffer.from(hkdfSync('sha256', secret, new Uint8Array(), 'tailcast access request', 32));
  const sign = (uid: string, text: string): Buffer =>
    createHmac('sha256', key).update(`${uid.length}\n${uid}\n${text}`).digest();
  return {
    seal(uid: string, record: AccessRecord): SealedRecord {
      const text = JSON.stringify(record);
      return { record: text, signature: sign(uid, text).toString('base64') };
    },
    /** Verifies a record. @returns undefined if the record was not signed with this key for this object */
    open(
      uid: string,
      name: string,
      { record: text, signature }: Partial<SealedRecord>,
    ): AccessRecord | undefined {
      if (text === undefined || signature === undefined) return undefined;
      const given = Buffer.from(signature, 'base64');
      const expected = sign(uid, text);
      if (given.length !== expected.length || !timingSafeEqual(given, expected)) return undefined;
      const parsed = RECORD.safeParse(jsonOrUndefined(text));
      return parsed.success && parsed.data.id === name ? parsed.data : undefined;
    },
  };
}

/** Converts a caller to the fields that a record contains. */
export function personOf(identity: Identity): Person {
  const { kind, nodeId, nodeName: node } = identity;
  return kind === 'user'
    ? { kind, name: identity.login, nodeId, node, userId: String(identity.userId) }
    : { kind, name: node, nodeId, node, userId: '' };
}

/** True if two callers may be the same person, because their user, login or node is equal. */
export function mayBeSamePerson(left: Person, right: Person): boolean {
  if (left.nodeId === right.nodeId || left.name.toLowerCase() === right.name.toLowerCase()) return true;
  return left.userId !== '' && left.userId === right.userId;
}

/** True if this caller sent the request: the caller has the same kind, node, user and name as the requester. */
export function isRequester({ requester }: AccessRecord, identity: Identity): boolean {
  const { kind, name, nodeId, userId } = personOf(identity);
  return (
    requester.kind === kind &&
    requester.nodeId === nodeId &&
    requester.userId === userId &&
    requester.name === name
  );
}

const ID_LETTERS = 'abcdefghjkmnpqrstvwxyz23456789';

/** Returns a random id of 10 letters and digits, without characters that look alike. */
export function newRequestId(): string {
  return Array.from({ length: 10 }, () => ID_LETTERS[randomInt(ID_LETTERS.length)]).join('');
}
