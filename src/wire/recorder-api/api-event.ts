/**
 * One Kubernetes API request as `POST /v2/event` carries it: a JSON object and a line break. Keys, their order and what
 * is left out when empty are those of the clients in the field; in `kubernetes` they are Go field names.
 */
import { encodeBase64 } from '../base64.ts';
import { encodeJson, type JsonObject } from '../json-value.ts';

/** How the API server reads the request (k8s.io/apiserver `endpoints/request`, RequestInfo). */
export interface ApiEventKubernetes {
  readonly IsResourceRequest: boolean;
  /** Without the query. */
  readonly Path: string;
  readonly Verb: string;
  readonly APIPrefix: string;
  readonly APIGroup: string;
  readonly APIVersion: string;
  readonly Namespace: string;
  readonly Resource: string;
  readonly Subresource: string;
  readonly Name: string;
  /** `null` for a request that is not about a resource. */
  readonly Parts: readonly string[] | null;
  readonly FieldSelector: string;
  readonly LabelSelector: string;
}

export interface ApiRequestEvent {
  /** Unix seconds at which the request came in. */
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
    /** Only for a tagged node. */
    readonly nodeTags?: readonly string[];
    /** Only for a node of a person; 64 bits. */
    readonly nodeUserID?: bigint;
    readonly nodeUser?: string;
  };
  /**
   * Set when `request.body` is only the beginning: how long the body was, in bytes. The event then has a key
   * `bodyTruncatedFrom` in `request`, which readers of the format ignore.
   */
  readonly bodyTruncatedFromBytes?: number;
  /** Reason why the gateway could not read the body, which is then empty. A key that readers of the format ignore. */
  readonly bodyUnread?: string;
}

const API_EVENT_TYPE = 'kubernetes-api-request';

/**
 * The body of `POST /v2/event`. `id` and `destination` are written empty: the recorder fills them.
 *
 * @throws WireError `malformed` for a number JSON cannot hold.
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
  } satisfies JsonObject;
  return `${encodeJson(json)}\n`;
}

/** Go writes the keys of a map in order. (A name that is a whole number comes first here; no reader minds.) */
function sortedRecord(map: ReadonlyMap<string, readonly string[]>): JsonObject {
  return Object.fromEntries([...map].toSorted(([left], [right]) => (left < right ? -1 : 1)));
}

/** Spelled out, so that the key order is the protocol's and not the caller's. */
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
