/**
 * Reads notices about access requests from the events that gateways upload. Any uploader can send such an event, so
 * every value is untrusted except the name and id of the uploader.
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../../../wire/json-value.ts';
import { ACCESS_EVENT_TYPE, ACCESS_STEPS } from '../../../wire/recorder-api/access-event.ts';
import { recordingId } from '../../store/key.ts';

const text = z.string().max(1024);
const texts = z.array(text).max(100).readonly();
/** Maximum number of seconds by which the time of an event may be in the future. */
const MAX_AHEAD_SECONDS = 86_400;

/** Schema of a notice in the journal. */
export const ACCESS_NOTICE = z.object({
  step: z.enum(ACCESS_STEPS),
  request: z.string().regex(/^[a-z0-9]{10}$/),
  requester: text,
  /** Tailnet node of the requester. */
  node: text,
  groups: texts,
  /**
   * Kubernetes user that the gateway impersonates for the requester during the access. Empty if the access uses the
   * requester's own user.
   */
  user: text,
  writes: z.boolean(),
  cluster: text.exactOptional(),
  namespaces: texts,
  reason: text,
  /** The gateway's description of the call that caused the request; empty if the requester sent the request. */
  call: text,
  durationSeconds: z.number(),
  expires: text,
  approvers: texts,
  approvalsMissing: z.number(),
  comment: text,
  /** The caller that caused the step; the requester if the request expired. */
  by: text,
  /** Tailnet node of the gateway, which uploaded the event. */
  gateway: text,
});
/** A step of an access request. */
export type AccessNotice = z.infer<typeof ACCESS_NOTICE>;

const EVENT = z.object({
  stableID: text,
  event: z.object({
    type: z.literal(ACCESS_EVENT_TYPE),
    timestamp: z.int().min(0),
    access: ACCESS_NOTICE.omit({ by: true, gateway: true }),
    source: z.object({ node: text, nodeUser: text.exactOptional() }),
    destination: z.object({ node: text }),
  }),
});

/** A notice, with ids that are equal on all recorders. */
export interface NamedNotice {
  readonly notice: AccessNotice;
  /** Key that is unique for each step of each request of each gateway. */
  readonly key: string;
  /**
   * Id in the format of recording ids. The time in this id determines when retention removes the delivery marks of the
   * notice's alerts.
   */
  readonly session: string;
}

/**
 * Parses a stored event.
 * @param nowMs milliseconds since the epoch
 * @returns undefined for other events. Also undefined for an approval that completes a request, because the `granted`
 * step of the request follows
 */
export function parseAccessNotice(stored: string, nowMs: number): NamedNotice | undefined {
  if (!stored.includes(ACCESS_EVENT_TYPE)) return undefined;
  const parsed = EVENT.safeParse(jsonOrUndefined(stored));
  if (!parsed.success) return undefined;
  const { stableID, event } = parsed.data;
  const { access, source, destination, timestamp } = event;
  if (access.step === 'approved' && access.approvalsMissing === 0) return undefined;
  const by = source.nodeUser ?? source.node;
  // If an event had a forged time in the far future, the delivery marks of its alerts would never expire. Use the
  // receive time of such an event instead.
  const nowSeconds = nowMs / 1000;
  const seconds = timestamp > nowSeconds + MAX_AHEAD_SECONDS ? nowSeconds : timestamp;
  const time = `${new Date(seconds * 1000).toISOString().slice(0, 19)}Z`;
  return {
    notice: { ...access, by, gateway: destination.node },
    key: [stableID, access.request, access.step, by].join('\0'),
    session: recordingId({ nodeId: `access-${access.request}`, time }),
  };
}
