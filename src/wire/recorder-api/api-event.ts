/**
 * One Kubernetes API request in the format of `POST /v2/event`: a JSON object and a line break. Keys, their order
 * and the omission of empty values are those of existing clients; keys in `kubernetes` are Go field names.
 */
import { encodeBase64 } from '../base64.ts';
import { encodeJson, type JsonObject } from '../json-value.ts';

/** The request as the API server parses it (k8s.io/apiserver `endpoints/request`, RequestInfo). */
export interface ApiEventKubernetes {
  readonly IsResourceRequest: boolean;
  /** Path without the query. */
  readonly Path: string;
  readonly Verb: string;
  readonly APIPrefix: string;
  readonly APIGroup: string;
  readonly APIVersion: string;
  readonly Namespace: string;
  readonly Resource: string;
  readonly Subresource: string;
  readonly Name: string;
  /** `null` for a request without a resource. */
  readonly Parts: readonly string[] | null;
  readonly FieldSelector: string;
  readonly LabelSelector: string;
}

export interface ApiRequestEvent {
  /** Time of the request, in Unix seconds. */
  readonly timestamp: number;
  readonly userAgent: string;
  readonly request: {
    readonly method: string;
    /** Path and query. */
    readonly path: string;
    readonly body: Uint8Array;
    readonly queryParameters: ReadonlyMap<string, readonly string[]>;
  };
  readonly kubernetes: ApiEventKubernetes;
  readonly source: {
    /** MagicDNS name without trailing dot, stable id. */
    readonly node: string;
    readonly nodeID: string;
    /** Present only for a tagged node. */
    readonly nodeTags?: readonly string[];
    /** Present only for a user's node; 64 bits. */
    readonly nodeUserID?: bigint;
    readonly nodeUser?: string;
  };
  /**
   * Set if `request.body` is only the beginning: length of the body, in bytes. The event then has a key
   * `bodyTruncatedFrom` in `request`, which readers of the format ignore.
   */
  readonly bodyTruncatedFromBytes?: number;
  /** Reason why the gateway could not read the body, which is then empty. Readers of the format ignore this key. */
  readonly bodyUnread?: string;
  /** Name of the cluster at a gateway with several clusters. Readers of the format ignore this key. */
  readonly cluster?: string | undefined;
  /** Access on request with which the request ran. Readers of the format ignore this key. */
  readonly access?: { readonly request: string; readonly approvers: readonly string[] };
}

const API_EVENT_TYPE = 'kubernetes-api-request';

/**
 * Returns the body of `POST /v2/event`. `id` and `destination` are empty, and the recorder sets them.
 *
 * @throws WireError `malformed` for a number that JSON cannot express.
 */
export function encodeApiRequestEvent(event: ApiRequestEvent): string {
  const { request, source } = event;
  const json = {
    type: API_EVENT_TYPE,
    id: '',
    timestamp: event.timestamp,
    userAgent: event.userAgent,
    request: {
      method: request.method,
      path: request.path,
      body: encodeBase64(request.body),
      ...(event.bodyTruncatedFromBytes === undefined
        ? {}
        : { bodyTruncatedFrom: event.bodyTruncatedFromBytes }),
      ...(event.bodyUnread === undefined ? {} : { bodyUnread: event.bodyUnread }),
      queryParameters: sortedRecord(request.queryParameters),
    },
    kubernetes: encodeKubernetes(event.kubernetes),
    source: {
      node: source.node,
      nodeID: source.nodeID,
      ...(source.nodeTags === undefined || source.nodeTags.length === 0 ? {} : { nodeTags: source.nodeTags }),
      ...(source.nodeUserID === undefined || source.nodeUserID === 0n
        ? {}
        : { nodeUserID: source.nodeUserID }),
      ...(source.nodeUser === undefined || source.nodeUser === '' ? {} : { nodeUser: source.nodeUser }),
    },
    destination: { node: '', nodeID: '' },
    ...(event.cluster === undefined ? {} : { cluster: event.cluster }),
    ...(event.access === undefined ? {} : { access: event.access }),
  } satisfies JsonObject;
  return `${encodeJson(json)}\n`;
}

/** Go writes the keys of a map in order. (Integer names come first here; readers accept any order.) */
function sortedRecord(map: ReadonlyMap<string, readonly string[]>): JsonObject {
  return Object.fromEntries([...map].toSorted(([left], [right]) => (left < right ? -1 : 1)));
}

/** Listed, so that the key order is that of the protocol and not of the caller. */
function encodeKubernetes(info: ApiEventKubernetes): JsonObject {
  return {
    IsResourceRequest: info.IsResourceRequest,
    Path: info.Path,
    Verb: info.Verb,
    APIPrefix: info.APIPrefix,
    APIGroup: info.APIGroup,
    APIVersion: info.APIVersion,
    Namespace: info.Namespace,
    Resource: info.Resource,
    Subresource: info.Subresource,
    Name: info.Name,
    Parts: info.Parts,
    FieldSelector: info.FieldSelector,
    LabelSelector: info.LabelSelector,
  };
}
