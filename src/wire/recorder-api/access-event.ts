/**
 * One step of an access request in the format of `POST /v2/event`. Its type differs from that of an API request, so
 * that no request of a client can cause an event that looks like a step.
 */
import { encodeJson, type JsonObject } from '../json-value.ts';

/** Type of these events. */
export const ACCESS_EVENT_TYPE = 'tailcast-access-request';

/** A step of an access request. */
export interface AccessEvent {
  /** Time of the step, in Unix seconds. */
  readonly timestamp: number;
  readonly request: string;
  readonly step: string;
  readonly requester: string;
  /** Node of the requester. */
  readonly node: string;
  readonly groups: readonly string[];
  /** Kubernetes user of the access. Empty for the own user of the requester. */
  readonly user: string;
  readonly writes: boolean;
  /** Cluster at a gateway with several clusters. */
  readonly cluster?: string;
  readonly namespaces: readonly string[];
  readonly reason: string;
  readonly durationSeconds: number;
  /** End of the access, or of the time for decisions; RFC 3339. */
  readonly expires: string;
  readonly approvers: readonly string[];
  /** Number of missing approvals. */
  readonly approvalsMissing: number;
  /** Reason of a decision. */
  readonly comment: string;
  /** The caller who took the step; the requester after an expiry. */
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
