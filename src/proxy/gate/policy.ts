/**
 * The policy: assigns an action (record, event, allow or refuse) to each class of sensitive requests. Pure.
 *
 * Defaults for callers whose grants enforce recording: exec and attach are recorded, other requests that may
 * open a shell are refused, and most other classes cause an event. Defaults for all other callers: exec and
 * attach are recorded if the grants name a recorder, and everything else is allowed.
 */
import type { RequestClass } from '../../kube/interactive.ts';
import type { RequestInfo } from '../../kube/request-info.ts';
import type { Target } from '../../kube/canonical-target.ts';
import type { RecordingPolicy } from '../../recording/policy.ts';
import type { ProgramPages } from './browser-pages.ts';

/**
 * - `exec`, `attach`: sessions that can be recorded
 * - `portForward`: `pods/portforward`
 * - `kubeletExec`: `nodes/…/proxy`, except known read-only paths. The kubelet can run commands for requests
 *   without an upgrade
 * - `kubeletRead`: `nodes/…/proxy` to metrics, stats, logs, health and the list of pods, without an
 *   upgrade. Logs with a query are `kubeletExec`, because some nodes run a command for them
 * - `podProxyUpgrade`, `serviceProxyUpgrade`: an upgraded connection to a program; it may be a terminal
 * - `podProxyRequest`, `serviceProxyRequest`: a request to a program, without an upgrade
 * - `otherProxy`: a request to the `proxy` subresource of another resource, such as a cluster, or with
 *   `proxy` at a later position of the path
 * - `ephemeralContainers`: a write to `pods/ephemeralcontainers`; it may contain a command
 * - `accessChange`: a write to RBAC, admission rules, API services, custom resource definitions, certificate
 *   requests, Secrets, tokens of service accounts, or ConfigMaps of `kube-system` that grant access
 * - `workload`: a create, update or patch of pods, pod templates and built-in workloads,
 *   which contain commands
 * - `customResource`: a create, update or patch of an object or subresource in an API group that is not
 *   built into Kubernetes
 * - `secretRead`: a get, list or watch of Secrets
 * - `unknownSubresource`: a request for a subresource that is not built into Kubernetes, or for a path below such a
 *   subresource. The class also contains writes to paths without a resource, and reads of paths that Kubernetes does
 *   not serve
 * - `streamUpgrade`: a watch or a log over WebSocket
 * - `opaqueUpgrade`: any other upgrade
 */
export const POLICY_CLASSES = [
  'exec',
  'attach',
  'portForward',
  'kubeletExec',
  'kubeletRead',
  'podProxyUpgrade',
  'podProxyRequest',
  'serviceProxyUpgrade',
  'serviceProxyRequest',
  'otherProxy',
  'ephemeralContainers',
  'accessChange',
  'workload',
  'customResource',
  'secretRead',
  'unknownSubresource',
  'streamUpgrade',
  'opaqueUpgrade',
] as const;
export type PolicyClass = (typeof POLICY_CLASSES)[number];

/**
 * - `record`: the session is recorded. Only for `exec` and `attach`. If the grants neither name a recorder nor contain
 *   `enforceRecorder`, `record` and `event` have the effect of `allow`
 * - `event`: a recorder stores an event before the request is forwarded. If no recorder stores it and recording is
 *   enforced, the request is rejected
 * - `allow`: the request is forwarded
 * - `refuse`: the request is rejected
 */
export const POLICY_ACTIONS = ['record', 'event', 'allow', 'refuse'] as const;
export type PolicyAction = (typeof POLICY_ACTIONS)[number];

export type ClassActions = Readonly<Record<PolicyClass, PolicyAction>>;

/** Range of ports, from `first` to `last` inclusive. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

export interface Policy {
  /** Actions for callers whose grants set `enforceRecorder`. */
  readonly enforced: ClassActions;
  /** Actions for all other callers. */
  readonly others: ClassActions;
  /** Ports that no port-forward may open, whatever the action of `portForward` is. */
  readonly refusedPorts: readonly PortRange[];
  readonly sessions: SessionPolicy;
  /**
   * Action for a `workload` or `ephemeralContainers` request with an unreadable body if the caller's grants enforce
   * recording. The event of such a request lacks the commands.
   */
  readonly unreadableWorkloads: UnreadableWorkloads;
  /** Response to a browser that requests a page of a pod, a Service, a node or an aggregated API. */
  readonly programPages: ProgramPages;
}

export const UNREADABLE_WORKLOADS = ['refuse', 'event'] as const;
export type UnreadableWorkloads = (typeof UNREADABLE_WORKLOADS)[number];

/** Limits of upgraded connections of every policy class. */
export interface SessionPolicy {
  readonly perUser: number;
  readonly total: number;
  /** Maximum duration of a connection; undefined for no limit. */
  readonly maxDurationMs: number | undefined;
  /**
   * Maximum time without input or output. In recorded sessions, pings of the protocol do not count as input
   * or output.
   */
  readonly idleMs: number | undefined;
  /** Line that the gateway shows at the start of recorded terminal sessions. */
  readonly notice: string | undefined;
  /** True if users of recorded terminal sessions must type a reason before the session starts. */
  readonly askReason: boolean;
}

export const DEFAULT_POLICY: Policy = {
  enforced: {
    exec: 'record',
    attach: 'record',
    portForward: 'event',
    kubeletExec: 'refuse',
    kubeletRead: 'event',
    podProxyUpgrade: 'refuse',
    podProxyRequest: 'event',
    serviceProxyUpgrade: 'refuse',
    serviceProxyRequest: 'event',
    otherProxy: 'refuse',
    ephemeralContainers: 'event',
    accessChange: 'event',
    workload: 'event',
    customResource: 'event',
    secretRead: 'event',
    unknownSubresource: 'event',
    streamUpgrade: 'allow',
    opaqueUpgrade: 'refuse',
  },
  others: {
    exec: 'record',
    attach: 'record',
    portForward: 'allow',
    kubeletExec: 'allow',
    kubeletRead: 'allow',
    podProxyUpgrade: 'allow',
    podProxyRequest: 'allow',
    serviceProxyUpgrade: 'allow',
    serviceProxyRequest: 'allow',
    otherProxy: 'allow',
    ephemeralContainers: 'allow',
    accessChange: 'allow',
    workload: 'allow',
    customResource: 'allow',
    secretRead: 'allow',
    unknownSubresource: 'allow',
    streamUpgrade: 'allow',
    opaqueUpgrade: 'allow',
  },
  refusedPorts: [],
  sessions: {
    perUser: 200,
    total: 10_000,
    maxDurationMs: undefined,
    idleMs: undefined,
    notice: undefined,
    askReason: false,
  },
  unreadableWorkloads: 'refuse',
  programPages: 'refuse',
};

/** Returns the policy class of a request; `undefined` for ordinary requests, which the policy does not cover. */
export function policyClassOf(request: {
  readonly requestClass: RequestClass;
  readonly info: RequestInfo;
  readonly target: Pick<Target, 'rawPath' | 'rawQuery'>;
  readonly upgrade: boolean;
}): PolicyClass | undefined {
  const [asRequest, asUpgrade] = CLASSES[request.requestClass];
  const policyClass = request.upgrade ? asUpgrade : asRequest;
  return policyClass === 'kubeletRead' && !isKubeletRead(request.info, request.target)
    ? 'kubeletExec'
    : policyClass;
}

/** The two policy classes of each request class: without an upgrade, and with an upgrade. */
const CLASSES: Readonly<Record<RequestClass, readonly [PolicyClass | undefined, PolicyClass | undefined]>> = {
  exec: ['exec', 'exec'],
  attach: ['attach', 'attach'],
  portForward: ['portForward', 'portForward'],
  nodeProxy: ['kubeletRead', 'kubeletExec'],
  podProxy: ['podProxyRequest', 'podProxyUpgrade'],
  serviceProxy: ['serviceProxyRequest', 'serviceProxyUpgrade'],
  otherProxy: ['otherProxy', 'opaqueUpgrade'],
  ephemeralContainers: ['ephemeralContainers', 'opaqueUpgrade'],
  accessChange: ['accessChange', 'opaqueUpgrade'],
  workload: ['workload', 'opaqueUpgrade'],
  customResource: ['customResource', 'opaqueUpgrade'],
  secretRead: ['secretRead', 'secretRead'],
  unknownSubresource: ['unknownSubresource', 'opaqueUpgrade'],
  streamUpgrade: ['streamUpgrade', 'streamUpgrade'],
  opaqueUpgrade: ['opaqueUpgrade', 'opaqueUpgrade'],
  longRunning: [undefined, 'opaqueUpgrade'],
  plain: [undefined, 'opaqueUpgrade'],
};

/** First segments of the kubelet's read-only paths. Source: `pkg/kubelet/server/server.go`. */
const KUBELET_READS: ReadonlySet<string> = new Set([
  'configz',
  'containerLogs',
  'healthz',
  'logs',
  'metrics',
  'pods',
  'runningpods',
  'stats',
]);
/** Paths that the kubelet and the gateway certainly parse alike. */
const PLAIN_PATH = /^(?:\/[A-Za-z0-9._:-]+)+\/?$/;

function isKubeletRead(
  { verb, parts }: RequestInfo,
  { rawPath, rawQuery }: Pick<Target, 'rawPath' | 'rawQuery'>,
): boolean {
  const [, , , first = ''] = parts;
  // feature NodeLogQuery: the kubelet runs journalctl or PowerShell with arguments from the query
  if (first === 'logs' && rawQuery !== '') return false;
  return verb === 'get' && KUBELET_READS.has(first) && PLAIN_PATH.test(rawPath);
}

/** The action for a request. */
export interface Decision {
  readonly action: PolicyAction;
  /** Name of the policy entry that determined the action, for messages and `tailcast policy explain`. */
  readonly because: string;
}

/**
 * Returns the action for a policy class. The section `enforced` applies to callers with enforced recording. It also
 * applies to unknown upgrades of all callers whose grants name a recorder, because these upgrades may be a shell.
 */
export function decide(
  policy: Policy,
  policyClass: PolicyClass,
  recording: Pick<RecordingPolicy, 'mode'>,
): Decision {
  const isEnforced =
    recording.mode === 'failClosed' || (policyClass === 'opaqueUpgrade' && recording.mode !== 'off');
  const section = isEnforced ? 'enforced' : 'others';
  const action = policy[section][policyClass];
  return { action, because: `${section}.${policyClass}` };
}

/** True if a request must be rejected when its event cannot contain the body. */
export function isBodyRequired(
  policy: Pick<Policy, 'unreadableWorkloads'>,
  policyClass: PolicyClass,
  recording: Pick<RecordingPolicy, 'mode'>,
): boolean {
  const carriesCommands = policyClass === 'workload' || policyClass === 'ephemeralContainers';
  return carriesCommands && recording.mode === 'failClosed' && policy.unreadableWorkloads === 'refuse';
}

/** Returns the first refused port, if any. */
export function refusedPort(
  policy: Pick<Policy, 'refusedPorts'>,
  ports: readonly number[],
): number | undefined {
  return ports.find((port) => policy.refusedPorts.some(({ first, last }) => port >= first && port <= last));
}
