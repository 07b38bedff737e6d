/**
 * What of a request's body an event may hold, kind by kind: a list of what is kept, so that a field, a kind or an API group
 * that nobody has thought of is left out. What decides is whether an auditor needs it to see who was given which right, or
 * what was started; never kept are values that programs read (environment, annotations, data), addresses of webhooks with
 * their queries, and tokens. Pure.
 */
import { KNOWN_SUBRESOURCES } from '../kube/interactive.ts';
import type { RequestInfo } from '../kube/request-info.ts';

/**
 * - `all`: the value as it is
 * - `names`: its keys, and nothing of what is under them
 * - `containers`: of the containers that are anywhere in the value, what `CONTAINER` keeps; of the rest nothing
 * - `each`: of every item of a list, or every value of a mapping
 * - `fields`: of the named members; of others what `others` keeps, by default only the name
 */
export type Shape =
  | 'all'
  | 'names'
  | 'containers'
  | { readonly each: Shape }
  | { readonly fields: Readonly<Record<string, Shape>>; readonly others?: Shape };

const fields = (named: Readonly<Record<string, Shape>>): Shape => ({ fields: named });
const each = (shape: Shape): Shape => ({ each: shape });
const all = (...names: readonly string[]): Readonly<Record<string, Shape>> =>
  Object.fromEntries(names.map((name) => [name, 'all']));

const METADATA = fields({
  ...all('name', 'namespace', 'generateName', 'uid', 'resourceVersion', 'labels', 'finalizers'),
  ...all('ownerReferences', 'creationTimestamp'),
  annotations: 'names',
});
const HEAD = { ...all('apiVersion', 'kind', '$patch'), metadata: METADATA };

/** An object of which more is kept than what every object has: type, name, labels. */
const object = (more: Readonly<Record<string, Shape>> = {}): Shape => fields({ ...HEAD, ...more });

/** Commands and arguments are what an event about a program is for; a password among them is in it. */
const HANDLER = fields({
  exec: fields(all('command')),
  httpGet: fields(all('path', 'port', 'host', 'scheme')),
  ...all('tcpSocket', 'grpc', 'sleep', '$patch'),
});
const PROBES = { livenessProbe: HANDLER, readinessProbe: HANDLER, startupProbe: HANDLER };
const CONTAINER = fields({
  ...PROBES,
  lifecycle: fields({ postStart: HANDLER, preStop: HANDLER, ...all('stopSignal', '$patch') }),
  ...all('name', 'image', 'command', 'args', 'workingDir', 'tty', 'stdin', 'stdinOnce', 'ports', '$patch'),
  ...all('resources', 'securityContext', 'volumeMounts', 'volumeDevices', 'imagePullPolicy', 'restartPolicy'),
  ...all('targetContainerName', 'envFrom', 'terminationMessagePath', 'terminationMessagePolicy'),
  env: each(fields(all('name', 'valueFrom', '$patch'))),
});
const POD_SPEC = fields({
  containers: each(CONTAINER),
  initContainers: each(CONTAINER),
  ephemeralContainers: each(CONTAINER),
  volumes: each(
    fields(all('name', 'hostPath', 'secret', 'configMap', 'projected', 'emptyDir', 'persistentVolumeClaim')),
  ),
  ...all('hostNetwork', 'hostPID', 'hostIPC', 'hostUsers', 'nodeName', 'nodeSelector', 'tolerations'),
  ...all('serviceAccountName', 'serviceAccount', 'automountServiceAccountToken', 'imagePullSecrets'),
  ...all('securityContext', 'runtimeClassName', 'restartPolicy', 'priorityClassName'),
  ...all('activeDeadlineSeconds', 'terminationGracePeriodSeconds', 'shareProcessNamespace'),
});
/** Members that hold containers in pod templates, and in custom resources that follow their form. */
export const CONTAINER_MEMBERS: Readonly<Record<string, Shape>> = {
  containers: each(CONTAINER),
  initContainers: each(CONTAINER),
  ephemeralContainers: each(CONTAINER),
  container: CONTAINER,
};
const POD = object({ spec: POD_SPEC });
const TEMPLATE = fields({ metadata: METADATA, spec: POD_SPEC });
const WORKLOAD_SPEC = fields({
  ...all('replicas', 'selector', 'serviceName', 'parallelism', 'completions', 'suspend', 'paused'),
  template: TEMPLATE,
});
const WORKLOAD = object({ spec: WORKLOAD_SPEC });
const CRON_JOB = object({
  spec: fields({
    ...all('schedule', 'timeZone', 'suspend', 'concurrencyPolicy'),
    jobTemplate: fields({ metadata: METADATA, spec: WORKLOAD_SPEC }),
  }),
});
const BINDING = object(all('roleRef', 'subjects'));
const ROLE = object(all('rules', 'aggregationRule'));
const REVIEW = object({
  spec: fields(all('user', 'groups', 'uid', 'namespace', 'resourceAttributes', 'nonResourceAttributes')),
});
const WEBHOOKS = object({
  webhooks: each(
    fields({
      ...all('name', 'rules', 'failurePolicy', 'matchPolicy', 'sideEffects', 'timeoutSeconds', '$patch'),
      ...all('namespaceSelector', 'objectSelector', 'matchConditions', 'admissionReviewVersions'),
      ...all('reinvocationPolicy'),
      clientConfig: fields(all('service')),
    }),
  ),
});
const POLICY = object(all('spec'));
const DATA = object({ ...all('type', 'immutable'), data: 'names', stringData: 'names', binaryData: 'names' });

/** By API group (none: the core's), resource and subresource. */
const KINDS: ReadonlyMap<string, Shape> = new Map([
  ['/pods', POD],
  ['/pods/ephemeralcontainers', POD],
  ['/pods/resize', POD],
  ['/pods/binding', object(all('target'))],
  ['/pods/eviction', object({ deleteOptions: fields(all('gracePeriodSeconds', 'propagationPolicy')) })],
  ['/bindings', object(all('target'))],
  ['/replicationcontrollers', WORKLOAD],
  ['/podtemplates', object({ template: TEMPLATE })],
  ['/secrets', DATA],
  ['/configmaps', DATA],
  ['/serviceaccounts', object(all('secrets', 'imagePullSecrets', 'automountServiceAccountToken'))],
  [
    '/serviceaccounts/token',
    object({ spec: fields(all('audiences', 'expirationSeconds', 'boundObjectRef')) }),
  ],
  ['/nodes', object({ spec: fields(all('taints', 'unschedulable')) })],
  ['/services', object({ spec: fields(all('ports', 'selector', 'type', 'externalName', 'externalIPs')) })],
  ['apps/deployments', WORKLOAD],
  ['apps/statefulsets', WORKLOAD],
  ['apps/daemonsets', WORKLOAD],
  ['apps/replicasets', WORKLOAD],
  ['extensions/deployments', WORKLOAD],
  ['extensions/daemonsets', WORKLOAD],
  ['extensions/replicasets', WORKLOAD],
  ['batch/jobs', WORKLOAD],
  ['batch/cronjobs', CRON_JOB],
  ['networking.k8s.io/networkpolicies', POLICY],
  ['rbac.authorization.k8s.io/roles', ROLE],
  ['rbac.authorization.k8s.io/clusterroles', ROLE],
  ['rbac.authorization.k8s.io/rolebindings', BINDING],
  ['rbac.authorization.k8s.io/clusterrolebindings', BINDING],
  ['authorization.k8s.io/subjectaccessreviews', REVIEW],
  ['authorization.k8s.io/localsubjectaccessreviews', REVIEW],
  ['authorization.k8s.io/selfsubjectaccessreviews', REVIEW],
  ['authorization.k8s.io/selfsubjectrulesreviews', REVIEW],
  ['authentication.k8s.io/tokenreviews', object({ spec: fields(all('audiences')) })],
  [
    'certificates.k8s.io/certificatesigningrequests',
    object({ spec: fields(all('signerName', 'usages', 'expirationSeconds')) }),
  ],
  ['certificates.k8s.io/certificatesigningrequests/approval', object({ status: fields(all('conditions')) })],
  ['admissionregistration.k8s.io/validatingwebhookconfigurations', WEBHOOKS],
  ['admissionregistration.k8s.io/mutatingwebhookconfigurations', WEBHOOKS],
  ['admissionregistration.k8s.io/validatingadmissionpolicies', POLICY],
  ['admissionregistration.k8s.io/validatingadmissionpolicybindings', POLICY],
  ['admissionregistration.k8s.io/mutatingadmissionpolicies', POLICY],
  ['admissionregistration.k8s.io/mutatingadmissionpolicybindings', POLICY],
  [
    'apiregistration.k8s.io/apiservices',
    object({
      spec: fields(
        all(
          'group',
          'version',
          'service',
          'insecureSkipTLSVerify',
          'groupPriorityMinimum',
          'versionPriority',
        ),
      ),
    }),
  ],
]);
const ANY_OBJECT: Shape = { fields: HEAD, others: 'containers' };
const SCALE = object({ spec: fields(all('replicas')) });
const DELETE_OPTIONS = fields(
  all(
    'apiVersion',
    'kind',
    'gracePeriodSeconds',
    'propagationPolicy',
    'preconditions',
    'orphanDependents',
    'dryRun',
  ),
);

/** Their queries say what was run, or read. */
const TELLING_QUERIES: ReadonlySet<string> = new Set(['exec', 'attach', 'portforward', 'log']);

type Asked = Pick<
  RequestInfo,
  'isResourceRequest' | 'apiPrefix' | 'apiGroup' | 'resource' | 'subresource' | 'verb' | 'parts'
>;

/** What is kept of a body; undefined: nothing of it, as it is not for Kubernetes but for a program behind it. */
export function keptOfBody(info: Asked): Shape | undefined {
  const { isResourceRequest, apiGroup, resource, subresource, verb, parts } = info;
  if (!isResourceRequest || parts.length > 3 || !isOwn(subresource)) return undefined;
  if (verb === 'delete' || verb === 'deletecollection') return DELETE_OPTIONS;
  if (subresource === 'scale') return SCALE;
  return KINDS.get(`${apiGroup}/${resource}${subresource === '' ? '' : `/${subresource}`}`) ?? ANY_OBJECT;
}

/** Whether the query is Kubernetes' own, or says what the kubelet is to do: of other programs it may hold passwords. */
export function keepsQuery({ isResourceRequest, apiPrefix, resource, subresource, parts }: Asked): boolean {
  if (!isResourceRequest) return false;
  if (apiPrefix === 'api' && resource === 'nodes' && subresource === 'proxy') return true;
  return parts.length <= 3 && (isOwn(subresource) || TELLING_QUERIES.has(subresource));
}

/** Whether body and query are Kubernetes' own, and not those of a program that is reached through the subresource. */
function isOwn(subresource: string): boolean {
  return subresource === '' || KNOWN_SUBRESOURCES.has(subresource);
}
