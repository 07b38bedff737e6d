/**
 * What is done with each kind of road to a program in the cluster: recorded, told as an event, allowed or refused. Pure.
 *
 * The defaults are safe without a file: for callers whose grants enforce recording, what can be a shell and cannot be
 * recorded is refused, and what passes leaves an event; for all others, exec and attach are recorded where a recorder is
 * named, and everything else passes as it does without a gateway.
 */
import type { RequestClass } from '../../kube/interactive.ts';
import type { RequestInfo } from '../../kube/request-info.ts';
import type { Target } from '../../kube/canonical-target.ts';
import type { RecordingPolicy } from '../../recording/policy.ts';
import type { ProgramPages } from './browser-pages.ts';

/**
 * - `exec`, `attach`: sessions in the recorders' format
 * - `portForward`: `pods/portforward`
 * - `kubeletExec`: `nodes/…/proxy`, except for what is known to be read-only: the kubelet runs commands by plain requests
 * - `kubeletRead`: `nodes/…/proxy` to metrics, stats, logs, health and the list of pods, without an upgrade; not logs with a
 *   query, for which some nodes run a command
 * - `podProxyUpgrade`, `serviceProxyUpgrade`: a connection to any program, which may be a terminal
 * - `podProxyRequest`, `serviceProxyRequest`: a request to any program
 * - `otherProxy`: a request to `proxy` of anything else, such as another cluster, or to what has `proxy` further down its path
 * - `ephemeralContainers`: a write to `pods/ephemeralcontainers`, which may carry a command
 * - `accessChange`: a write to RBAC, admission rules, registered APIs and custom resource definitions, certificate requests, Secrets or tokens of service
 *   accounts
 * - `workload`: a create, update or patch of pods, pod templates and the workloads of Kubernetes, which carry commands
 * - `customResource`: a create, update or patch of an object or subresource of an API group that Kubernetes itself does not have
 * - `secretRead`: a get, list or watch of Secrets
 * - `unknownSubresource`: a write to a subresource or path that Kubernetes does not have, and what is behind such a subresource
 * - `streamUpgrade`: a watch or a log over WebSocket
 * - `opaqueUpgrade`: any other upgrade, known to nobody here
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
 * - `record`: with a recording; where no recorder is named, like `allow`. Only for `exec` and `attach`
 * - `event`: a recorder is told of the request before it goes on; under enforcement it does not go on otherwise
 * - `allow`, `refuse`: what they say
 */
export const POLICY_ACTIONS = ['record', 'event', 'allow', 'refuse'] as const;
export type PolicyAction = (typeof POLICY_ACTIONS)[number];

export type ClassActions = Readonly<Record<PolicyClass, PolicyAction>>;

/** Inclusive on both ends. */
export interface PortRange {
  readonly first: number;
  readonly last: number;
}

export interface Policy {
  /** For callers with a grant that says `enforceRecorder`. */
  readonly enforced: ClassActions;
  /** For everybody else. */
  readonly others: ClassActions;
  /** Ports no port-forward may reach, whatever the class says. */
  readonly refusedPorts: readonly PortRange[];
  readonly sessions: SessionPolicy;
  /** Result for enforced callers if a workload cannot be read from the request body, so that its event would lack the commands. */
  readonly unreadableWorkloads: UnreadableWorkloads;
  /** What a browser gets that wants a page of a pod, a service, a node or another API. */
  readonly programPages: ProgramPages;
}

export const UNREADABLE_WORKLOADS = ['refuse', 'event'] as const;
export type UnreadableWorkloads = (typeof UNREADABLE_WORKLOADS)[number];

/** Limits of upgraded connections, of every class. */
export interface SessionPolicy {
  readonly perUser: number;
  readonly total: number;
  /** `undefined`: no limit. */
  readonly maxDurationMs: number | undefined;
  /** Without a byte of input or output; a protocol's own pings do not count where the session is recorded. */
  readonly idleMs: number | undefined;
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
  sessions: { perUser: 200, total: 10_000, maxDurationMs: undefined, idleMs: undefined },
  unreadableWorkloads: 'refuse',
  programPages: 'refuse',
};

/** The class of a request for the policy; `undefined` for the ordinary requests, about which it has no say. */
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

/** Without and with an upgrade. */
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

/** First segments of the kubelet's API that only tell. Source: `pkg/kubelet/server/server.go`. */
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
/** Nothing in the path that the kubelet could read in another way than we do. */
const PLAIN_PATH = /^(?:\/[A-Za-z0-9._:-]+)+\/?$/;

function isKubeletRead(
  { verb, parts }: RequestInfo,
  { rawPath, rawQuery }: Pick<Target, 'rawPath' | 'rawQuery'>,
): boolean {
  const [, , , first = ''] = parts;
  // NodeLogQuery: the kubelet runs journalctl, or a PowerShell, with words of the query
  if (first === 'logs' && rawQuery !== '') return false;
  return verb === 'get' && KUBELET_READS.has(first) && PLAIN_PATH.test(rawPath);
}

/** What becomes of a request of a class. */
export interface Decision {
  readonly action: PolicyAction;
  /** Who decided: for messages and `tailcast policy explain`. */
  readonly because: string;
}

/**
 * Returns the action for a class. An upgrade that cannot be classified may be a shell: `enforced` decides about it as soon
 * as the caller's grants name a recorder.
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

/** True if a request must not be forwarded unless its event contains the body. */
export function isBodyRequired(
  policy: Pick<Policy, 'unreadableWorkloads'>,
  policyClass: PolicyClass,
  recording: Pick<RecordingPolicy, 'mode'>,
): boolean {
  const carriesCommands = policyClass === 'workload' || policyClass === 'ephemeralContainers';
  return carriesCommands && recording.mode === 'failClosed' && policy.unreadableWorkloads === 'refuse';
}

/** The first refused one among ports, if any. */
export function refusedPort(
  policy: Pick<Policy, 'refusedPorts'>,
  ports: readonly number[],
): number | undefined {
  return ports.find((port) => policy.refusedPorts.some(({ first, last }) => port >= first && port <= last));
}
