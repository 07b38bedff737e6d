/**
 * Encodes a step of an access request as the body of `POST /v2/event`. The type of the event differs from
 * that of an API request, so that no client request can cause an event that looks like a step.
 */
import { encodeJson, type JsonObject } from '../json-value.ts';

/** Type of events about access requests. */
export const ACCESS_EVENT_TYPE = 'tailcast-access-request';

/** Steps of an access request. */
export const ACCESS_STEPS = [
  'requested',
  'granted',
  'approved',
  'denied',
  'revoked',
  'expired',
  /** A stored approval did not take effect. */
  'approvalFailed',
  /** A stored request, or its grant, did not take effect. */
  'requestFailed',
] as const;

/** A step of an access request. */
export interface AccessEvent {
  /** Time of the step, in Unix seconds. */
  readonly timestamp: number;
  readonly request: string;
  readonly step: (typeof ACCESS_STEPS)[number];
  readonly requester: string;
  /** Tailnet node of the requester. */
  readonly node: string;
  readonly groups: readonly string[];
  /** Requested Kubernetes user. Empty if the request uses the requester's own user. */
  readonly user: string;
  readonly writes: boolean;
  /** Name of the cluster, if the gateway serves several clusters. */
  readonly cluster?: string;
  readonly namespaces: readonly string[];
  readonly reason: string;
  /** Gateway's description of the call that caused the request; empty if the requester sent the request. */
  readonly call: string;
  readonly durationSeconds: number;
  /** End of the granted access (RFC 3339). For a pending request, the time until which approvers may decide. */
  readonly expires: string;
  readonly approvers: readonly string[];
  /** Number of approvals that are still missing. */
  readonly approvalsMissing: number;
  /** Reason of a decision. */
  readonly comment: string;
  /** The caller who caused the step. For an expiry, this is the requester. */
  readonly source: { readonly node: string; readonly nodeID: string; readonly nodeUser?: string };
}

/** Returns the body of `POST /v2/event`. */
export function encodeAccessEvent({ timestamp, source, ...access }: AccessEvent): string {
  const json = {
    type: ACCESS_EVENT_TYPE,
    id: '',
    timestamp,
    access,
    kubernetes: { Resource: 'accessrequests', Name: access.request, Verb: access.step, Namespace: '' },
    source,
    destination: { node: '', nodeID: '' },
  } satisfies JsonObject;
  return `${encodeJson(json)}\n`;
}
