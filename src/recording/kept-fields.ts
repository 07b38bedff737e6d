/**
 * Allowlist for the bodies in API request events: for each kind of object, the fields whose values an event contains.
 * For all other fields, an event contains only the field name, or nothing. For an object of an unlisted kind, events
 * contain only its metadata and its containers. The list contains the fields that show an auditor which user got which
 * rights, and which program was started. The list never contains tokens, URLs of webhooks, or values that programs read
 * (environment, annotations, data). Pure.
 */
import { KNOWN_SUBRESOURCES } from '../kube/interactive.ts';
import type { RequestInfo } from '../kube/request-info.ts';

/**
 * - `all`: the unchanged value
 * - `words`: a command or its arguments, without values that look like secrets
 * - `path`: a path, without its query
 * - `names`: the keys, without their values
 * - `containers`: the fields in `CONTAINER` of each container at any depth
 * - `each`: the shape that applies to each item of a list or to each value of a mapping
 * - `fields`: the shape of each named field. `others` is the shape of all other fields; by default, events
 *   contain only their names
 */
export type Shape =
  | 'all'
  | 'words'
  | 'path'
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

/** Returns a shape that keeps type, name and labels of an object, and these fields. */
const object = (more: Readonly<Record<string, Shape>> = {}): Shape => fields({ ...HEAD, ...more });

/**
 * Shape of probes and lifecycle hooks. Events contain their commands and arguments, because these show which
 * program was started.
 */
const HANDLER = fields({
  exec: fields({ command: 'words' }),
  httpGet: fields({ path: 'path', ...all('port', 'host', 'scheme') }),
  ...all('tcpSocket', 'grpc', 'sleep', '$patch'),
});
const PROBES = { livenessProbe: HANDLER, readinessProbe: HANDLER, startupProbe: HANDLER };
const CONTAINER = fields({
  ...PROBES,
  lifecycle: fields({ postStart: HANDLER, preStop: HANDLER, ...all('stopSignal', '$patch') }),
  command: 'words',
  args: 'words',
  ...all('name', 'image', 'workingDir', 'tty', 'stdin', 'stdinOnce', 'ports', '$patch'),
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
/** Fields that contain containers in pod templates and in custom resources with the same structure. */
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

/** Shapes by `<API group>/<resource>[/<subresource>]`. The name of the core group is empty. */
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

/** Subresources whose query names the requested command, ports or log. */
const TELLING_QUERIES: ReadonlySet<string> = new Set(['exec', 'attach', 'portforward', 'log']);

/**
 * Query parameters of requests to a kubelet. Events contain their values. All other parameters of `nodes/proxy`
 * requests are omitted, because the proxy may forward them to another program, whose parameters may be secret.
 */
const KUBELET_PARAMETERS: ReadonlySet<string> = new Set(
  [
    'command cmd input stdin output stdout error stderr tty port container',
    'follow tailLines limitBytes previous sinceSeconds sinceTime timestamps',
  ].flatMap((names) => names.split(' ')),
);

type Asked = Pick<
  RequestInfo,
  'isResourceRequest' | 'apiPrefix' | 'apiGroup' | 'resource' | 'subresource' | 'verb' | 'parts'
>;

/**
 * Returns the shape of a request body. Returns undefined if a program behind the API server reads the body.
 */
export function keptOfBody(info: Asked): Shape | undefined {
  const { isResourceRequest, apiGroup, resource, subresource, verb, parts } = info;
  if (!isResourceRequest || parts.length > 3 || !isOwn(subresource)) return undefined;
  if (verb === 'delete' || verb === 'deletecollection') return DELETE_OPTIONS;
  if (subresource === 'scale') return SCALE;
  return KINDS.get(`${apiGroup}/${resource}${subresource === '' ? '' : `/${subresource}`}`) ?? ANY_OBJECT;
}

/**
 * Returns the query parameters whose values events contain. Only parameters that Kubernetes itself reads are included,
 * because parameters of other programs may be secret.
 */
export function keptParameters(info: Asked): ReadonlySet<string> | 'all' | undefined {
  const { isResourceRequest, apiPrefix, resource, subresource, parts } = info;
  if (!isResourceRequest) return undefined;
  if (apiPrefix === 'api' && resource === 'nodes' && subresource === 'proxy') return KUBELET_PARAMETERS;
  return parts.length <= 3 && (isOwn(subresource) || TELLING_QUERIES.has(subresource)) ? 'all' : undefined;
}

/**
 * Returns true if Kubernetes itself, and not a program behind it, reads body and query of the subresource.
 */
function isOwn(subresource: string): boolean {
  return subresource === '' || KNOWN_SUBRESOURCES.has(subresource);
}
