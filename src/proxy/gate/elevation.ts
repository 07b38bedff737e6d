/**
 * Access on request in the gate: determines which additional access a request needs, and admits the request
 * with this access if it is granted.
 *
 * A client names groups or a user with `--as` and `--as-group`. The request then runs with exactly the named groups.
 * The caller must have each of these groups, or a rule must allow the group. A rule about writes applies to every write
 * of the caller. A write with requested groups or a requested user therefore needs two granted accesses: one for the
 * write, and one for the groups and the user.
 */
import { TailcastError } from '../../errors.ts';
import { checkImpersonation, refuseOtherIdentity } from '../../impersonation/apply.ts';
import type { ImpersonationTarget } from '../../impersonation/target.ts';
import type { Target } from '../../kube/canonical-target.ts';
import { parseExecOptions } from '../../kube/exec-options.ts';
import type { RequestClass } from '../../kube/interactive.ts';
import type { RequestInfo } from '../../kube/request-info.ts';
import type { RecordingPolicy } from '../../recording/policy.ts';
import type { AccessRule, ModerationRule } from '../../tailnet/access-rules.ts';
import type { Identity } from '../../tailnet/identity.ts';

/** Access that a caller asks for: groups, a user, or writes. */
export interface Ask {
  /** Groups that the caller does not have, sorted. */
  readonly groups: readonly string[];
  /** Requested Kubernetes user; undefined for the caller's own user. */
  readonly user: string | undefined;
  readonly writes: boolean;
}

/** A caller with rules about access on request. */
export interface Petitioner {
  readonly identity: Identity;
  /** User and groups that the caller's grants give without access on request. */
  readonly own: ImpersonationTarget;
  readonly rules: readonly AccessRule[];
  readonly recording: RecordingPolicy;
  /** Name of the cluster; undefined at a gateway with one cluster. */
  readonly cluster: string | undefined;
}

/** A request that needs access on request. */
export interface Petition extends Petitioner {
  readonly ask: Ask;
  /** All groups that the API server will see. */
  readonly groups: readonly string[];
  readonly info: RequestInfo;
  /** Words of the command of an exec. */
  readonly command: readonly string[];
  /** `Host` of the request, for links. */
  readonly host: string;
}

/** The granted access with which an admitted request runs. */
export interface Elevation {
  /** Id of the AccessRequest. */
  readonly id: string;
  readonly petition: Petition;
  readonly target: ImpersonationTarget;
  readonly approvers: readonly string[];
  readonly enforceRecorder: boolean;
  /** Text of the `Warning` header. */
  readonly warning: string;
  /** Granted access for writes, if the request is a write with requested groups or a requested user. */
  readonly writes?: Elevation;
}

/** Source of granted access. `src/access` implements it. */
export interface Elevations {
  /**
   * Returns the granted access. If no access is granted, creates an access request and throws.
   * @throws TailcastError `ACCESS_REQUEST_PENDING`, `ACCESS_REQUEST_REFUSED`, `ACCESS_REQUEST_UNAVAILABLE`
   */
  elevate(petition: Petition, signal: AbortSignal): Promise<Elevation>;
  /**
   * Checks that the access is still granted, and that the caller's current rules still allow it.
   * @param isRecorded true if the admission of the request enforced a recording
   * @throws TailcastError `ACCESS_ENDED`, `ACCESS_REQUEST_UNAVAILABLE`
   */
  confirm(elevation: Elevation, now: Petitioner, isRecorded: boolean, signal: AbortSignal): Promise<void>;
  /**
   * Calls `end` once when the access expires or is revoked.
   * @returns a function that stops watching
   */
  watch(id: string, end: (error: TailcastError) => void): () => void;
}

/** Groups, recording policy and rules of an identity. */
export interface CallerStanding {
  readonly impersonation: ImpersonationTarget | undefined;
  readonly recording: RecordingPolicy;
  /** Rules of access on request; absent without rules. */
  readonly access?: readonly AccessRule[];
  /** Rules of moderated sessions; absent without rules. */
  readonly moderation?: readonly ModerationRule[];
}

/** A caller with its groups, policy and rules. */
export interface Standee extends CallerStanding {
  readonly identity: Identity;
  readonly cluster: string | undefined;
}

/** The rights with which a request runs. */
export interface Elevated extends Omit<CallerStanding, 'access' | 'moderation'> {
  readonly elevation: Elevation | undefined;
  /** True if `elevate` has already checked the client's impersonation headers. */
  readonly judged: boolean;
}

/**
 * Returns the rights with which a request runs, including granted access if the request needs such access.
 * @throws TailcastError as `Elevations.elevate`
 */
export async function elevate(
  elevations: Elevations | undefined,
  { identity, cluster, access: rules, impersonation: own, recording }: Standee,
  asked: AskedRequest & { readonly host: string; readonly target: Pick<Target, 'query'> },
  signal: AbortSignal,
): Promise<Elevated> {
  const asOwn = { elevation: undefined, judged: false, impersonation: own, recording };
  if (rules === undefined) return asOwn;
  if (own === undefined) {
    if (!needsGrantedWrites(asked, rules)) return asOwn;
    throw new TailcastError('ACCESS_REQUEST_UNAVAILABLE', 'access requests need mode=auth');
  }
  const wish = wishOf(asked, own, rules);
  if (wish.kind === 'own') return { ...asOwn, judged: wish.judged };
  if (elevations === undefined)
    throw new TailcastError('ACCESS_REQUEST_UNAVAILABLE', 'the gateway stores no access requests');
  const { ask, groups } = wish;
  const { info, host } = asked;
  const { command } = parseExecOptions(asked.target);
  const petition = { identity, cluster, own, rules, recording, ask, groups, info, command, host };
  const writes =
    wish.needsWrites && !ask.writes
      ? await elevations.elevate({ ...petition, ask: WRITES, groups: own.groups }, signal)
      : undefined;
  const granted = await elevations.elevate(petition, signal);
  const elevation = writes === undefined ? granted : { ...granted, writes };
  return {
    elevation,
    judged: true,
    impersonation: elevation.target,
    recording: recordingOf(recording, elevation),
  };
}

/** @throws TailcastError as `Elevations.confirm` */
export async function confirmElevation(
  elevations: Elevations | undefined,
  admission: { readonly elevation?: Elevation; readonly recording: RecordingPolicy },
  { identity, cluster, access: rules = [], impersonation: own, recording }: Standee,
  signal: AbortSignal,
): Promise<void> {
  const { elevation } = admission;
  if (elevation === undefined) return;
  if (own === undefined || elevations === undefined) throw new TailcastError('ACCESS_ENDED');
  const now = { identity, cluster, own, rules, recording };
  const isRecorded = admission.recording.mode === 'failClosed';
  for (const each of [elevation, elevation.writes])
    if (each !== undefined) await elevations.confirm(each, now, isRecorded, signal);
}

/**
 * - `own`: the request runs with the caller's own rights; `judged` is true if its impersonation headers
 *   were already checked
 * - `petition`: the request needs the access `ask`, and also granted access for writes if `needsWrites` is true
 */
type Wish =
  | { readonly kind: 'own'; readonly judged: boolean }
  | {
      readonly kind: 'petition';
      readonly ask: Ask;
      readonly groups: readonly string[];
      readonly needsWrites: boolean;
    };

const OWN: Wish = { kind: 'own', judged: false };
const OWN_JUDGED: Wish = { kind: 'own', judged: true };
const WRITES: Ask = { groups: [], user: undefined, writes: true };

/**
 * Value of `--as` that stands for the caller. It exists because kubectl accepts `--as-group` only together with `--as`.
 */
const SELF = 'me';
/** The group that the API server adds to every authenticated user. */
const EVERY_USER = 'system:authenticated';

/** The parts of a request that determine which access the request needs. */
interface AskedRequest {
  readonly rawHeaders: readonly string[];
  readonly info: RequestInfo;
  readonly requestClass: RequestClass;
}

/**
 * Returns the access that a request needs.
 * @throws TailcastError `IMPERSONATION_REFUSED` or `HEADER_REFUSED` for impersonation headers that no rule
 * can allow
 */
function wishOf(
  { rawHeaders, info, requestClass }: AskedRequest,
  own: ImpersonationTarget,
  rules: readonly AccessRule[],
): Wish {
  const named = namedIn(rawHeaders);
  const ask = named && askOf(named, own);
  const needsWrites = needsGrantedWrites({ info, requestClass }, rules);
  if (named === undefined || ask === undefined || !rules.some((rule) => covers(rule, ask))) {
    if (!needsWrites) return OWN;
    // a rule about writes applies to this write even if impersonation headers name the caller itself
    refuseOtherIdentity(rawHeaders, own);
    return { kind: 'petition', ask: WRITES, groups: own.groups, needsWrites };
  }
  // kubectl also sends impersonation headers with discovery requests; if the gateway rejected these requests, kubectl
  // would not show the reason
  if (!info.isResourceRequest && isRead(info, requestClass)) return OWN_JUDGED;
  const groups = [...named.groups].filter((group) => group !== EVERY_USER);
  return { kind: 'petition', ask, groups, needsWrites };
}

/** True if a rule requires granted access for this request, because the request is a write. */
export function needsGrantedWrites(
  { info, requestClass }: Pick<AskedRequest, 'info' | 'requestClass'>,
  rules: readonly AccessRule[],
): boolean {
  return !isRead(info, requestClass) && rules.some((rule) => rule.writes);
}

/** Returns the groups and the user that the request names and the caller does not have. */
function askOf({ user, groups }: Named, own: ImpersonationTarget): Ask {
  const known = new Set([...own.groups, EVERY_USER]);
  return {
    groups: [...groups].filter((group) => !known.has(group)).toSorted(),
    user: user === own.user || user === SELF ? undefined : user,
    writes: false,
  };
}

/** True if this rule allows all of the requested access. Access is never combined from several rules. */
export function covers(rule: AccessRule, { groups, user, writes }: Ask): boolean {
  const isNamed = user !== undefined || groups.length > 0;
  if (rule.writes || writes) return rule.writes && writes && !isNamed;
  return (
    isNamed &&
    (user === undefined || rule.users.includes(user)) &&
    groups.every((group) => rule.groups.includes(group))
  );
}

interface Named {
  readonly user: string | undefined;
  readonly groups: ReadonlySet<string>;
}

/** Returns the impersonation headers of a client, or undefined if the client sends no impersonation header. */
function namedIn(rawHeaders: readonly string[]): Named | undefined {
  let user: string | undefined;
  let groups: Set<string> | undefined;
  for (let index = 0; index < rawHeaders.length; index += 2) {
    const field = rawHeaders[index] ?? '';
    // a fast check: only names that start with `i` can match
    if ((field.charCodeAt(0) | 0x20) !== 0x69) continue;
    const name = field.toLowerCase();
    if (!name.startsWith('impersonate')) continue;
    checkImpersonation(name);
    const value = rawHeaders[index + 1] ?? '';
    groups ??= new Set();
    if (name === 'impersonate-group') groups.add(value);
    else if (name === 'impersonate-user' && value !== '' && (user === undefined || user === value))
      user = value;
    else throw new TailcastError('IMPERSONATION_REFUSED', `${name} does not name your own identity`);
  }
  return groups === undefined ? undefined : { user, groups };
}

const READ_VERBS: ReadonlySet<string> = new Set(['get', 'list', 'watch', 'head', 'options']);
const READ_CLASSES: ReadonlySet<RequestClass> = new Set([
  'plain',
  'longRunning',
  'secretRead',
  'streamUpgrade',
]);
/**
 * Resources for reviews of the caller's own rights. kubectl sends `create` requests for these resources, but they
 * change nothing.
 */
const SELF_REVIEW = /^selfsubject(?:accessreviews|rulesreviews|reviews)$/;

/** Returns true if the request changes nothing and starts no program. */
function isRead({ verb, resource, isResourceRequest }: RequestInfo, requestClass: RequestClass): boolean {
  if (!READ_CLASSES.has(requestClass)) return false;
  return READ_VERBS.has(verb) || (isResourceRequest && verb === 'create' && SELF_REVIEW.test(resource));
}

/**
 * Returns the recording policy of a request with granted access. Unless recording is off, a recorder stores an event
 * about the request. The access rule may enforce recording.
 */
export function recordingOf(
  recording: RecordingPolicy,
  { enforceRecorder: own, writes }: Elevation,
): RecordingPolicy {
  const enforceRecorder = own || writes?.enforceRecorder === true;
  if (recording.mode !== 'off')
    return { ...recording, mode: enforceRecorder ? 'failClosed' : recording.mode, events: true };
  return enforceRecorder ? { mode: 'failClosed', recorders: [], recorderTags: [], events: true } : recording;
}
