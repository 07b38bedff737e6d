import { randomInt, randomUUID } from 'node:crypto';
import { badRequest, forbidden, invalid, notFound } from './api-status.ts';
import { timestamp } from './container.ts';
import {
  arrayAt,
  isObject,
  numberAt,
  objectAt,
  equalJson,
  stringAt,
  withValue,
  type Json,
  type ApiObject,
} from './json.ts';
import { apiVersionOf, NAMESPACES, type Resource } from './resources.ts';
import type { Store } from './store.ts';

/** Name of the only node of the cluster. */
export const NODE_NAME = 'demo-node';

const NAME = /^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$/;
const RBAC_NAME = /^[^/%]{1,253}$/;
const SUFFIX_ALPHABET = 'bcdfghjklmnpqrstvwxz2456789';

/**
 * Checks the object of a POST, and returns it with a name and the API server's defaults. Throws 400, 403, 404 and 422
 * errors like the API server. `now` is the creation time of the object.
 */
export function prepareCreate(
  store: Store,
  resource: Resource,
  namespace: string,
  body: ApiObject | undefined,
  now: Date,
): ApiObject {
  const object = checkIdentity(resource, namespace, body);
  if (resource.namespaced) requireLiveNamespace(store, resource, namespace);
  const generate = stringAt(object, 'metadata', 'generateName');
  const name = stringAt(object, 'metadata', 'name') || (generate === '' ? '' : generate + randomSuffix());
  checkName(resource, name);
  const metadata: ApiObject = {
    ...withoutServerFields(objectAt(object, 'metadata')),
    name,
    ...(resource.namespaced ? { namespace } : {}),
    uid: randomUUID(),
    creationTimestamp: timestamp(now),
    ...(object['spec'] === undefined ? {} : { generation: 1 }),
  };
  const named = { ...object, kind: resource.kind, apiVersion: apiVersionOf(resource), metadata };
  return withDefaults(resource, named);
}

/**
 * Checks the object of a PUT or PATCH, and returns the object to store. Server-owned fields stay. `part` is the part
 * of the object that the request may change. Throws 400 and 422 errors.
 */
export function prepareUpdate(
  resource: Resource,
  current: ApiObject,
  next: Json | undefined,
  part: 'main' | 'status' | 'ephemeralcontainers',
): ApiObject {
  const namespace = stringAt(current, 'metadata', 'namespace');
  const object = checkIdentity(resource, namespace, isObject(next) ? next : undefined);
  const name = stringAt(current, 'metadata', 'name');
  if (stringAt(object, 'metadata', 'name') !== name) {
    throw badRequest(
      `the name of the object (${stringAt(object, 'metadata', 'name')}) does not match the name on the URL (${name})`,
    );
  }
  if (part === 'status') {
    return { ...current, ...(object['status'] === undefined ? {} : { status: object['status'] }) };
  }
  const owned = objectAt(current, 'metadata');
  const metadata: ApiObject = {
    ...objectAt(object, 'metadata'),
    uid: owned['uid'],
    creationTimestamp: owned['creationTimestamp'],
    deletionTimestamp: owned['deletionTimestamp'],
    deletionGracePeriodSeconds: owned['deletionGracePeriodSeconds'],
    generation: owned['generation'],
  };
  const kept = { ...object, kind: current['kind'], apiVersion: current['apiVersion'], metadata };
  if (part === 'ephemeralcontainers') {
    return withValue(
      current,
      ['spec', 'ephemeralContainers'],
      arrayAt(object, 'spec', 'ephemeralContainers'),
    );
  }
  const merged: ApiObject = hasStatus(resource) ? { ...kept, status: current['status'] } : kept;
  if (equalJson(merged['spec'], current['spec'])) return merged;
  return withValue(merged, ['metadata', 'generation'], (numberAt(owned, 'generation') ?? 0) + 1);
}

function hasStatus(resource: Resource): boolean {
  return resource.subresources.some(({ name }) => name === 'status');
}

function checkIdentity(resource: Resource, namespace: string, body: ApiObject | undefined): ApiObject {
  if (body === undefined) throw badRequest('the body of the request was empty');
  const kind = stringAt(body, 'kind') || resource.kind;
  const apiVersion = stringAt(body, 'apiVersion') || apiVersionOf(resource);
  if (kind !== resource.kind || apiVersion !== apiVersionOf(resource)) {
    throw badRequest(
      `${resource.kind} in version "${resource.version}" cannot be handled as a ${resource.kind}: ` +
        `no kind "${kind}" is registered for version "${apiVersion}" at this path`,
    );
  }
  const own = stringAt(body, 'metadata', 'namespace');
  if (own !== '' && own !== namespace) {
    throw badRequest('the namespace of the provided object does not match the namespace sent on the request');
  }
  return body;
}

function requireLiveNamespace(store: Store, resource: Resource, namespace: string): void {
  const found = store.get(NAMESPACES, '', namespace);
  if (found === undefined) throw notFound(NAMESPACES, namespace);
  if (stringAt(found, 'metadata', 'deletionTimestamp') !== '') {
    throw forbidden(`unable to create new content in namespace ${namespace} because it is being terminated`, {
      kind: resource.plural,
    });
  }
}

function checkName(resource: Resource, name: string): void {
  if (name === '') {
    throw invalid(
      resource.kind,
      '',
      'metadata.name',
      'Required value: name or generateName is required',
      'FieldValueRequired',
    );
  }
  if (resource.group === 'rbac.authorization.k8s.io' ? RBAC_NAME.test(name) : NAME.test(name)) return;
  throw invalid(
    resource.kind,
    name,
    'metadata.name',
    `Invalid value: ${JSON.stringify(name)}: a lowercase RFC 1123 subdomain must consist of lower case alphanumeric ` +
      `characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', ` +
      'regex used for ' +
      `validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')`,
  );
}

function randomSuffix(): string {
  return Array.from({ length: 5 }, () => SUFFIX_ALPHABET[randomInt(SUFFIX_ALPHABET.length)] ?? '').join('');
}

function withoutServerFields(metadata: ApiObject): ApiObject {
  const {
    resourceVersion: _version,
    uid: _uid,
    creationTimestamp: _time,
    managedFields: _fields,
    ...rest
  } = metadata;
  return rest;
}

function withDefaults(resource: Resource, object: ApiObject): ApiObject {
  switch (resource.kind) {
    case 'Pod':
      return defaultPod(object);
    case 'Namespace': {
      const name = stringAt(object, 'metadata', 'name');
      const labeled = withValue(object, ['metadata', 'labels', 'kubernetes.io/metadata.name'], name);
      return { ...labeled, spec: { finalizers: ['kubernetes'] }, status: { phase: 'Active' } };
    }
    case 'Secret':
      return { type: 'Opaque', ...object };
    case 'Service':
      return {
        ...object,
        spec: {
          type: 'ClusterIP',
          clusterIP: `10.43.${String(randomInt(1, 255))}.${String(randomInt(1, 255))}`,
          sessionAffinity: 'None',
          ...objectAt(object, 'spec'),
        },
        status: { loadBalancer: {} },
      };
    default:
      return object;
  }
}

function defaultPod(pod: ApiObject): ApiObject {
  const containers = arrayAt(pod, 'spec', 'containers');
  const name = stringAt(pod, 'metadata', 'name');
  if (containers.length === 0)
    throw invalid('Pod', name, 'spec.containers', 'Required value', 'FieldValueRequired');
  const names = containers.map((container) => stringAt(container, 'name'));
  names.forEach((container, index) => {
    const field = `spec.containers[${String(index)}].name`;
    if (!NAME.test(container)) throw invalid('Pod', name, field, 'Required value', 'FieldValueRequired');
    if (names.indexOf(container) !== index) {
      throw invalid(
        'Pod',
        name,
        field,
        `Duplicate value: ${JSON.stringify(container)}`,
        'FieldValueDuplicate',
      );
    }
  });
  return {
    ...pod,
    spec: {
      restartPolicy: 'Always',
      terminationGracePeriodSeconds: 30,
      dnsPolicy: 'ClusterFirst',
      securityContext: {},
      schedulerName: 'default-scheduler',
      serviceAccountName: 'default',
      serviceAccount: 'default',
      enableServiceLinks: true,
      ...objectAt(pod, 'spec'),
      nodeName: NODE_NAME,
      containers: containers.map((container) => ({
        resources: {},
        terminationMessagePath: '/dev/termination-log',
        terminationMessagePolicy: 'File',
        imagePullPolicy: 'Always',
        ...(isObject(container) ? container : {}),
      })),
    },
    status: { phase: 'Pending', qosClass: 'BestEffort' },
  };
}
