/** Compares an admission with the current grants of its caller, while the request runs. Pure. */
import { TailcastError } from '../../errors.ts';
import type { ImpersonationTarget } from '../../impersonation/target.ts';
import type { RequestClass } from '../../kube/interactive.ts';
import type { RequestInfo } from '../../kube/request-info.ts';
import type { RecordingPolicy } from '../../recording/policy.ts';
import type { ModerationRule } from '../../tailnet/access-rules.ts';
import { callerName, type Identity } from '../../tailnet/identity.ts';
import { needsGrantedWrites, recordingOf, type Elevation, type Standee } from './elevation.ts';
import { moderate } from './moderation.ts';
import { decide, type Policy, type PolicyClass } from './policy.ts';

/**
 * The parts of an admission that depend on the grants. A request that the gateway serves itself has no request class.
 */
export interface GrantedAdmission {
  readonly identity: Identity;
  readonly impersonation: ImpersonationTarget | undefined;
  readonly recording: RecordingPolicy;
  readonly elevation?: Elevation;
  readonly info?: RequestInfo;
  readonly requestClass?: RequestClass;
  readonly policyClass?: PolicyClass | undefined;
  readonly moderation?: readonly ModerationRule[];
}

/**
 * Checks that the caller is still the same user with at least the same groups, and that the current grants add no
 * requirement to those of the admission. Such requirements are a recording, a moderator, and granted access for writes.
 *
 * @throws TailcastError `ACCESS_ENDED`; `POLICY_REFUSED` if the policy now refuses the request
 */
export function assertStillGranted(admission: GrantedAdmission, now: Standee, policy: Policy): void {
  const { identity, impersonation, recording } = now;
  if (identity.nodeId !== admission.identity.nodeId) throw ended('the address belongs to another node now');
  const before = admission.elevation?.petition.own ?? admission.impersonation;
  if (callerName(identity) !== callerName(admission.identity) || impersonation?.user !== before?.user)
    throw ended('the node belongs to another user now');
  const missing = before?.groups.find((group) => impersonation?.groups.includes(group) !== true);
  if (missing !== undefined) throw ended(`the grant of ${missing} is gone`);
  if (recording.mode === 'failClosed' && admission.recording.mode !== 'failClosed')
    throw ended('sessions must be recorded now');
  const { info, requestClass, policyClass } = admission;
  if (info === undefined || requestClass === undefined) return;
  assertRulesKept(admission, { info, requestClass, policyClass }, now, policy);
}

function assertRulesKept(
  { elevation, moderation: before = [] }: GrantedAdmission,
  request: Required<Pick<GrantedAdmission, 'info' | 'requestClass' | 'policyClass'>>,
  { access = [], moderation: rules = [], cluster, recording }: Standee,
  policy: Policy,
): void {
  const hasWrites = elevation?.petition.ask.writes === true || elevation?.writes !== undefined;
  if (!hasWrites && needsGrantedWrites(request, access)) throw ended('your writes need granted access now');
  const own = elevation === undefined ? recording : recordingOf(recording, elevation);
  const now = moderate(rules, { ...request, cluster }, own);
  if (now.moderation?.some((rule) => !before.some((one) => isAsStrict(one, rule))) === true)
    throw ended('a moderator must watch your sessions now');
  const { policyClass } = request;
  if (policyClass === undefined) return;
  const { action, because } = decide(policy, policyClass, now.recording);
  if (action === 'refuse') throw new TailcastError('POLICY_REFUSED', `the policy says ${because}: refuse`);
}

/** True if every moderator of the first rule is a moderator of the second rule. */
function isAsStrict({ moderators: first }: ModerationRule, { moderators: second }: ModerationRule): boolean {
  return (
    first.users.every((user) => second.users.includes(user)) &&
    first.tags.every((tag) => second.tags.includes(tag))
  );
}

function ended(detail: string): TailcastError {
  return new TailcastError('ACCESS_ENDED', detail);
}
