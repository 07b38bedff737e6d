import { humanDuration } from './human-duration.ts';
import { arrayAt, numberAt, objectAt, stringAt, stringMapAt, type Json, type ApiObject } from './json.ts';
import { summarizePod } from './pod-summary.ts';
import { qualified } from './api-status.ts';
import type { Resource } from './resources.ts';

/** Table that `kubectl get` requests: its API version, and the part of the object that each row includes. */
export interface TableRequest {
  readonly version: 'v1' | 'v1beta1';
  readonly includeObject: 'Metadata' | 'Object' | 'None';
}

/**
 * Returns the first supported `as=Table` alternative in an Accept header. Returns undefined if the client requests
 * plain objects.
 */
export function parseTableRequest(accept: string, includeObject: string | null): TableRequest | undefined {
  for (const alternative of accept.split(',')) {
    const [type = '', ...pairs] = alternative.split(';').map((part) => part.trim());
    if (type !== 'application/json' && type !== '*/*') continue;
    const parameters = new Map(
      pairs.map((pair): [string, string] => [
        pair.slice(0, pair.indexOf('=')),
        pair.slice(pair.indexOf('=') + 1),
      ]),
    );
    if (!parameters.has('as')) return undefined;
    const version = parameters.get('v');
    if (parameters.get('as') !== 'Table' || parameters.get('g') !== 'meta.k8s.io') continue;
    if (version !== 'v1' && version !== 'v1beta1') continue;
    const include = includeObject === 'Object' || includeObject === 'None' ? includeObject : 'Metadata';
    return { version, includeObject: include };
  }
  return undefined;
}

export interface TableOptions {
  readonly request: TableRequest;
  /** Metadata of the list. */
  readonly metadata: ApiObject;
  /** Current time, from which ages are computed. */
  readonly now: Date;
  /** True if the client already has the columns. */
  readonly withoutColumns?: boolean;
}

/** Returns `objects` as a `meta.k8s.io` Table with columns and rows. */
export function encodeTable(
  resource: Resource,
  objects: readonly ApiObject[],
  options: TableOptions,
): ApiObject {
  const columns = COLUMNS[qualified(resource)] ?? DEFAULT_COLUMNS;
  return {
    kind: 'Table',
    apiVersion: `meta.k8s.io/${options.request.version}`,
    metadata: options.metadata,
    columnDefinitions: options.withoutColumns === true ? [] : columns.map(defineColumn),
    rows: objects.map((object) => ({
      cells: columns.map((column) => column.cell(object, options.now)),
      ...(options.request.includeObject === 'None' ? {} : { object: rowObject(object, options.request) }),
    })),
  };
}

function rowObject(object: ApiObject, { version, includeObject }: TableRequest): ApiObject {
  if (includeObject === 'Object') return object;
  return {
    kind: 'PartialObjectMetadata',
    apiVersion: `meta.k8s.io/${version}`,
    metadata: objectAt(object, 'metadata'),
  };
}

interface Column {
  readonly name: string;
  readonly type: 'string' | 'integer';
  readonly wide: boolean;
  readonly cell: (object: ApiObject, now: Date) => Json;
}

function defineColumn({ name, type, wide }: Column): ApiObject {
  return {
    name,
    type,
    format: name === 'Name' ? 'name' : '',
    description: name,
    priority: wide ? 1 : 0,
  };
}

function text(name: string, cell: (object: ApiObject, now: Date) => string, wide = false): Column {
  return { name, type: 'string', wide, cell };
}

function count(name: string, cell: (object: ApiObject) => number): Column {
  return { name, type: 'integer', wide: false, cell };
}

const NAME = text('Name', (object) => stringAt(object, 'metadata', 'name'));
const AGE = text('Age', (object, now) => since(stringAt(object, 'metadata', 'creationTimestamp'), now));
const DEFAULT_COLUMNS: readonly Column[] = [
  NAME,
  text('Created At', (object) => stringAt(object, 'metadata', 'creationTimestamp')),
];

function field(name: string, path: readonly string[], wide = false, fallback = '<none>'): Column {
  return text(name, (object) => stringAt(object, ...path) || fallback, wide);
}

function size(name: string, member: string): Column {
  return count(name, (object) => Object.keys(objectAt(object, member)).length);
}

function selectorText(object: ApiObject, ...path: readonly string[]): string {
  const pairs = [...stringMapAt(object, ...path)].map(([key, value]) => `${key}=${value}`);
  return pairs.length === 0 ? '<none>' : pairs.join(',');
}

const CONTAINER_COLUMNS: readonly Column[] = [
  text('Containers', (object) => templateList(object, 'name'), true),
  text('Images', (object) => templateList(object, 'image'), true),
  text('Selector', (object) => selectorText(object, 'spec', 'selector', 'matchLabels'), true),
];

function templateList(object: ApiObject, member: string): string {
  return arrayAt(object, 'spec', 'template', 'spec', 'containers')
    .map((container) => stringAt(container, member))
    .join(',');
}

const COLUMNS: Readonly<Record<string, readonly Column[]>> = {
  pods: [
    NAME,
    text('Ready', (pod) => summarizePod(pod).ready),
    text('Status', (pod) => summarizePod(pod).status),
    text('Restarts', restarts),
    AGE,
    field('IP', ['status', 'podIP'], true),
    field('Node', ['spec', 'nodeName'], true),
    field('Nominated Node', ['status', 'nominatedNodeName'], true),
    text('Readiness Gates', () => '<none>', true),
  ],
  namespaces: [NAME, field('Status', ['status', 'phase']), AGE],
  nodes: [
    NAME,
    text('Status', nodeStatus),
    text('Roles', nodeRoles),
    AGE,
    field('Version', ['status', 'nodeInfo', 'kubeletVersion']),
    text('Internal-IP', (node) => nodeAddress(node, 'InternalIP'), true),
    text('External-IP', (node) => nodeAddress(node, 'ExternalIP'), true),
    field('OS-Image', ['status', 'nodeInfo', 'osImage'], true),
    field('Kernel-Version', ['status', 'nodeInfo', 'kernelVersion'], true),
    field('Container-Runtime', ['status', 'nodeInfo', 'containerRuntimeVersion'], true),
  ],
  services: [
    NAME,
    field('Type', ['spec', 'type']),
    field('Cluster-IP', ['spec', 'clusterIP']),
    text('External-IP', () => '<none>'),
    text('Port(s)', servicePorts),
    AGE,
    text('Selector', (service) => selectorText(service, 'spec', 'selector'), true),
  ],
  endpoints: [
    NAME,
    text('Endpoints', (endpoints) => (arrayAt(endpoints, 'subsets').length === 0 ? '<none>' : '<set>')),
    AGE,
  ],
  configmaps: [NAME, size('Data', 'data'), AGE],
  secrets: [NAME, field('Type', ['type']), size('Data', 'data'), AGE],
  serviceaccounts: [NAME, count('Secrets', (account) => arrayAt(account, 'secrets').length), AGE],
  events: [
    text('Last Seen', (event, now) => since(stringAt(event, 'lastTimestamp'), now)),
    field('Type', ['type']),
    field('Reason', ['reason']),
    text('Object', eventObject),
    field('Subobject', ['involvedObject', 'fieldPath'], true, ''),
    field('Source', ['source', 'component'], true, ''),
    field('Message', ['message'], false, ''),
    text('First Seen', (event, now) => since(stringAt(event, 'firstTimestamp'), now), true),
    { ...count('Count', (event) => numberAt(event, 'count') ?? 1), wide: true },
    { ...NAME, wide: true },
  ],
  'deployments.apps': [
    NAME,
    text('Ready', (object) => fraction(object, 'readyReplicas')),
    count('Up-to-date', (object) => numberAt(object, 'status', 'updatedReplicas') ?? 0),
    count('Available', (object) => numberAt(object, 'status', 'availableReplicas') ?? 0),
    AGE,
    ...CONTAINER_COLUMNS,
  ],
  'replicasets.apps': [
    NAME,
    count('Desired', (object) => numberAt(object, 'spec', 'replicas') ?? 0),
    count('Current', (object) => numberAt(object, 'status', 'replicas') ?? 0),
    count('Ready', (object) => numberAt(object, 'status', 'readyReplicas') ?? 0),
    AGE,
    ...CONTAINER_COLUMNS,
  ],
  'statefulsets.apps': [NAME, text('Ready', (object) => fraction(object, 'readyReplicas')), AGE],
  'daemonsets.apps': [
    NAME,
    count('Desired', (object) => numberAt(object, 'status', 'desiredNumberScheduled') ?? 0),
    count('Current', (object) => numberAt(object, 'status', 'currentNumberScheduled') ?? 0),
    count('Ready', (object) => numberAt(object, 'status', 'numberReady') ?? 0),
    AGE,
  ],
  'leases.coordination.k8s.io': [NAME, field('Holder', ['spec', 'holderIdentity']), AGE],
};

/** Returns the text of the column AGE for an RFC 3339 time. */
function since(time: string, now: Date): string {
  const ms = Date.parse(time);
  return Number.isNaN(ms) ? '<unknown>' : humanDuration(now.getTime() - ms);
}

function restarts(pod: ApiObject, now: Date): string {
  const { restarts: times, lastRestart } = summarizePod(pod);
  return times === 0 || lastRestart === ''
    ? String(times)
    : `${String(times)} (${since(lastRestart, now)} ago)`;
}

function nodeStatus(node: ApiObject): string {
  const ready = arrayAt(node, 'status', 'conditions').find(
    (condition) => stringAt(condition, 'type') === 'Ready',
  );
  const state = stringAt(ready, 'status') === 'True' ? 'Ready' : 'NotReady';
  return objectAt(node, 'spec')['unschedulable'] === true ? `${state},SchedulingDisabled` : state;
}

function nodeRoles(node: ApiObject): string {
  const prefix = 'node-role.kubernetes.io/';
  const roles = [...stringMapAt(node, 'metadata', 'labels').keys()].flatMap((key) =>
    key.startsWith(prefix) ? [key.slice(prefix.length)] : [],
  );
  return roles.length === 0 ? '<none>' : roles.join(',');
}

function nodeAddress(node: ApiObject, type: string): string {
  const found = arrayAt(node, 'status', 'addresses').find((address) => stringAt(address, 'type') === type);
  return stringAt(found, 'address') || '<none>';
}

function servicePorts(service: ApiObject): string {
  const ports = arrayAt(service, 'spec', 'ports').map(
    (port) => `${String(numberAt(port, 'port') ?? 0)}/${stringAt(port, 'protocol') || 'TCP'}`,
  );
  return ports.length === 0 ? '<none>' : ports.join(',');
}

function eventObject(event: ApiObject): string {
  return `${stringAt(event, 'involvedObject', 'kind').toLowerCase()}/${stringAt(event, 'involvedObject', 'name')}`;
}

function fraction(object: ApiObject, member: string): string {
  return `${String(numberAt(object, 'status', member) ?? 0)}/${String(numberAt(object, 'spec', 'replicas') ?? 0)}`;
}
