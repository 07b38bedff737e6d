import { parseResourcePath, flagOf, queryNumber, type ResourcePath } from './api-path.ts';
import {
  badRequest,
  detailsOf,
  methodNotAllowed,
  notFound,
  successStatus,
  unsupportedMediaType,
} from './api-status.ts';
import { authorize } from './authentication.ts';
import type { ApiExchange } from './exchange.ts';
import { identify, isObject, numberAt, stringAt, withValue, type Json, type ApiObject } from './json.ts';
import { selectorOf, sendList, sendObject, sendWatch } from './list-response.ts';
import { prepareCreate, prepareUpdate } from './objects.ts';
import { PATCHES } from './patch.ts';
import type { PodController } from './pods.ts';
import { isStored, type Resource } from './resources.ts';
import { answerReview } from './reviews.ts';
import { readScale, writeScale } from './scale.ts';
import type { Store } from './store.ts';

export interface RestDependencies {
  readonly store: Store;
  readonly now: () => Date;
  readonly pods: PodController;
  /** Serves `pods/{name}/log`. */
  readonly sendLog: (exchange: ApiExchange, path: ResourcePath) => Promise<void>;
  /** Called after an object was stored or deleted. */
  readonly changed: (resource: Resource, object: ApiObject) => void;
}

/** Serves resources below /api/v1 and /apis/{group}/{version}. Throws `ApiStatusError`. */
export async function serveResource(exchange: ApiExchange, dependencies: RestDependencies): Promise<void> {
  const path = parseResourcePath(exchange.path);
  const { resource, namespace, name } = path;
  authorize(exchange.user, exchange.method.toLowerCase(), resource.plural, resource.group, namespace);
  if (!isStored(resource)) return serveReview(exchange, resource);
  switch (exchange.method) {
    case 'GET':
      return read(exchange, dependencies, path);
    case 'POST':
      if (name !== '') throw methodNotAllowed();
      return create(exchange, dependencies, path);
    case 'PUT':
    case 'PATCH':
      if (name === '') throw methodNotAllowed();
      return change(exchange, dependencies, path);
    case 'DELETE':
      return remove(exchange, dependencies, path);
    default:
      throw methodNotAllowed();
  }
}

async function serveReview(exchange: ApiExchange, resource: Resource): Promise<void> {
  if (exchange.method !== 'POST') throw methodNotAllowed();
  const body = await exchange.readObject();
  exchange.send(201, answerReview(resource, body ?? {}, exchange.user));
}

async function read(
  exchange: ApiExchange,
  dependencies: RestDependencies,
  path: ResourcePath,
): Promise<void> {
  const { resource, namespace, name, subresource } = path;
  if (flagOf(exchange.query, 'watch')) {
    await sendWatch(exchange, dependencies, path);
  } else if (name === '') {
    sendList(exchange, dependencies, path);
  } else if (subresource === 'log') {
    await dependencies.sendLog(exchange, path);
  } else if (['exec', 'attach', 'portforward'].includes(subresource)) {
    throw badRequest('you must specify an Upgrade: an HTTP connection without one cannot carry this');
  } else {
    const object = dependencies.store.require(resource, namespace, name);
    if (subresource === 'scale') exchange.send(200, readScale(object));
    else sendObject(exchange, dependencies, resource, object);
  }
}

async function create(
  exchange: ApiExchange,
  dependencies: RestDependencies,
  path: ResourcePath,
): Promise<void> {
  const { store, now, pods, changed } = dependencies;
  const { resource, namespace } = path;
  const object = prepareCreate(store, resource, namespace, await exchange.readObject(), now());
  if (isDryRun(exchange)) {
    sendObject(exchange, dependencies, resource, object, 201);
    return;
  }
  const stored = store.create(resource, object);
  if (resource.kind === 'Pod') pods.started(stored);
  changed(resource, stored);
  sendObject(exchange, dependencies, resource, stored, 201);
}

async function change(
  exchange: ApiExchange,
  dependencies: RestDependencies,
  path: ResourcePath,
): Promise<void> {
  const { store, now } = dependencies;
  const { resource, namespace, name } = path;
  const body = await exchange.readBody();
  if (body === undefined) throw badRequest('the body of the request was empty');
  const current = store.get(resource, namespace, name);
  if (current === undefined) {
    // Server-side apply creates the object if it does not exist.
    if (exchange.method !== 'PATCH' || !exchange.contentType.startsWith('application/apply-patch')) {
      throw notFound(resource, name);
    }
    const object = withValue(isObject(body) ? body : {}, ['metadata', 'name'], name);
    const made = prepareCreate(store, resource, namespace, object, now());
    const created = isDryRun(exchange) ? made : store.create(resource, made);
    finishChange(exchange, dependencies, path, created, 201);
    return;
  }
  const revise = (before: ApiObject): ApiObject => reviseObject(exchange, path, before, body);
  if (isDryRun(exchange)) {
    sendObject(exchange, dependencies, resource, revise(current));
    return;
  }
  finishChange(exchange, dependencies, path, store.update(resource, namespace, name, revise), 200);
}

function finishChange(
  exchange: ApiExchange,
  dependencies: RestDependencies,
  { resource, subresource }: ResourcePath,
  stored: ApiObject,
  httpStatus: number,
): void {
  const dry = isDryRun(exchange);
  if (resource.kind === 'Pod' && !dry) {
    if (httpStatus === 201) dependencies.pods.started(stored);
    else dependencies.pods.updated(stored);
  }
  if (!dry) dependencies.changed(resource, stored);
  if (subresource === 'scale') exchange.send(httpStatus, readScale(stored));
  else sendObject(exchange, dependencies, resource, stored, httpStatus);
}

/** Returns the object that a PUT or PATCH results in. */
function reviseObject(
  exchange: ApiExchange,
  { resource, subresource }: ResourcePath,
  current: ApiObject,
  body: Json,
): ApiObject {
  const base = subresource === 'scale' ? readScale(current) : current;
  const next = exchange.method === 'PUT' ? body : applyPatch(exchange.contentType, base, body);
  if (subresource === 'scale') return writeScale(current, next);
  const part = subresource === 'status' || subresource === 'ephemeralcontainers' ? subresource : 'main';
  return prepareUpdate(resource, current, next, part);
}

function applyPatch(contentType: string, current: ApiObject, patch: Json): Json {
  const apply = PATCHES.get(contentType);
  if (apply === undefined) throw unsupportedMediaType([...PATCHES.keys()]);
  return apply(current, patch);
}

async function remove(
  exchange: ApiExchange,
  dependencies: RestDependencies,
  path: ResourcePath,
): Promise<void> {
  const { resource, namespace, name, subresource } = path;
  if (subresource !== '') throw methodNotAllowed();
  const options = (await exchange.readObject()) ?? {};
  const grace = numberAt(options, 'gracePeriodSeconds') ?? queryNumber(exchange.query, 'gracePeriodSeconds');
  const dry = isDryRun(exchange) || stringAt(options, 'dryRun', '0') === 'All';
  if (name === '') {
    const doomed = dependencies.store.list(resource, namespace, selectorOf(exchange.query, resource));
    if (!dry) for (const object of doomed) removeOne(dependencies, resource, object, grace);
    exchange.send(200, { kind: `${resource.kind}List`, apiVersion: 'v1', metadata: {}, items: doomed });
    return;
  }
  const object = dependencies.store.require(resource, namespace, name);
  const uid = stringAt(options, 'preconditions', 'uid');
  if (uid !== '' && uid !== identify(object).uid) throw notFound(resource, name);
  exchange.send(200, dry ? object : removeOne(dependencies, resource, object, grace));
}

function removeOne(
  { store, pods, changed }: RestDependencies,
  resource: Resource,
  object: ApiObject,
  grace: number | undefined,
): ApiObject {
  const { namespace, name } = identify(object);
  if (resource.kind === 'Pod') {
    const pod = pods.deletePod(namespace, name, grace);
    changed(resource, pod);
    return pod;
  }
  if (resource.kind === 'Namespace') return pods.deleteNamespace(name);
  const removed = store.remove(resource, namespace, name);
  changed(resource, removed);
  return successStatus({ ...detailsOf(resource, name), uid: identify(removed).uid });
}

function isDryRun({ query }: ApiExchange): boolean {
  return query.get('dryRun') === 'All';
}
