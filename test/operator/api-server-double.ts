/**
 * The part of an API server that the operator's tests need, over real HTTP on loopback: objects in memory, lists with
 * label selectors and pages, watches with bookmarks, the patches that the operator sends, finalizers, preconditions,
 * and garbage collection by owner references. There are no controllers: tests simulate them.
 */
import { createHash, randomUUID } from 'node:crypto';
import { writeFileSync, mkdtempSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

export interface StoredObject {
  apiVersion: string;
  kind: string;
  metadata: {
    name: string;
    namespace?: string;
    uid: string;
    resourceVersion: string;
    generation: number;
    labels?: Record<string, string>;
    annotations?: Record<string, string>;
    finalizers?: string[];
    deletionTimestamp?: string;
    ownerReferences?: { uid: string; name: string }[];
    managedFields?: { manager?: string; operation?: string }[];
    [key: string]: unknown;
  };
  [key: string]: unknown;
}

export interface SeenRequest {
  readonly method: string;
  readonly path: string;
  readonly query: URLSearchParams;
  readonly contentType: string;
  readonly accept: string | undefined;
  readonly authorization: string | undefined;
  readonly body: unknown;
}

/** Returns a result that replaces the normal response to a request. */
export type Interference = (
  request: SeenRequest,
) => { status: number; body: object } | 'cut' | 'silent' | undefined;

export interface ApiServerDouble {
  readonly kubeconfig: string;
  /** Stored objects by request path, for example `/api/v1/namespaces/tailcast/secrets/a`. */
  readonly objects: Map<string, StoredObject>;
  readonly requests: SeenRequest[];
  /** Paths that the operator may not read. */
  readonly forbidden: Set<string>;
  interfere: Interference | undefined;
  put(path: string, object: object): StoredObject;
  remove(path: string): void;
  /** Closes every open watch, either normally or by breaking the connection. */
  endWatches(how: 'end' | 'cut'): void;
  bookmark(): void;
  readonly watches: number;
  /** Expires all resource versions, so that watches must list again. */
  compact(): void;
  close(): Promise<void>;
}

interface Watch {
  readonly collection: string;
  readonly matches: (object: StoredObject) => boolean;
  readonly response: ServerResponse;
}

interface Change {
  readonly version: number;
  readonly path: string;
  readonly type: string;
  readonly object: StoredObject;
}

/** Plural names of all kinds, independent of those in `src/operator/kube-object.ts`. */
export const COLLECTIONS: ReadonlySet<string> = new Set([
  'accessrequests',
  'recorders',
  'proxygroups',
  'connectors',
  'proxyclasses',
  'services',
  'tailnets',
  'proxygrouppolicies',
  'validatingadmissionpolicies',
  'validatingadmissionpolicybindings',
  'secrets',
  'serviceaccounts',
  'pods',
  'events',
  'roles',
  'rolebindings',
  'statefulsets',
  'configmaps',
  'endpointslices',
  'ingresses',
  'ingressclasses',
  'gateways',
  'gatewayclasses',
  'httproutes',
  'deployments',
  'dnsconfigs',
  'poddisruptionbudgets',
  'leases',
]);

export async function startApiServerDouble(): Promise<ApiServerDouble> {
  const objects = new Map<string, StoredObject>();
  const requests: SeenRequest[] = [];
  const forbidden = new Set<string>();
  const watches = new Set<Watch>();
  const log: Change[] = [];
  let version = 100;
  let compactedTo = 0;
  const double = { interfere: undefined as Interference | undefined };

  function notify(type: string, path: string, object: StoredObject): void {
    log.push({ version, path, type, object: structuredClone(object) });
    for (const watch of watches) {
      if (isIn(path, watch.collection) && watch.matches(object)) write(watch.response, type, object);
    }
  }

  function store(path: string, wanted: Partial<StoredObject>): StoredObject {
    const before = objects.get(path);
    const object = structuredClone(wanted) as StoredObject;
    const { resourceVersion: _version, ...metadata } = object.metadata;
    object.metadata = {
      ...metadata,
      uid: before?.metadata.uid ?? metadata.uid ?? randomUUID(),
      generation: before?.metadata.generation ?? 1,
      resourceVersion: before?.metadata.resourceVersion ?? '',
    };
    giveAddress(object);
    if (sameJson(before, object)) return object;
    if (before !== undefined && !sameJson(before['spec'], object['spec'])) object.metadata.generation += 1;
    version += 1;
    object.metadata.resourceVersion = String(version);
    if (object.metadata.deletionTimestamp !== undefined && (object.metadata.finalizers ?? []).length === 0) {
      objects.set(path, object);
      drop(path);
      return object;
    }
    objects.set(path, object);
    notify(before === undefined ? 'ADDED' : 'MODIFIED', path, object);
    return object;
  }

  function drop(path: string, orphan = false): void {
    const object = objects.get(path);
    if (object === undefined) return;
    objects.delete(path);
    version += 1;
    object.metadata.resourceVersion = String(version);
    notify('DELETED', path, object);
    if (orphan) return;
    for (const [other, { metadata }] of objects) {
      if (metadata.ownerReferences?.some(({ uid }) => uid === object.metadata.uid) === true) drop(other);
    }
  }

  function answer(request: SeenRequest, response: ServerResponse): void {
    const { method, path } = request;
    const target = path.endsWith('/status') ? path.slice(0, -'/status'.length) : path;
    const object = objects.get(target);
    const isCollection = COLLECTIONS.has(path.slice(path.lastIndexOf('/') + 1));
    if (method === 'GET' && forbidden.has(path)) {
      send(response, 403, status(403, 'Forbidden', `${path} is forbidden`));
    } else if (method === 'GET' && isCollection) {
      if (request.query.get('watch') === 'true') openWatch(request, response);
      else sendList(request, response);
    } else if (method === 'POST') {
      const body = request.body as StoredObject;
      const created = `${path}/${body.metadata.name}`;
      if (objects.has(created)) send(response, 409, status(409, 'AlreadyExists', `${created} exists`));
      else send(response, 201, store(created, body));
    } else if (method === 'PATCH' && request.contentType === 'application/apply-patch+yaml') {
      send(response, object === undefined ? 201 : 200, store(target, applied(object, request)));
    } else if (object === undefined) {
      send(response, 404, status(404, 'NotFound', `${path} not found`));
    } else if (method === 'GET') {
      send(response, 200, object);
    } else if (method === 'PATCH') {
      patch(request, target, object, response);
    } else {
      remove(request, target, object, response);
    }
  }

  function patch(request: SeenRequest, path: string, object: StoredObject, response: ServerResponse): void {
    const next = structuredClone(object);
    if (Array.isArray(request.body)) {
      for (const { op, path: pointer, value } of request.body as {
        op: string;
        path: string;
        value: unknown;
      }[]) {
        const steps = pointer.split('/').slice(1);
        const key = steps.pop() ?? '';
        const place = steps.reduce<unknown>((at, step) => (at as Record<string, unknown>)[step], next);
        const into = place as Record<string, unknown>;
        if (op === 'test' && into[key] !== value) {
          send(response, 409, status(409, 'Conflict', 'test failed'));
          return;
        }
        if (op !== 'test' && Array.isArray(place) && key === '-') place.push(value);
        else if (op !== 'test') into[key] = value;
      }
    } else {
      const body = request.body as { metadata?: { resourceVersion?: string; uid?: string } };
      const { resourceVersion, uid } = body.metadata ?? {};
      const stale = resourceVersion !== undefined && resourceVersion !== object.metadata.resourceVersion;
      if (stale || (uid !== undefined && uid !== object.metadata.uid)) {
        send(response, 409, status(409, 'Conflict', 'the object has been modified'));
        return;
      }
      merge(next, body);
    }
    send(response, 200, store(path, next));
  }

  function remove(request: SeenRequest, path: string, object: StoredObject, response: ServerResponse): void {
    const { preconditions, propagationPolicy } = (request.body ?? {}) as {
      preconditions?: { uid?: string };
      propagationPolicy?: string;
    };
    if (preconditions?.uid !== undefined && preconditions.uid !== object.metadata.uid) {
      send(response, 409, status(409, 'Conflict', 'the UID in the precondition does not match'));
      return;
    }
    if ((object.metadata.finalizers ?? []).length > 0) {
      const next = structuredClone(object);
      next.metadata.deletionTimestamp ??= new Date().toISOString();
      send(response, 200, store(path, next));
      return;
    }
    drop(path, propagationPolicy === 'Orphan');
    send(response, 200, status(200, '', 'deleted'));
  }

  function sendList(request: SeenRequest, response: ServerResponse): void {
    const found = listed(request);
    const limit = Number(request.query.get('limit') ?? found.length);
    const from = Number(request.query.get('continue') ?? 0);
    const rest = from + limit < found.length ? { continue: String(from + limit) } : {};
    const items = found.slice(from, from + limit).map(({ apiVersion: _a, kind: _k, ...item }) => item);
    send(response, 200, { metadata: { resourceVersion: String(version), ...rest }, items });
  }

  function listed({ path, query }: SeenRequest): StoredObject[] {
    const matches = selector(query.get('labelSelector'));
    return [...objects]
      .filter(([key, object]) => isIn(key, path) && matches(object))
      .map(([, object]) => object);
  }

  function openWatch({ path, query }: SeenRequest, response: ServerResponse): void {
    const from = Number(query.get('resourceVersion'));
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    if (from < compactedTo) {
      write(response, 'ERROR', status(410, 'Expired', 'too old resource version'));
      response.end();
      return;
    }
    const watch = { collection: path, matches: selector(query.get('labelSelector')), response };
    for (const change of log) {
      if (change.version > from && isIn(change.path, path) && watch.matches(change.object)) {
        write(response, change.type, change.object);
      }
    }
    watches.add(watch);
    response.once('close', () => watches.delete(watch));
  }

  const server = createServer((request, response) => {
    read(request)
      .then((seen) => {
        requests.push(seen);
        const other = double.interfere?.(seen);
        if (other === 'cut') response.destroy();
        else if (other === undefined) answer(seen, response);
        else if (other === 'silent') return;
        else send(response, other.status, other.body);
      })
      .catch((error: unknown) => response.destroy(error as Error));
  });
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const folder = mkdtempSync(join(tmpdir(), 'tcapi-'));
  const kubeconfig = writeKubeconfig(folder, (server.address() as AddressInfo).port);

  return {
    get interfere() {
      return double.interfere;
    },
    set interfere(value) {
      double.interfere = value;
    },
    kubeconfig,
    objects,
    requests,
    forbidden,
    put: (path: string, object: object) => store(path, object),
    remove: (path: string) => drop(path),
    endWatches(how: 'end' | 'cut') {
      for (const watch of watches) {
        watches.delete(watch);
        if (how === 'end') watch.response.end();
        else watch.response.destroy();
      }
    },
    bookmark() {
      for (const { response } of watches) {
        write(response, 'BOOKMARK', {
          kind: 'Any',
          apiVersion: 'v1',
          metadata: { resourceVersion: String(version) },
        });
      }
    },
    get watches() {
      return watches.size;
    },
    compact() {
      compactedTo = version;
    },
    async close() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}

/** Returns true if an object is in a collection, which may cover all namespaces. */
function isIn(key: string, collection: string): boolean {
  if (key.startsWith(`${collection}/`)) return true;
  const at = collection.lastIndexOf('/');
  const inNamespaces = `${collection.slice(0, at)}/namespaces/`;
  return (
    key.startsWith(inNamespaces) && key.slice(inNamespaces.length).split('/')[1] === collection.slice(at + 1)
  );
}

/** Assigns an address to Services without one. */
function giveAddress(object: StoredObject): void {
  if (object.kind !== 'Service') return;
  const spec = (object['spec'] ??= {}) as { type?: string; clusterIP?: string; clusterIPs?: string[] };
  if (spec.type === 'ExternalName') {
    delete spec.clusterIP;
    delete spec.clusterIPs;
    return;
  }
  const [high = 0, low = 0] = createHash('sha256').update(object.metadata.uid).digest();
  spec.clusterIP ??= `10.96.${high}.${low}`;
  spec.clusterIPs ??= [spec.clusterIP];
}

function sameJson(left: unknown, right: unknown): boolean {
  return JSON.stringify(left) === JSON.stringify(right);
}

function writeKubeconfig(folder: string, port: number): string {
  const path = join(folder, 'kubeconfig');
  const cluster = { server: `http://127.0.0.1:${port}`, 'insecure-skip-tls-verify': true };
  writeFileSync(
    path,
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'double', cluster }],
      users: [{ name: 'operator', user: { token: 'operator-token' } }],
      contexts: [{ name: 'double', context: { cluster: 'double', user: 'operator', namespace: 'tailcast' } }],
      'current-context': 'double',
    }),
  );
  return path;
}

async function read(request: IncomingMessage): Promise<SeenRequest> {
  let text = '';
  for await (const chunk of request) text += String(chunk);
  const url = new URL(request.url ?? '/', 'http://double');
  return {
    method: request.method ?? '',
    path: url.pathname,
    query: url.searchParams,
    contentType: request.headers['content-type'] ?? '',
    accept: request.headers.accept,
    authorization: request.headers.authorization,
    body: text === '' ? undefined : JSON.parse(text),
  };
}

/** Merges maps and replaces lists, which is sufficient for objects with one field manager. */
function applied(before: StoredObject | undefined, { body, query }: SeenRequest): StoredObject {
  const next = structuredClone(before ?? { metadata: {} }) as StoredObject;
  merge(next, body as object);
  const manager = query.get('fieldManager') ?? '';
  const others = (next.metadata.managedFields ?? []).filter((entry) => entry.manager !== manager);
  next.metadata.managedFields = [...others, { manager, operation: 'Apply' }];
  const data = (body as { data?: object }).data;
  if (next.kind === 'Secret' && data === undefined && next['data'] !== undefined) {
    delete (next['data'] as Record<string, unknown>)['authkey'];
  }
  return next;
}

function merge(target: object, patch: object): void {
  for (const [key, value] of Object.entries(patch)) {
    const into = target as Record<string, unknown>;
    if (value === null) {
      delete into[key];
    } else if (typeof value === 'object' && !Array.isArray(value)) {
      if (typeof into[key] !== 'object' || into[key] === null) into[key] = {};
      merge(into[key] as object, value as object);
    } else {
      into[key] = value;
    }
  }
}

function selector(text: string | null): (object: StoredObject) => boolean {
  const wanted = (text ?? '')
    .split(',')
    .filter(Boolean)
    .map((term) => term.split('='));
  return ({ metadata }) =>
    wanted.every(([key = '', value]) =>
      value === undefined ? metadata.labels?.[key] !== undefined : metadata.labels?.[key] === value,
    );
}

function status(code: number, reason: string, message: string): object {
  return {
    kind: 'Status',
    apiVersion: 'v1',
    metadata: {},
    status: code < 400 ? 'Success' : 'Failure',
    reason,
    message,
    code,
  };
}

function write(response: ServerResponse, type: string, object: object): void {
  response.write(`${JSON.stringify({ type, object })}\n`);
}

function send(response: ServerResponse, code: number, body: object): void {
  response.writeHead(code, { 'content-type': 'application/json' });
  response.end(JSON.stringify(body));
}
