/** A supported resource, with the information that REST, discovery and OpenAPI need. */
export interface Resource {
  readonly group: string;
  readonly version: string;
  readonly plural: string;
  readonly singular: string;
  readonly kind: string;
  readonly namespaced: boolean;
  readonly shortNames: readonly string[];
  readonly categories: readonly string[];
  readonly verbs: readonly string[];
  readonly subresources: readonly Subresource[];
}

export interface Subresource {
  readonly name: string;
  /** Kind of the objects of a subresource: `{kind, group, version}`, if it differs from the kind of the parent. */
  readonly kind: string;
  readonly group?: string;
  readonly version?: string;
  readonly verbs: readonly string[];
}

const STORED_VERBS = [
  'create',
  'delete',
  'deletecollection',
  'get',
  'list',
  'patch',
  'update',
  'watch',
] as const;
const STATUS_VERBS = ['get', 'patch', 'update'] as const;

function stored(
  group: string,
  version: string,
  plural: string,
  kind: string,
  options: Partial<Resource> = {},
): Resource {
  return {
    group,
    version,
    plural,
    kind,
    singular: kind.toLowerCase(),
    namespaced: true,
    shortNames: [],
    categories: [],
    verbs: STORED_VERBS,
    subresources: [],
    ...options,
  };
}

const STATUS = (kind: string): Subresource => ({ name: 'status', kind, verbs: STATUS_VERBS });
const SCALE: Subresource = {
  name: 'scale',
  kind: 'Scale',
  group: 'autoscaling',
  version: 'v1',
  verbs: STATUS_VERBS,
};

function workload(plural: string, kind: string, shortName: string, scalable: boolean): Resource {
  return stored('apps', 'v1', plural, kind, {
    shortNames: [shortName],
    categories: ['all'],
    subresources: scalable ? [SCALE, STATUS(kind)] : [STATUS(kind)],
  });
}

function review(group: string, version: string, plural: string, kind: string, namespaced = false): Resource {
  return stored(group, version, plural, kind, { namespaced, verbs: ['create'] });
}

const POD_SUBRESOURCES: readonly Subresource[] = [
  { name: 'attach', kind: 'PodAttachOptions', verbs: ['create', 'get'] },
  { name: 'ephemeralcontainers', kind: 'Pod', verbs: ['get', 'patch', 'update'] },
  { name: 'exec', kind: 'PodExecOptions', verbs: ['create', 'get'] },
  { name: 'log', kind: 'Pod', verbs: ['get'] },
  { name: 'portforward', kind: 'PodPortForwardOptions', verbs: ['create', 'get'] },
  STATUS('Pod'),
];

/** All supported resources. */
export const RESOURCES: readonly Resource[] = [
  stored('', 'v1', 'configmaps', 'ConfigMap', { shortNames: ['cm'] }),
  stored('', 'v1', 'endpoints', 'Endpoints', { shortNames: ['ep'] }),
  stored('', 'v1', 'events', 'Event', { shortNames: ['ev'] }),
  stored('', 'v1', 'namespaces', 'Namespace', {
    namespaced: false,
    shortNames: ['ns'],
    verbs: STORED_VERBS.filter((verb) => verb !== 'deletecollection'),
    subresources: [{ name: 'finalize', kind: 'Namespace', verbs: ['update'] }, STATUS('Namespace')],
  }),
  stored('', 'v1', 'nodes', 'Node', {
    namespaced: false,
    shortNames: ['no'],
    subresources: [STATUS('Node')],
  }),
  stored('', 'v1', 'persistentvolumeclaims', 'PersistentVolumeClaim', { shortNames: ['pvc'] }),
  stored('', 'v1', 'persistentvolumes', 'PersistentVolume', { namespaced: false, shortNames: ['pv'] }),
  stored('', 'v1', 'pods', 'Pod', {
    shortNames: ['po'],
    categories: ['all'],
    subresources: POD_SUBRESOURCES,
  }),
  stored('', 'v1', 'resourcequotas', 'ResourceQuota', { shortNames: ['quota'] }),
  stored('', 'v1', 'limitranges', 'LimitRange', { shortNames: ['limits'] }),
  stored('', 'v1', 'secrets', 'Secret'),
  stored('', 'v1', 'serviceaccounts', 'ServiceAccount', { shortNames: ['sa'] }),
  stored('', 'v1', 'services', 'Service', {
    shortNames: ['svc'],
    categories: ['all'],
    subresources: [STATUS('Service')],
  }),
  workload('daemonsets', 'DaemonSet', 'ds', false),
  workload('deployments', 'Deployment', 'deploy', true),
  workload('replicasets', 'ReplicaSet', 'rs', true),
  workload('statefulsets', 'StatefulSet', 'sts', true),
  review('authentication.k8s.io', 'v1', 'selfsubjectreviews', 'SelfSubjectReview'),
  review('authentication.k8s.io', 'v1beta1', 'selfsubjectreviews', 'SelfSubjectReview'),
  review('authorization.k8s.io', 'v1', 'selfsubjectaccessreviews', 'SelfSubjectAccessReview'),
  review('authorization.k8s.io', 'v1', 'selfsubjectrulesreviews', 'SelfSubjectRulesReview'),
  review('authorization.k8s.io', 'v1', 'subjectaccessreviews', 'SubjectAccessReview'),
  review('authorization.k8s.io', 'v1', 'localsubjectaccessreviews', 'LocalSubjectAccessReview', true),
  stored('access.tailcast.dev', 'v1alpha1', 'accessrequests', 'AccessRequest', {
    namespaced: false,
    subresources: [STATUS('AccessRequest')],
  }),
  stored('coordination.k8s.io', 'v1', 'leases', 'Lease'),
  stored('rbac.authorization.k8s.io', 'v1', 'clusterrolebindings', 'ClusterRoleBinding', {
    namespaced: false,
  }),
  stored('rbac.authorization.k8s.io', 'v1', 'clusterroles', 'ClusterRole', { namespaced: false }),
  stored('rbac.authorization.k8s.io', 'v1', 'rolebindings', 'RoleBinding'),
  stored('rbac.authorization.k8s.io', 'v1', 'roles', 'Role'),
];

/** Returns the resource with a group, version and plural name from a URL, if it is supported. */
export function findResource(group: string, version: string, plural: string): Resource | undefined {
  return RESOURCES.find(
    (resource) => resource.plural === plural && resource.group === group && resource.version === version,
  );
}

/** Returns a resource that must exist. Throws if the resource does not exist, which is a programming error. */
export function requireResource(group: string, plural: string): Resource {
  const found = RESOURCES.find((resource) => resource.group === group && resource.plural === plural);
  if (found === undefined) throw new Error(`no resource ${plural} in group ${group}`);
  return found;
}

/** Returns the `apiVersion` of a resource, such as `v1` or `apps/v1`. */
export function apiVersionOf({
  group,
  version,
}: {
  readonly group: string;
  readonly version: string;
}): string {
  return group === '' ? version : `${group}/${version}`;
}

/** True if the store contains objects of this resource. Reviews are not stored. */
export function isStored(resource: Resource): boolean {
  return resource.verbs.includes('get');
}

export const PODS = requireResource('', 'pods');
export const NAMESPACES = requireResource('', 'namespaces');
export const EVENTS = requireResource('', 'events');
export const CONFIGMAPS = requireResource('', 'configmaps');
export const SERVICE_ACCOUNTS = requireResource('', 'serviceaccounts');
