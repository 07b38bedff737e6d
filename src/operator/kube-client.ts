/**
 * Client of the API server: plain JSON, server-side apply, and watches as streams of events. `get` and `remove` report
 * a missing object with their return value. Other error responses are thrown as {@link KubeRefusal}.
 */
import { z } from 'zod';
import { jsonOrUndefined } from '../wire/json-value.ts';
import type { ClusterConnection } from './cluster-connection.ts';
import { readTextLines } from '../wire/lines.ts';
import {
  knownKindOf,
  parseObject,
  pathOf,
  type DesiredObject,
  type KubeObject,
  type ObjectReference,
  type ResourceKind,
} from './kube-object.ts';

/** Name of the operator in managed fields. */
export const FIELD_MANAGER = 'tailcast-operator';

/** Maximum length of a line in a watch, in bytes. A line contains one object, which etcd limits to 1.5 MiB. */
const MAX_LINE_BYTES = 8 * 1024 ** 2;
const PAGE_SIZE = 500;
/** Maximum number of objects in a list. A longer list indicates a wrong selector. */
const MAX_LISTED = 100_000;

/** An error from the API server, or an invalid response. */
export class KubeRefusal extends Error {
  override readonly name = 'KubeRefusal';
  readonly status: number;
  /** Reason as in `metav1.StatusReason`, e.g. `Conflict`; empty if the response has no reason. */
  readonly reason: string;

  constructor(what: string, status: number, reason: string, message: string) {
    super(`${what}: ${status} ${reason === '' ? '' : `${reason}: `}${message}`);
    this.status = status;
    this.reason = reason;
  }

  /** True if another client changed the object first. */
  get conflict(): boolean {
    return this.status === 409 && this.reason !== 'AlreadyExists';
  }
}

export type Patch =
  | { readonly kind: 'merge'; readonly body: object }
  | { readonly kind: 'json'; readonly body: readonly object[] };

export interface ListOptions {
  readonly namespace?: string | undefined;
  readonly labelSelector?: string | undefined;
  /** Requests only `metadata`, so that no Secret data is sent or stored. */
  readonly metadataOnly?: boolean;
  /**
   * Returns the part of an object that the caller stores. Called while the list is read, so that the complete objects
   * are never in memory at the same time. Default: the complete object.
   */
  readonly keep?: ((object: KubeObject) => KubeObject) | undefined;
}

export interface ListAnswer {
  readonly items: readonly KubeObject[];
  readonly resourceVersion: string;
}

export type WatchEvent =
  /** `put`: the object was created or changed. */
  | { readonly kind: 'put' | 'deleted' | 'bookmark'; readonly object: KubeObject }
  | { readonly kind: 'error'; readonly status: number; readonly message: string };

/**
 * The last parameter of each method is a signal that aborts the request. Default: the signal of the client, which
 * aborts all its requests.
 */
export interface KubeClient {
  /** Returns undefined if the object or its kind does not exist. */
  get(kind: ResourceKind, reference: ObjectReference, signal?: AbortSignal): Promise<KubeObject | undefined>;
  list(kind: ResourceKind, options: ListOptions, signal?: AbortSignal): Promise<ListAnswer>;
  /**
   * Returns the events of a watch. The iteration ends when the server closes the watch, and throws if the watch fails.
   */
  watch(
    kind: ResourceKind,
    options: ListOptions & { readonly resourceVersion: string; readonly timeoutSeconds: number },
    signal?: AbortSignal,
  ): AsyncIterable<WatchEvent>;
  /** Applies an object with server-side apply. In a conflict, the operator becomes the manager of the fields. */
  apply(object: DesiredObject, signal?: AbortSignal): Promise<KubeObject>;
  create(kind: ResourceKind, object: object, signal?: AbortSignal): Promise<KubeObject>;
  /** Creates a review or a TokenRequest. The API server does not store such an object. Returns the response as JSON. */
  review(path: string, body: object, signal?: AbortSignal): Promise<unknown>;
  patch(
    kind: ResourceKind,
    reference: ObjectReference,
    patch: Patch,
    signal?: AbortSignal,
  ): Promise<KubeObject>;
  /** Returns false if the object does not exist or has another uid. */
  remove(
    kind: ResourceKind,
    reference: ObjectReference,
    options: {
      readonly uid?: string | undefined;
      readonly propagation?: 'Background' | 'Foreground' | 'Orphan';
    },
    signal?: AbortSignal,
  ): Promise<boolean>;
}

const statusSchema = z.object({
  reason: z.string().default(''),
  message: z.string().default(''),
  code: z.number().optional(),
});
const listSchema = z.object({
  metadata: z
    .object({ resourceVersion: z.string().default(''), continue: z.string().default('') })
    .prefault({}),
  items: z.array(z.unknown()).nullable(),
});
const eventSchema = z.object({ type: z.string(), object: z.unknown() });

const JSON_TYPE = 'application/json';
const METADATA_TYPE = 'application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1';
const METADATA_LIST_TYPE = 'application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1';
const PATCH_TYPES = { merge: 'application/merge-patch+json', json: 'application/json-patch+json' } as const;

/**
 * Creates a client that uses a connection to the API server.
 *
 * @param end default signal of all requests
 */
export function createKubeClient(connection: ClusterConnection, end: AbortSignal): KubeClient {
  const call = createCall(connection, end);
  return { ...readCalls(connection, call, end), ...writes(call) };
}

interface CallRequest {
  readonly method: string;
  readonly path: string;
  readonly query?: Readonly<Record<string, string>>;
  readonly body?: object;
  readonly contentType?: string;
  readonly accept?: string;
  readonly signal: AbortSignal | undefined;
}

/** Sends and receives JSON. Throws for an error status. */
type Call = (request: CallRequest) => Promise<unknown>;

function createCall(connection: ClusterConnection, end: AbortSignal): Call {
  return async (request) => {
    const { method, query, signal = end } = request;
    const path = withQuery(request.path, query ?? {});
    const answer = await connection.request({
      method,
      path,
      accept: request.accept ?? JSON_TYPE,
      ...(request.body === undefined
        ? {}
        : { contentType: request.contentType ?? JSON_TYPE, body: JSON.stringify(request.body) }),
      signal,
    });
    if (answer.status >= 400) throw refusal(`${method} ${request.path}`, answer.status, answer.text);
    const parsed: unknown = JSON.parse(answer.text);
    return parsed;
  };
}

function readCalls(
  connection: ClusterConnection,
  call: Call,
  end: AbortSignal,
): Pick<KubeClient, 'get' | 'list' | 'watch'> {
  async function* pages(kind: ResourceKind, options: ListOptions, signal?: AbortSignal) {
    let token = '';
    do {
      const query = {
        ...listQuery(options),
        limit: String(PAGE_SIZE),
        ...(token === '' ? {} : { continue: token }),
      };
      const accept = options.metadataOnly === true ? `${METADATA_LIST_TYPE},${JSON_TYPE}` : JSON_TYPE;
      const page = listSchema.parse(
        await call({ method: 'GET', path: pathOf(kind, options), query, accept, signal }),
      );
      yield page;
      token = page.metadata.continue;
    } while (token !== '');
  }

  return {
    async get(kind, reference, signal) {
      try {
        return parseObject(await call({ method: 'GET', path: pathOf(kind, reference), signal }));
      } catch (error) {
        if (isAbsent(error)) return undefined;
        throw error;
      }
    },
    async list(kind, options, signal) {
      const items: KubeObject[] = [];
      const { keep = (object: KubeObject) => object } = options;
      let resourceVersion = '';
      for await (const page of pages(kind, options, signal)) {
        // In a list, the items may lack `apiVersion` and `kind`, so the client sets both fields.
        const { apiVersion, kind: name } = kind;
        for (const item of page.items ?? [])
          items.push(keep(parseObject({ ...record(item), apiVersion, kind: name })));
        if (items.length > MAX_LISTED)
          throw new KubeRefusal(`list of ${kind.plural}`, 0, '', 'too many objects');
        ({ resourceVersion } = page.metadata);
      }
      return { items, resourceVersion };
    },
    async *watch(kind, options, signal = end) {
      const query = {
        ...listQuery(options),
        watch: 'true',
        allowWatchBookmarks: 'true',
        resourceVersion: options.resourceVersion,
        timeoutSeconds: String(options.timeoutSeconds),
      };
      const path = withQuery(pathOf(kind, options), query);
      const accept = options.metadataOnly === true ? `${METADATA_TYPE},${JSON_TYPE}` : JSON_TYPE;
      const answer = await connection.stream({ path, accept, signal });
      if (answer.status >= 400)
        throw refusal(`watch ${pathOf(kind, options)}`, answer.status, await answer.text());
      for await (const line of readTextLines(answer.body, MAX_LINE_BYTES))
        if (line !== '') yield readEvent(line, options.keep);
    },
  };
}

function writes(call: Call): Pick<KubeClient, 'apply' | 'create' | 'review' | 'patch' | 'remove'> {
  return {
    async apply(object, signal) {
      const kind = knownKindOf(object);
      const { namespace, name } = object.metadata;
      return parseObject(
        await call({
          method: 'PATCH',
          path: pathOf(kind, { namespace, name }),
          query: { fieldManager: FIELD_MANAGER, force: 'true' },
          contentType: 'application/apply-patch+yaml',
          body: object,
          signal,
        }),
      );
    },
    async create(kind, object, signal) {
      const { namespace } = parseObject({ ...object }).metadata;
      const query = { fieldManager: FIELD_MANAGER };
      return parseObject(
        await call({ method: 'POST', path: pathOf(kind, { namespace }), query, body: object, signal }),
      );
    },
    review: (path, body, signal) => call({ method: 'POST', path, body, signal }),
    async patch(kind, reference, patch, signal) {
      return parseObject(
        await call({
          method: 'PATCH',
          path: pathOf(kind, reference),
          query: { fieldManager: FIELD_MANAGER },
          contentType: PATCH_TYPES[patch.kind],
          body: patch.body,
          signal,
        }),
      );
    },
    async remove(kind, reference, { uid, propagation = 'Background' }, signal) {
      const body = {
        apiVersion: 'v1',
        kind: 'DeleteOptions',
        propagationPolicy: propagation,
        ...(uid === undefined ? {} : { preconditions: { uid } }),
      };
      try {
        await call({ method: 'DELETE', path: pathOf(kind, reference), body, signal });
        return true;
      } catch (error) {
        if (isAbsent(error) || (error instanceof KubeRefusal && error.conflict)) return false;
        throw error;
      }
    },
  };
}

function listQuery({ labelSelector }: ListOptions): Readonly<Record<string, string>> {
  return labelSelector === undefined ? {} : { labelSelector };
}

function withQuery(path: string, query: Readonly<Record<string, string>>): string {
  const text = new URLSearchParams(query).toString();
  return text === '' ? path : `${path}?${text}`;
}

function isAbsent(error: unknown): boolean {
  return error instanceof KubeRefusal && error.status === 404;
}

function refusal(what: string, status: number, text: string): KubeRefusal {
  const parsed = statusSchema.safeParse(jsonOrUndefined(text));
  return parsed.success
    ? new KubeRefusal(what, status, parsed.data.reason, parsed.data.message)
    : new KubeRefusal(what, status, '', text.slice(0, 200));
}

function record(value: unknown): object {
  return typeof value === 'object' && value !== null ? value : {};
}

function readEvent(line: string, keep = (object: KubeObject): KubeObject => object): WatchEvent {
  const { type, object } = eventSchema.parse(JSON.parse(line));
  switch (type) {
    case 'ADDED':
    case 'MODIFIED':
      return { kind: 'put', object: keep(parseObject(object)) };
    case 'DELETED':
      return { kind: 'deleted', object: keep(parseObject(object)) };
    case 'BOOKMARK':
      return {
        kind: 'bookmark',
        object: parseObject({ ...record(object), metadata: { name: '', ...metadata(object) } }),
      };
    default: {
      const status = statusSchema.parse(object);
      return { kind: 'error', status: status.code ?? 500, message: status.message };
    }
  }
}

function metadata(object: unknown): object {
  return 'metadata' in record(object)
    ? record(z.object({ metadata: z.unknown() }).parse(object).metadata)
    : {};
}
