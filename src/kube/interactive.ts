/**
 * Classifies requests that can carry a session. An upgrade that matches no other class is classified as `opaqueUpgrade`
 * and never as `plain`, so unknown upgrades are not treated as harmless.
 */
import { TailcastError } from '../errors.ts';
import type { RequestInfo } from './request-info.ts';

/**
 * - `exec`, `attach`: a request for the subresource of this name, with any API group, version and method
 * - `portForward`: `pods/portforward`
 * - `nodeProxy`: `nodes/<name>/proxy`, which also leads to the kubelet's own exec, run and attach, even without an
 *   upgrade
 * - `podProxy`, `serviceProxy`: a request to a program in a pod or behind a Service; the caller also checks `upgrade`
 * - `otherProxy`: the subresource `proxy` of another resource, or a later path segment `proxy`. Such a request may go
 *   to the API of another cluster or node, which the gateway cannot parse
 * - `ephemeralContainers`: a write to `pods/ephemeralcontainers`
 * - `accessChange`: a write of credentials, rights or admission rules, which could be used to bypass a gateway. The
 *   objects are Secrets (Kubernetes adds a token to Secrets of type `service-account-token`), tokens, certificates,
 *   RBAC, webhooks, admission policies, custom resource definitions (which configure conversion webhooks), API
 *   services, and ConfigMaps of `kube-system` that grant access, such as `aws-auth`
 * - `workload`: a create, update or patch of a Kubernetes object with a pod template, which contains commands
 * - `customResource`: a create, update or patch of an object (or its subresource) in an API group that is not part of
 *   Kubernetes; the controller of the object may start programs
 * - `secretRead`: a get, list or watch of Secrets, which may contain credentials
 * - `unknownSubresource`: a request for a subresource that is not part of Kubernetes or for a path below such a
 *   subresource; also a write to a path without a resource, and a read of a path that Kubernetes does not serve. Such
 *   requests may have any effect, such as starting a program or reading Secrets. Reads of container logs and custom
 *   metrics are not in this class
 * - `streamUpgrade`: a watch or a pod log over WebSocket, which carries text in one direction and no session
 * - `opaqueUpgrade`: any other upgrade
 * - `longRunning`: a request without a session and without a time limit
 */
export type RequestClass =
  | 'exec'
  | 'attach'
  | 'portForward'
  | 'nodeProxy'
  | 'podProxy'
  | 'serviceProxy'
  | 'otherProxy'
  | 'ephemeralContainers'
  | 'accessChange'
  | 'workload'
  | 'customResource'
  | 'secretRead'
  | 'unknownSubresource'
  | 'opaqueUpgrade'
  | 'streamUpgrade'
  | 'longRunning'
  | 'plain';

/**
 * @param request.upgrade true if the client requests any upgrade
 * @param request.method the HTTP method as received
 * @throws TailcastError `POLICY_REFUSED` for a path of the form `/api/v1/proxy/…`, which Kubernetes no longer supports,
 * and for a write to a path of the form `/api/v1/watch/…`
 */
export function classifyRequest(
  info: RequestInfo,
  request: { readonly upgrade: boolean; readonly method: string },
): RequestClass {
  if (!info.isResourceRequest) {
    if (request.upgrade) return 'opaqueUpgrade';
    if (info.path.split('/').includes('proxy')) return 'otherProxy';
    if (!READ_METHODS.has(info.verb)) return 'unknownSubresource';
    if (!KUBERNETES_PATH.test(info.path)) return 'unknownSubresource';
    return info.path.startsWith('/debug/pprof/') ? 'longRunning' : 'plain';
  }
  if (info.verb === 'proxy') {
    throw new TailcastError('POLICY_REFUSED', 'the /proxy/ form before the resource is not served any more');
  }
  // An extension API server may treat this request as a write.
  if (info.verb === 'watch' && !WATCH_METHODS.has(request.method)) {
    throw new TailcastError('POLICY_REFUSED', 'a path with /watch/ before the resource allows only GET');
  }
  const session = classOfSubresource(info);
  if (session !== undefined) return session;
  if (!request.upgrade) return classOfPlain(info);
  if (!isStream(info)) return 'opaqueUpgrade';
  return isSecretRead(info) ? 'secretRead' : 'streamUpgrade';
}

const WATCH_METHODS: ReadonlySet<string> = new Set(['GET', 'HEAD']);

/** Paths that kube-apiserver serves and that name no resource, also below the prefix of a cluster. */
const KUBERNETES_PATH = new RegExp(
  [
    String.raw`^(?:(?:\/k8s)?\/clusters\/[^/]+)?(?:\/?$|\/api(?:\/[^/]+)?\/?$|\/apis(?:\/[^/]+){0,2}\/?$`,
    String.raw`\/(?:version|healthz|livez|readyz|metrics|flagz|statusz|logs|debug)(?:\/|$)`,
    String.raw`\/(?:openapi|swagger-ui|openid\/v1|\.well-known)(?:\/|$))`,
  ].join('|'),
);

/** Classifies a request for a resource. The request carries no session and requests no upgrade. */
function classOfPlain(info: RequestInfo): RequestClass {
  // The first two segments are not checked, because a resource or an object may have the name `proxy`.
  if (info.parts.includes('proxy', 2)) return 'otherProxy';
  if (EPHEMERAL_WRITES.has(info.verb) && isPod(info) && info.subresource === 'ephemeralcontainers') {
    return 'ephemeralContainers';
  }
  if (WRITES.has(info.verb) && isAboutAccess(info)) return 'accessChange';
  if (isUnknownSubresource(info)) return 'unknownSubresource';
  const startsPrograms = classOfObjectWrite(info);
  if (startsPrograms !== undefined) return startsPrograms;
  if (isSecretRead(info)) return 'secretRead';
  return info.verb === 'watch' || info.subresource === 'log' ? 'longRunning' : 'plain';
}

/**
 * Returns the class of a write (create, update or patch) if the written object may start programs; otherwise undefined.
 */
function classOfObjectWrite(info: RequestInfo): RequestClass | undefined {
  if (!EPHEMERAL_WRITES.has(info.verb)) return undefined;
  if (isWorkload(info)) return info.subresource === '' ? 'workload' : undefined;
  if (info.apiPrefix === 'apis' && !KUBERNETES_GROUPS.has(info.apiGroup)) return 'customResource';
  return undefined;
}

const EPHEMERAL_WRITES: ReadonlySet<string> = new Set(['create', 'update', 'patch']);
const WRITES: ReadonlySet<string> = new Set([...EPHEMERAL_WRITES, 'delete', 'deletecollection']);
/** API groups in which every object affects access rights. */
const ACCESS_GROUPS: ReadonlySet<string> = new Set([
  'admissionregistration.k8s.io',
  'apiextensions.k8s.io',
  'apiregistration.k8s.io',
  'certificates.k8s.io',
  'rbac.authorization.k8s.io',
]);

/**
 * ConfigMaps in `kube-system` that grant access: the users and roles of EKS, the settings of AWS IAM Authenticator, and
 * the CAs that extension API servers trust. A request without a name may write any of them.
 */
const ACCESS_CONFIG_MAPS: ReadonlySet<string> = new Set([
  '',
  'aws-auth',
  'aws-iam-authenticator',
  'extension-apiserver-authentication',
]);

function isAboutAccess(info: RequestInfo): boolean {
  const { apiPrefix, apiGroup, namespace, name, subresource } = info;
  if (apiPrefix === 'apis') return ACCESS_GROUPS.has(apiGroup);
  const resource = resourceName(info);
  if (resource === 'configmaps') return namespace === 'kube-system' && ACCESS_CONFIG_MAPS.has(name);
  return resource === 'secrets' || (resource === 'serviceaccounts' && subresource === 'token');
}

/**
 * Resources with a pod template, by API group. `controllerrevisions` contain the templates of StatefulSets and
 * DaemonSets.
 */
const WORKLOADS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ['', new Set(['pods', 'podtemplates', 'replicationcontrollers'])],
  ['apps', new Set(['controllerrevisions', 'daemonsets', 'deployments', 'replicasets', 'statefulsets'])],
  ['batch', new Set(['cronjobs', 'jobs'])],
  ['extensions', new Set(['daemonsets', 'deployments', 'replicasets'])],
]);

function isWorkload(info: RequestInfo): boolean {
  return WORKLOADS.get(info.apiGroup)?.has(resourceName(info)) === true;
}

/**
 * API groups of kube-apiserver 1.36, and `extensions` of older versions. All other groups are treated as groups of
 * custom resources.
 */
const KUBERNETES_GROUPS: ReadonlySet<string> = new Set([
  ...ACCESS_GROUPS,
  'apps',
  'authentication.k8s.io',
  'authorization.k8s.io',
  'autoscaling',
  'batch',
  'coordination.k8s.io',
  'discovery.k8s.io',
  'events.k8s.io',
  'extensions',
  'flowcontrol.apiserver.k8s.io',
  'internal.apiserver.k8s.io',
  'networking.k8s.io',
  'node.k8s.io',
  'policy',
  'resource.k8s.io',
  'scheduling.k8s.io',
  'storage.k8s.io',
  'storagemigration.k8s.io',
]);

function isSecretRead(info: RequestInfo): boolean {
  return info.apiPrefix === 'api' && READS.has(info.verb) && resourceName(info) === 'secrets';
}

/** Returns the resource without the suffix that kcp appends: `deployments:<hash>`. */
function resourceName({ resource }: RequestInfo): string {
  return resource.split(':', 1)[0] ?? '';
}

/** HTTP methods that only read, in requests for paths without a resource; in lower case as in `RequestInfo`. */
const READ_METHODS: ReadonlySet<string> = new Set(['get', 'head', 'options']);
const READS: ReadonlySet<string> = new Set(['get', 'list', 'watch']);

/**
 * Kubernetes subresources that start no programs. Source: the storage maps of kube-apiserver 1.36
 * (`pkg/registry/<group>/rest`); custom resources have only `status` and `scale`.
 */
export const KNOWN_SUBRESOURCES: ReadonlySet<string> = new Set([
  'approval',
  'binding',
  'ephemeralcontainers',
  'eviction',
  'finalize',
  'resize',
  'scale',
  'status',
  'token',
]);

function isUnknownSubresource({ verb, apiGroup, subresource, parts }: RequestInfo): boolean {
  if (subresource === '') return false;
  if (parts.length > 3) return true;
  if (KNOWN_SUBRESOURCES.has(subresource)) return false;
  // Requests for custom metrics have the name of the metric as subresource.
  return !READS.has(verb) || (subresource !== 'log' && apiGroup !== 'custom.metrics.k8s.io');
}

/** Returns the class of a request for a subresource; the class is the same with and without an upgrade. */
function classOfSubresource(info: RequestInfo): RequestClass | undefined {
  const { apiPrefix, subresource } = info;
  const resource = resourceName(info);
  if (subresource === 'exec' || subresource === 'attach') return subresource;
  if (subresource === 'portforward') return resource === 'pods' ? 'portForward' : undefined;
  // In other API groups, `proxy` may have any meaning.
  if (subresource !== 'proxy' || apiPrefix !== 'api') return undefined;
  switch (resource) {
    case 'nodes':
      return 'nodeProxy';
    case 'pods':
      return 'podProxy';
    case 'services':
      return 'serviceProxy';
    default:
      return undefined;
  }
}

/**
 * True if a request with a safe method only reads objects that the API server stores, or a container log. Only such a
 * request may be repeated, because programs behind a proxy or an unknown subresource may act on any request.
 */
export function isPureRead({ subresource }: RequestInfo, requestClass: RequestClass): boolean {
  if (!PURE_READS.has(requestClass)) return false;
  return subresource === '' || subresource === 'log' || KNOWN_SUBRESOURCES.has(subresource);
}

const PURE_READS: ReadonlySet<RequestClass> = new Set(['plain', 'longRunning', 'secretRead']);

function isStream(info: RequestInfo): boolean {
  if (info.verb === 'watch') return info.subresource === '';
  return info.verb === 'get' && isPod(info) && info.subresource === 'log';
}

function isPod(info: RequestInfo): boolean {
  return info.apiPrefix === 'api' && resourceName(info) === 'pods';
}
