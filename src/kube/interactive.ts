/**
 * Which requests can carry a session. The rule that keeps this list safe to be incomplete: an upgrade on anything that is
 * not listed is `opaqueUpgrade`, never "plain".
 */
import { TailcastError } from '../errors.ts';
import type { RequestInfo } from './request-info.ts';

/**
 * - `exec`, `attach`: by subresource name, whatever the group, version and method
 * - `portForward`: `pods/portforward`
 * - `nodeProxy`: `nodes/<name>/proxy`, a road to the kubelet's own exec, run and attach, with and without an upgrade
 * - `podProxy`, `serviceProxy`: whatever program the pod or service runs; the caller looks at `upgrade` as well
 * - `otherProxy`: `proxy` of anything else, and whatever has `proxy` further down its path: what follows is a request to
 *   another API (another cluster, another node), which nobody here can read
 * - `ephemeralContainers`: a write to `pods/ephemeralcontainers`
 * - `accessChange`: a write that makes or changes credentials, rights or admission rules, and with them later ways around a
 *   gateway: Secrets (one of type `service-account-token` is filled with a token), tokens, certificates, RBAC, webhooks,
 *   admission policies, custom resource definitions (which name conversion webhooks), and who serves an API group
 * - `workload`: a create, update or patch of an object of Kubernetes that contains a pod template, and with it commands
 * - `customResource`: a create, update or patch of an object of an API group that Kubernetes itself does not have, or of a
 *   subresource of it; its controller may start programs for it
 * - `secretRead`: a get, list or watch of Secrets, which may hold credentials
 * - `unknownSubresource`: a write to a subresource that Kubernetes itself does not have, which may do anything (connect,
 *   run, start); anything behind the name of such a subresource; a write to a path that is no resource
 * - `streamUpgrade`: a watch or a pod log over WebSocket: one-way text, no session
 * - `opaqueUpgrade`: any other upgrade
 * - `longRunning`: no session, but no time limit either
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
 * @param request.upgrade whether the client asked to leave HTTP, whatever protocol it named
 * @throws TailcastError `POLICY_REFUSED` for the `/api/v1/proxy/…` form, which Kubernetes removed and nothing may revive
 */
export function classifyRequest(info: RequestInfo, request: { readonly upgrade: boolean }): RequestClass {
  if (!info.isResourceRequest) {
    if (request.upgrade) return 'opaqueUpgrade';
    if (info.path.split('/').includes('proxy')) return 'otherProxy';
    if (!READ_METHODS.has(info.verb)) return 'unknownSubresource';
    return info.path.startsWith('/debug/pprof/') ? 'longRunning' : 'plain';
  }
  if (info.verb === 'proxy') {
    throw new TailcastError('POLICY_REFUSED', 'the /proxy/ form before the resource is not served any more');
  }
  const session = classOfSubresource(info);
  if (session !== undefined) return session;
  if (!request.upgrade) return classOfPlain(info);
  if (!isStream(info)) return 'opaqueUpgrade';
  return isSecretRead(info) ? 'secretRead' : 'streamUpgrade';
}

/** Of a request for a resource that carries no session and no upgrade. */
function classOfPlain(info: RequestInfo): RequestClass {
  // a resource may be called `proxy`, and have an object of that name
  if (info.parts.includes('proxy', 2)) return 'otherProxy';
  if (EPHEMERAL_WRITES.has(info.verb) && isPod(info) && info.subresource === 'ephemeralcontainers') {
    return 'ephemeralContainers';
  }
  if (WRITES.has(info.verb) && isAboutAccess(info)) return 'accessChange';
  if (isUnknownSubresource(info)) return 'unknownSubresource';
  const startsPrograms = classOfObjectWrite(info);
  if (startsPrograms !== undefined) return startsPrograms;
  if (isSecretRead(info)) return 'secretRead';
  return info.verb === 'watch' || LONG_RUNNING_SUBRESOURCES.has(info.subresource) ? 'longRunning' : 'plain';
}

/** Of a create, update or patch of an object that may start programs. */
function classOfObjectWrite(info: RequestInfo): RequestClass | undefined {
  if (!EPHEMERAL_WRITES.has(info.verb)) return undefined;
  if (isWorkload(info)) return info.subresource === '' ? 'workload' : undefined;
  if (info.apiPrefix === 'apis' && !KUBERNETES_GROUPS.has(info.apiGroup)) return 'customResource';
  return undefined;
}

const EPHEMERAL_WRITES: ReadonlySet<string> = new Set(['create', 'update', 'patch']);
const WRITES: ReadonlySet<string> = new Set([...EPHEMERAL_WRITES, 'delete', 'deletecollection']);
/** API groups of which every object is about who may do what. */
const ACCESS_GROUPS: ReadonlySet<string> = new Set([
  'admissionregistration.k8s.io',
  'apiextensions.k8s.io',
  'apiregistration.k8s.io',
  'certificates.k8s.io',
  'rbac.authorization.k8s.io',
]);

function isAboutAccess(info: RequestInfo): boolean {
  const { apiPrefix, apiGroup, subresource } = info;
  if (apiPrefix === 'apis') return ACCESS_GROUPS.has(apiGroup);
  const resource = resourceName(info);
  return resource === 'secrets' || (resource === 'serviceaccounts' && subresource === 'token');
}

/** Resources with a pod template, by API group. `controllerrevisions` hold the templates of StatefulSets and DaemonSets. */
const WORKLOADS: ReadonlyMap<string, ReadonlySet<string>> = new Map([
  ['', new Set(['pods', 'podtemplates', 'replicationcontrollers'])],
  ['apps', new Set(['controllerrevisions', 'daemonsets', 'deployments', 'replicasets', 'statefulsets'])],
  ['batch', new Set(['cronjobs', 'jobs'])],
  ['extensions', new Set(['daemonsets', 'deployments', 'replicasets'])],
]);

function isWorkload(info: RequestInfo): boolean {
  return WORKLOADS.get(info.apiGroup)?.has(resourceName(info)) === true;
}

/** API groups of kube-apiserver 1.36, and `extensions` of older versions. A group that is not listed counts as custom. */
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

/** kcp appends the identity of an API to its resource: `deployments:<hash>`. */
function resourceName({ resource }: RequestInfo): string {
  return resource.split(':', 1)[0] ?? '';
}

/** HTTP methods, in lower case as `RequestInfo` has them, of what only reads a path that is no resource. */
const READ_METHODS: ReadonlySet<string> = new Set(['get', 'head', 'options']);
const READS: ReadonlySet<string> = new Set(['get', 'list', 'watch']);

/**
 * Subresources of Kubernetes that are written and start nothing. Source: the storage maps of kube-apiserver 1.36
 * (`pkg/registry/<group>/rest`); custom resources have `status` and `scale` only.
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

function isUnknownSubresource({ verb, subresource, parts }: RequestInfo): boolean {
  if (subresource === '') return false;
  return parts.length > 3 || (!READS.has(verb) && !KNOWN_SUBRESOURCES.has(subresource));
}

/** Source: `BasicLongRunningRequestCheck` in kube-apiserver; those that are a class of their own are left out. */
const LONG_RUNNING_SUBRESOURCES: ReadonlySet<string> = new Set(['proxy', 'log', 'portforward']);

/** The classes that hold with and without an upgrade. */
function classOfSubresource(info: RequestInfo): RequestClass | undefined {
  const { apiPrefix, subresource } = info;
  const resource = resourceName(info);
  if (subresource === 'exec' || subresource === 'attach') return subresource;
  if (subresource === 'portforward') return resource === 'pods' ? 'portForward' : undefined;
  // of another API group it is another program's idea of a proxy
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
 * Returns true if a request with a safe method only reads what the API server stores, or the log of a container. Such a
 * request may be repeated. Programs behind a proxy or an unknown subresource may act on any request.
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
