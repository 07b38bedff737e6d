/**
 * Encodes a Kubernetes API request as the body of `POST /v2/event`: a JSON object and a line break. Like
 * clients of the reference, the encoder writes the same keys in the same order and omits the same empty
 * values. Keys in `kubernetes` are Go field names.
 */
import { encodeJson, type JsonObject } from '../json-value.ts';

/**
 * Attributes of the request, as the API server parses them (RequestInfo in k8s.io/apiserver
 * `endpoints/request`).
 */
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
  /** Segments of the path from the resource onwards; `null` for a request without a resource. */
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
    /** Tailnet node of the client: MagicDNS name without trailing dot (`node`), and stable id (`nodeID`). */
    readonly node: string;
    readonly nodeID: string;
    /** Tags of the client's node; present only for a tagged node. */
    readonly nodeTags?: readonly string[];
    /** Id (up to 64 bits) and login of the user; present only for a user's node. */
    readonly nodeUserID?: bigint;
    readonly nodeUser?: string;
  };
  /**
   * Number of bytes of the body that the gateway has read. Set if `request.body` contains only a part of
   * them; the complete body may be longer. It becomes the key `bodyTruncatedFrom` in `request`, which
   * tsrecorder ignores.
   */
  readonly bodyTruncatedFromBytes?: number;
  /** Reason why the gateway could not read the body; `body` is then empty. tsrecorder ignores this key. */
  readonly bodyUnread?: string;
  /** Name of the cluster, if the gateway serves several clusters. tsrecorder ignores this key. */
  readonly cluster?: string | undefined;
  /** Access request that granted the rights of this API request, if any. tsrecorder ignores this key. */
  readonly access?: { readonly request: string; readonly approvers: readonly string[] };
}

/** Type of events about API requests. */
export const API_EVENT_TYPE = 'kubernetes-api-request';

/**
 * Returns the body of `POST /v2/event`. `id` and `destination` are empty, because the recorder sets them.
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
      body: request.body.toBase64(),
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

/**
 * Sorts the keys as Go does for a map. JavaScript still puts integer keys first, but readers accept any
 * order.
 */
function sortedRecord(map: ReadonlyMap<string, readonly string[]>): JsonObject {
  return Object.fromEntries([...map].toSorted(([left], [right]) => (left < right ? -1 : 1)));
}

/** Lists the keys explicitly, so that their order does not depend on the caller. */
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
