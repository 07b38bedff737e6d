/** Evaluates access rules: the access that a requester may request, and who may approve it. Pure. */
import { covers, type Ask, type Petition } from '../proxy/gate/elevation.ts';
import {
  rulesOfCluster,
  type AccessRule,
  type AccessWindow,
  type Approvers,
} from '../tailnet/access-rules.ts';
import { mayBeSamePerson, type AccessRecord, type AccessDecision, type Person } from './record.ts';

/** Returns the access that a record describes. */
export function accessOf({ groups, user, writes }: Pick<AccessRecord, 'groups' | 'user' | 'writes'>): Ask {
  return { groups, user: user === '' ? undefined : user, writes };
}

/** Returns a key for comparisons: equal keys mean the same access. */
export function askKey({ groups, user, writes }: Ask): string {
  return JSON.stringify([groups, user ?? '', writes]);
}

/** True if two accesses have a group or user in common, or if both permit writes. */
function overlaps(left: Ask, right: Ask): boolean {
  if (left.writes && right.writes) return true;
  if (left.user !== undefined && left.user === right.user) return true;
  return left.groups.some((group) => right.groups.includes(group));
}

type Scope = Pick<AccessRecord, 'requester' | 'cluster' | 'groups' | 'user' | 'writes'>;

/** True if a revocation of one access also applies to the other: the same person, cluster, and a common right. */
export function isSameAccess(left: Scope, right: Scope): boolean {
  return (
    left.cluster === right.cluster &&
    mayBeSamePerson(left.requester, right.requester) &&
    overlaps(accessOf(left), accessOf(right))
  );
}

/** True if this revocation ends the other access: it applies to that access, and that access was granted before. */
export function endsAccess(revoked: AccessRecord, other: AccessRecord): boolean {
  return (
    revoked.state === 'revoked' &&
    other.state === 'granted' &&
    decidedMs(other) <= decidedMs(revoked) &&
    isSameAccess(revoked, other)
  );
}

/** Returns the time of the last decision. Without a decision, returns the time of the request. */
export function decidedMs({ decisions, createdMs }: AccessRecord): number {
  return decisions.at(-1)?.atMs ?? createdMs;
}

/** Returns a text about the access for messages, such as `group sre as user admin`. */
export function describeAsk({ groups, user, writes }: Ask): string {
  if (writes) return 'writes';
  const named = groups.length === 0 ? [] : [`group${groups.length > 1 ? 's' : ''} ${groups.join(', ')}`];
  return [...named, ...(user === undefined ? [] : [`user ${user}`])].join(' as ') || 'nothing';
}

/** Returns the rules that cover this access, in the order in which the grant lists them. */
export function rulesFor(rules: readonly AccessRule[], ask: Ask, cluster?: string): readonly AccessRule[] {
  return rulesOfCluster(rules, cluster).filter((rule) => covers(rule, ask));
}

/** True if an access rule, or an approved access request, covers API requests in this namespace. */
export function isInNamespaces(
  namespaces: readonly string[],
  { isResourceRequest, namespace }: { readonly isResourceRequest: boolean; readonly namespace: string },
): boolean {
  return namespaces.length === 0 || (isResourceRequest && namespaces.includes(namespace));
}

/** True if this caller may decide about requests of this requester. */
export function mayDecide(
  approvers: Omit<Approvers, 'count'>,
  requester: Person,
  decider: Pick<AccessDecision, 'by' | 'groups' | 'tags'>,
): boolean {
  if (mayBeSamePerson(requester, decider.by)) return false;
  return (
    (decider.by.kind === 'user' && approvers.users.includes(decider.by.name)) ||
    decider.groups.some((group) => approvers.groups.includes(group)) ||
    decider.tags.some((tag) => approvers.tags.includes(tag))
  );
}

/**
 * Returns a decision with only those groups and tags of the decider that are needed to check the approval later. If
 * the decision contained all groups, the record could exceed its maximum size at the API server. A revocation would
 * then fail.
 */
export function storedDecision(
  decision: AccessDecision,
  approvers: Omit<Approvers, 'count'> | null,
): AccessDecision {
  if (decision.verdict !== 'approved' || approvers === null) return { ...decision, groups: [], tags: [] };
  const groups = decision.groups.filter((group) => approvers.groups.includes(group));
  return { ...decision, groups, tags: decision.tags.filter((tag) => approvers.tags.includes(tag)) };
}

/** Returns the approvals that a rule accepts, one per person. */
export function validApprovals(
  { requester, decisions }: AccessRecord,
  approvers: Approvers,
): readonly AccessDecision[] {
  const valid: AccessDecision[] = [];
  for (const decision of decisions) {
    if (decision.verdict !== 'approved' || !mayDecide(approvers, requester, decision)) continue;
    if (!valid.some(({ by }) => mayBeSamePerson(by, decision.by))) valid.push(decision);
  }
  return valid;
}

/** True if the record has enough approvals for a rule. */
export function isApproved(record: AccessRecord, { approvers }: Pick<AccessRule, 'approvers'>): boolean {
  return approvers === undefined || validApprovals(record, approvers).length >= approvers.count;
}

const MINUTE_MS = 60_000;
const WEEKDAYS: readonly string[] = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
const formats = new Map<string, Intl.DateTimeFormat>();
/** Cached results for one minute: whether each time window is open. The gate needs these results for every request. */
const remembered = new WeakMap<AccessWindow, { readonly minute: number; readonly isOpen: boolean }>();

/** True if the time is in a window of the rule, or the rule has no windows. */
export function isOpenAt({ windows }: Pick<AccessRule, 'windows'>, unixMs: number): boolean {
  return windows.length === 0 || windows.some((window) => isWindowOpen(window, unixMs));
}

function isWindowOpen(window: AccessWindow, unixMs: number): boolean {
  const minute = Math.floor(unixMs / MINUTE_MS);
  const known = remembered.get(window);
  if (known?.minute === minute) return known.isOpen;
  const parts = formatOf(window.timeZone).formatToParts(unixMs);
  const part = (type: string): string => parts.find((one) => one.type === type)?.value ?? '';
  const time = Number(part('hour')) * 60 + Number(part('minute'));
  const isOpen =
    window.days.includes(WEEKDAYS.indexOf(part('weekday'))) && time >= window.from && time < window.to;
  remembered.set(window, { minute, isOpen });
  return isOpen;
}

function formatOf(timeZone: string): Intl.DateTimeFormat {
  const known = formats.get(timeZone);
  if (known !== undefined) return known;
  const format = new Intl.DateTimeFormat('en-US', {
    timeZone,
    weekday: 'short',
    hour: '2-digit',
    minute: '2-digit',
    hourCycle: 'h23',
  });
  formats.set(timeZone, format);
  return format;
}

/** Returns the time windows of a rule as text: `mon, tue 08:00-18:00 Europe/Berlin`. */
export function describeWindows({ windows }: Pick<AccessRule, 'windows'>): string {
  const clock = (minutes: number): string =>
    `${String(Math.floor(minutes / 60)).padStart(2, '0')}:${String(minutes % 60).padStart(2, '0')}`;
  return windows
    .map(({ days, from, to, timeZone }) => {
      const names = days.map((day) => WEEKDAYS[day]?.toLowerCase() ?? '');
      return `${names.join(', ')} ${clock(from)}-${clock(to)} ${timeZone}`;
    })
    .join('; ');
}

/**
 * Returns the state of a record at the given time. An expired record has the state `expired` even before a gateway
 * has written the expiry.
 */
export function stateAt({ state, expiresMs }: AccessRecord, unixMs: number): AccessRecord['state'] {
  return (state === 'pending' || state === 'granted') && unixMs >= expiresMs ? 'expired' : state;
}

/** True if a record has expired but does not contain the expiry yet. */
export function hasExpired(record: AccessRecord, unixMs: number): boolean {
  return record.state !== 'expired' && stateAt(record, unixMs) === 'expired';
}

/** Returns true if the rule grants access without an approval. */
export function isImmediate({ approvers }: AccessRule): boolean {
  return approvers === undefined || approvers.count === 0;
}

/** Time after a denial during which ordinary kubectl calls do not create another access request. */
const DENIED_MS = 600_000;

/** True while a denial or revocation prevents ordinary kubectl calls from creating new access requests. */
export function isBlocking({ state, decisions, expiresMs }: AccessRecord, nowMs: number): boolean {
  if (state === 'revoked') return nowMs < expiresMs;
  return state === 'denied' && nowMs < (decisions.at(-1)?.atMs ?? 0) + DENIED_MS;
}

/**
 * True if the rule allows a request with the duration and reason of this record. A record that was created under a
 * lenient rule therefore gives no access under a stricter rule.
 */
export function meetsLimits({ durationMs, reason }: AccessRecord, rule: AccessRule): boolean {
  return durationMs <= rule.maxDurationMs && (!rule.requireReason || reason !== '');
}

/**
 * Returns a rule under which a granted record allows the request: the record is within the limits of the rule and has
 * enough approvals. Returns undefined if there is no such rule.
 */
export function grantingRuleOf(
  record: AccessRecord,
  rules: readonly AccessRule[],
  { info }: Pick<Petition, 'info'>,
): AccessRule | undefined {
  if (record.state !== 'granted' || !isInNamespaces(record.namespaces, info)) return undefined;
  return rules.find((rule) => meetsLimits(record, rule) && isApproved(record, rule));
}
