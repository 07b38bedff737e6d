/**
 * Moderated sessions in the gate: finds the moderation rules of a session, and rejects requests that no
 * moderator could watch. Pure.
 */
import { TailcastError } from '../../errors.ts';
import type { RequestClass } from '../../kube/interactive.ts';
import type { RequestInfo } from '../../kube/request-info.ts';
import type { RecordingPolicy } from '../../recording/policy.ts';
import { rulesOfCluster, type ModeratedClass, type ModerationRule } from '../../tailnet/access-rules.ts';
import type { PolicyClass } from './policy.ts';

/** Classes of requests that could run a command without a recording, or carry any protocol. */
const UNWATCHABLE: ReadonlySet<PolicyClass | undefined> = new Set<PolicyClass>([
  'kubeletExec',
  'kubeletRead',
  'podProxyUpgrade',
  'serviceProxyUpgrade',
  'otherProxy',
  'opaqueUpgrade',
  'unknownSubresource',
]);

/** Classes of requests to a program in a pod or behind a Service. The program may be a kubelet. */
const PROGRAMS: ReadonlySet<PolicyClass | undefined> = new Set<PolicyClass>([
  'podProxyRequest',
  'serviceProxyRequest',
]);

/** First segments of the kubelet's paths that start or reach a command. Source: `pkg/kubelet/server/server.go`. */
const KUBELET_COMMANDS: ReadonlySet<string> = new Set(['run', 'exec', 'attach', 'portForward', 'cri']);

export interface ModeratedRequest {
  readonly info: Pick<RequestInfo, 'namespace' | 'parts'>;
  readonly requestClass: RequestClass;
  readonly policyClass: PolicyClass | undefined;
  readonly cluster: string | undefined;
}

/** The moderation rules of a session, and its recording policy. */
export interface ModeratedSession {
  /** Rules that apply to the session; absent for a session without rules. */
  readonly moderation?: readonly ModerationRule[];
  readonly recording: RecordingPolicy;
}

/**
 * Returns the moderation rules of a session. A moderated session must be recorded, because moderators watch
 * the recording.
 * @throws TailcastError `POLICY_REFUSED` for a session that cannot be watched
 */
export function moderate(
  rules: readonly ModerationRule[],
  { info, requestClass, policyClass, cluster }: ModeratedRequest,
  recording: RecordingPolicy,
): ModeratedSession {
  const here = rulesOfCluster(rules, cluster);
  if (here.some((rule) => rule.moderate.includes('exec') && isUnwatchable(rule, { info, policyClass })))
    throw new TailcastError(
      'POLICY_REFUSED',
      'a moderator must watch your sessions, and this request has no recording',
    );
  const applied = here.filter(
    (rule) =>
      rule.moderate.some((name: ModeratedClass) => name === requestClass) && isInNamespaces(rule, info),
  );
  if (applied.length === 0) return { recording };
  if (requestClass === 'portForward')
    throw new TailcastError(
      'POLICY_REFUSED',
      'a moderator must watch your port-forwards, but they have no screen',
    );
  if (recording.mode === 'off')
    throw new TailcastError(
      'POLICY_REFUSED',
      'a moderator must watch your sessions, and your grants name no recorder',
    );
  return { moderation: applied, recording: { ...recording, mode: 'failClosed' } };
}

/**
 * True if the request could run a command in an existing pod without a recording. Requests for ephemeral containers
 * count only in the namespaces of the rule. All other requests count in every namespace, because they may reach pods in
 * other namespaces.
 */
function isUnwatchable(
  rule: ModerationRule,
  { info, policyClass }: Pick<ModeratedRequest, 'info' | 'policyClass'>,
): boolean {
  if (UNWATCHABLE.has(policyClass)) return true;
  if (policyClass === 'ephemeralContainers') return isInNamespaces(rule, info);
  const [first = ''] = info.parts.slice(3).filter((part) => part !== '');
  return PROGRAMS.has(policyClass) && KUBELET_COMMANDS.has(first);
}

function isInNamespaces({ namespaces }: ModerationRule, info: Pick<RequestInfo, 'namespace'>): boolean {
  return namespaces.length === 0 || namespaces.includes(info.namespace);
}
