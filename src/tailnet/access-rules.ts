/**
 * Parses the capability for access requests and moderated sessions. The parser is as strict as the parser of grants
 * (`capabilities.ts`). It also rejects unknown fields, because a misspelled `approvers` would otherwise give access
 * without an approval. Pure.
 */
import { grantFlag, isTag, malformed, matchesName, members, texts } from './capabilities.ts';
import type { CapabilityMap } from './identity.ts';

/** Name of the capability in a policy file's `grants[].app`. */
export const ACCESS_CAPABILITY = 'tailcast.dev/cap/kubernetes-access';

/** One rule: an element of the list that a grant contains for the capability. */
export interface AccessRule {
  /** Kubernetes groups that the caller may request. */
  readonly groups: readonly string[];
  /** Kubernetes users that the caller may request. */
  readonly users: readonly string[];
  /** True if the caller may write only with access that was granted on request. Reads need no access request. */
  readonly writes: boolean;
  /** Names of the clusters to which the rule applies; empty for all clusters of the gateway. */
  readonly clusters: readonly string[];
  /** Namespaces to which the rule applies; empty for all namespaces and cluster-scoped resources. */
  readonly namespaces: readonly string[];
  readonly maxDurationMs: number;
  readonly requireReason: boolean;
  /** Approvers of requests. Undefined if no approval is needed. */
  readonly approvers: Approvers | undefined;
  /** Times of the week in which the caller can use the access; empty for any time. */
  readonly windows: readonly AccessWindow[];
  /** True if recording is enforced while the caller uses the granted access. */
  readonly enforceRecorder: boolean;
}

/** Callers who may approve, deny or revoke a request for access. The requester may only revoke the request. */
export interface Approvers {
  readonly users: readonly string[];
  /** Kubernetes groups. A caller whose grants contain one of these groups is an approver. */
  readonly groups: readonly string[];
  readonly tags: readonly string[];
  /**
   * Number of different approvers who must approve a request. If 0, the request needs no approval, but the approvers
   * may revoke the access.
   */
  readonly count: number;
}

/** A time range on some days of the week. */
export interface AccessWindow {
  /** Days of the week; 0 is Sunday. */
  readonly days: readonly number[];
  /** Start and end in minutes since midnight. The end is exclusive. */
  readonly from: number;
  readonly to: number;
  /** IANA name of the time zone. */
  readonly timeZone: string;
}

/** Request classes for which a rule can require a moderator. */
const MODERATED = ['exec', 'attach', 'portForward'] as const;
export type ModeratedClass = (typeof MODERATED)[number];

/**
 * A rule with the field `moderate`. Sessions to which the rule applies run only while a moderator watches.
 */
export interface ModerationRule extends Pick<AccessRule, 'clusters' | 'namespaces'> {
  readonly moderate: readonly ModeratedClass[];
  /** The user of the session is never accepted as a moderator. */
  readonly moderators: Pick<Approvers, 'users' | 'tags'>;
}

/** Returns the rules for a cluster. If the gateway has no cluster names, all rules apply. */
export function rulesOfCluster<Rule extends Pick<AccessRule, 'clusters'>>(
  rules: readonly Rule[],
  cluster: string | undefined,
): readonly Rule[] {
  if (cluster === undefined) return rules;
  return rules.filter(
    ({ clusters }) => clusters.length === 0 || clusters.some((name) => matchesName(name, cluster)),
  );
}

const MAX_RULES = 100;
const MAX_DURATION_MS = 30 * 86_400_000;
const DEFAULT_DURATION = '1h';
const MAX_APPROVALS = 10;
const DAYS = ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat'] as const;

/** @throws TailcastError `GRANT_MALFORMED` */
export function parseAccessRules(capabilities: CapabilityMap): readonly AccessRule[] {
  return elements(capabilities).flatMap(({ rule, at }) =>
    rule.has('moderate') ? [] : [parseRule(onlyKnown(rule, at, RULE_FIELDS), at)],
  );
}

/** @throws TailcastError `GRANT_MALFORMED` */
export function parseModerationRules(capabilities: CapabilityMap): readonly ModerationRule[] {
  return elements(capabilities).flatMap(({ rule, at }) =>
    rule.has('moderate') ? [parseModeration(onlyKnown(rule, at, MODERATION_FIELDS), at)] : [],
  );
}

interface Element {
  readonly rule: ReadonlyMap<string, unknown>;
  readonly at: string;
}

function elements(capabilities: CapabilityMap): readonly Element[] {
  const rules = capabilities.get(ACCESS_CAPABILITY) ?? [];
  if (rules.length > MAX_RULES) throw malformed(`${ACCESS_CAPABILITY} has more than ${MAX_RULES} rules`);
  return rules.map((value, index) => {
    const at = `${ACCESS_CAPABILITY}[${index}]`;
    return { rule: members(value, at), at };
  });
}

const MODERATION_FIELDS = ['moderate', 'moderators', 'clusters', 'namespaces'] as const;

function parseModeration(rule: Element['rule'], at: string): ModerationRule {
  const moderate = texts(rule.get('moderate'), `${at}.moderate`).map((name) => {
    const known = MODERATED.find((one) => one === name);
    if (known === undefined)
      throw malformed(`${at}.moderate names ${name} instead of ${MODERATED.join(', ')}`);
    return known;
  });
  const fields = known(rule.get('moderators'), `${at}.moderators`, ['users', 'tags']);
  const moderators = {
    users: texts(fields.get('users'), `${at}.moderators.users`, isName),
    tags: texts(fields.get('tags'), `${at}.moderators.tags`, isTag),
  };
  if (moderate.length === 0) throw malformed(`${at}.moderate is empty`);
  if (moderators.users.length + moderators.tags.length === 0)
    throw malformed(`${at}.moderators names no users or tags`);
  return {
    moderate,
    moderators,
    clusters: texts(rule.get('clusters'), `${at}.clusters`),
    namespaces: texts(rule.get('namespaces'), `${at}.namespaces`, isNamespace),
  };
}

function parseRule(rule: Element['rule'], at: string): AccessRule {
  const request = known(rule.get('request'), `${at}.request`, ['groups', 'users', 'writes']);
  const approvers = rule.get('approvers');
  const windows = listOf(rule.get('windows'), `${at}.windows`);
  const parsed: AccessRule = {
    groups: texts(request.get('groups'), `${at}.request.groups`, isName),
    users: texts(request.get('users'), `${at}.request.users`, isUserName),
    writes: grantFlag(request.get('writes'), `${at}.request.writes`),
    clusters: texts(rule.get('clusters'), `${at}.clusters`),
    namespaces: texts(rule.get('namespaces'), `${at}.namespaces`, isNamespace),
    maxDurationMs: duration(rule.get('maxduration') ?? DEFAULT_DURATION, `${at}.maxDuration`),
    requireReason: grantFlag(rule.get('requirereason'), `${at}.requireReason`),
    approvers: approvers === undefined ? undefined : parseApprovers(approvers, `${at}.approvers`),
    windows: windows.map((window, index) => parseWindow(window, `${at}.windows[${index}]`)),
    enforceRecorder: grantFlag(rule.get('enforcerecorder'), `${at}.enforceRecorder`),
  };
  if (parsed.groups.length === 0 && parsed.users.length === 0 && !parsed.writes)
    throw malformed(`${at}.request names no groups, no users and no writes`);
  if (parsed.writes && (parsed.groups.length > 0 || parsed.users.length > 0))
    throw malformed(`${at}.request names writes together with groups or users; use two rules`);
  return parsed;
}

const RULE_FIELDS = [
  'request',
  'clusters',
  'namespaces',
  'maxduration',
  'requirereason',
  'approvers',
  'windows',
  'enforcerecorder',
] as const;

function parseApprovers(value: unknown, at: string): Approvers {
  const fields = known(value, at, ['users', 'groups', 'tags', 'count']);
  const count = fields.get('count') ?? 1;
  if (typeof count !== 'number' || !Number.isInteger(count) || count < 0 || count > MAX_APPROVALS)
    throw malformed(`${at}.count is not a whole number from 0 to ${MAX_APPROVALS}`);
  const approvers = {
    users: texts(fields.get('users'), `${at}.users`, isName),
    groups: texts(fields.get('groups'), `${at}.groups`, isName),
    tags: texts(fields.get('tags'), `${at}.tags`, isTag),
    count,
  };
  if (approvers.users.length + approvers.groups.length + approvers.tags.length === 0)
    throw malformed(`${at} names no users, groups or tags`);
  return approvers;
}

function parseWindow(value: unknown, at: string): AccessWindow {
  const fields = known(value, at, ['days', 'from', 'to', 'timezone']);
  const days = texts(fields.get('days'), `${at}.days`, (day) => dayOf(day) >= 0).map(dayOf);
  const from = minutes(fields.get('from') ?? '00:00', `${at}.from`);
  const to = minutes(fields.get('to') ?? '24:00', `${at}.to`);
  if (from >= to) throw malformed(`${at} ends before it begins`);
  const timeZone = fields.get('timezone') ?? 'UTC';
  if (typeof timeZone !== 'string' || !isTimeZone(timeZone))
    throw malformed(`${at}.timeZone is not the name of a time zone`);
  return { days: days.length === 0 ? [0, 1, 2, 3, 4, 5, 6] : days, from, to, timeZone };
}

/**
 * Returns the fields of an object, with folded names as keys (see `exact-json.ts`). Rejects fields whose names are not
 * in `names`.
 */
function known(value: unknown, at: string, names: readonly string[]): ReadonlyMap<string, unknown> {
  return onlyKnown(members(value, at), at, names);
}

function onlyKnown(fields: Element['rule'], at: string, names: readonly string[]): Element['rule'] {
  for (const name of fields.keys())
    if (!names.includes(name)) throw malformed(`${at} has the unknown field ${name}`);
  return fields;
}

function listOf(value: unknown, at: string): readonly unknown[] {
  if (value === undefined) return [];
  if (!Array.isArray(value) || value.length > MAX_RULES) throw malformed(`${at} is not a list`);
  return value;
}

function duration(value: unknown, at: string): number {
  const parsed = typeof value === 'string' ? parseDuration(value) : undefined;
  if (parsed === undefined || parsed > MAX_DURATION_MS)
    throw malformed(`${at} is not a duration such as 30m, 4h or 2d, at most 30d`);
  return parsed;
}

const UNIT_MS: Readonly<Record<string, number>> = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000 };

/**
 * Parses `90s`, `30m`, `4h`, `1h30m`, `2d`. Returns the duration in milliseconds, or undefined for invalid
 * values and for zero.
 */
export function parseDuration(text: string): number | undefined {
  if (!/^(?:\d{1,6}[smhd])+$/.test(text)) return undefined;
  let total = 0;
  for (const [, count, unit = ''] of text.matchAll(/(\d+)([smhd])/g))
    total += Number(count) * (UNIT_MS[unit] ?? 0);
  return total === 0 ? undefined : total;
}

function minutes(value: unknown, at: string): number {
  const [, hour, minute] = typeof value === 'string' ? (/^(\d\d):(\d\d)$/.exec(value) ?? []) : [];
  const total = Number(hour) * 60 + Number(minute);
  if (hour === undefined || Number(minute) > 59 || total > 24 * 60)
    throw malformed(`${at} is not a time such as 08:30`);
  return total;
}

function dayOf(day: string): number {
  return DAYS.findIndex((name) => name === day.toLowerCase());
}

function isTimeZone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone !== '';
  } catch {
    return false;
  }
}

/**
 * Returns true for a valid name. Valid names contain only characters that can be compared with header values byte by
 * byte.
 */
function isName(text: string): boolean {
  return /^[!-~]{1,256}$/.test(text);
}

/**
 * Rejects `system:` users, which are accounts of nodes and programs. Also rejects `me`, because `--as me` stands for
 * the caller.
 */
function isUserName(text: string): boolean {
  return isName(text) && !text.toLowerCase().startsWith('system:') && text !== 'me';
}

function isNamespace(text: string): boolean {
  return /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/.test(text);
}
