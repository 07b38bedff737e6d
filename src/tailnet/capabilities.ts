/**
 * Parses Kubernetes grants as Tailscale's operator (*the reference*) does: field names are case-insensitive (as in Go's
 * `encoding/json`), `null` means absent, and unknown fields are ignored. A single invalid rule makes the complete grant
 * invalid, because the other rules may allow more than intended. Pure.
 */
import { TailcastError } from '../errors.ts';
import { parseAddressPort } from './addresses.ts';
import { foldName } from './exact-json.ts';
import type { CapabilityMap } from './identity.ts';

/** Name of the capability in a policy file's `grants[].app`. */
export const KUBERNETES_CAPABILITY = 'tailscale.com/cap/kubernetes';
/**
 * Older name of the capability. Its rules apply only to impersonation, and only if there is no rule with the newer
 * name.
 */
export const LEGACY_KUBERNETES_CAPABILITY = 'https://tailscale.com/cap/kubernetes';

/** One rule: an element of the list that a grant contains for the capability. */
export interface KubernetesRule {
  /** Groups to impersonate, in the order of the grant. */
  readonly groups: readonly string[];
  /** Tags of recorder nodes, `tag:…`. */
  readonly recorderTags: readonly string[];
  /** Addresses of recorders (`ip:port` or `[ipv6]:port`), set by the control server. */
  readonly recorderAddresses: readonly string[];
  readonly enforceRecorder: boolean;
  readonly enableEvents: boolean;
}

const MAX_RULES = 1000;
const MAX_LIST = 1000;
const MAX_TEXT = 1024;
const MAX_MEMBERS = 100;

export interface KubernetesRules {
  readonly impersonation: readonly KubernetesRule[];
  readonly recording: readonly KubernetesRule[];
}

/** The cluster for which rules are selected, if the gateway serves several clusters. */
export interface ClusterScope {
  readonly name: string;
  /** True if rules without `clusters` apply to the cluster. */
  readonly isDefault: boolean;
}

/** @throws TailcastError `GRANT_MALFORMED` */
export function parseKubernetesRules(capabilities: CapabilityMap): KubernetesRules {
  const recording = parseRules(capabilities, KUBERNETES_CAPABILITY);
  const impersonation =
    recording.length > 0 ? recording : parseRules(capabilities, LEGACY_KUBERNETES_CAPABILITY);
  return { impersonation, recording };
}

/**
 * Returns the rules that apply to one cluster: the rules whose `clusters` match the name of the cluster and, if
 * `scope.isDefault` is true, the rules without `clusters`. Rules with the older capability name never apply, because
 * they have no field `clusters`.
 *
 * If none of these rules contains `enforceRecorder`, the recording fields of all rules apply, even of rules for other
 * clusters. Therefore, only a rule that applies to this cluster can disable enforced recording.
 *
 * @throws TailcastError `GRANT_MALFORMED`
 */
export function parseClusterRules(capabilities: CapabilityMap, scope: ClusterScope): KubernetesRules {
  const all = rulesOf(capabilities, KUBERNETES_CAPABILITY).map((value, index) => {
    const at = `${KUBERNETES_CAPABILITY}[${index}]`;
    const fields = members(value, at);
    const named = fields.get('clusters');
    const patterns = texts(named, `${at}.clusters`, isClusterPattern);
    return {
      rule: parseRule(value, at),
      applies:
        named === undefined ? scope.isDefault : patterns.some((pattern) => matchesName(pattern, scope.name)),
      decides: fields.get('enforcerecorder') !== undefined,
    };
  });
  const applying = all.filter(({ applies }) => applies);
  const duties = applying.some(({ decides }) => decides) ? applying : all;
  return {
    impersonation: applying.map(({ rule }) => rule),
    recording: duties.map(({ rule }) => rule),
  };
}

/** True if a name equals the pattern; a `*` at the end of the pattern matches any text. */
export function matchesName(pattern: string, name: string): boolean {
  return pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : name === pattern;
}

function rulesOf(capabilities: CapabilityMap, name: string): readonly unknown[] {
  const rules = capabilities.get(name) ?? [];
  if (rules.length > MAX_RULES) throw malformed(`${name} has more than ${MAX_RULES} rules`);
  return rules;
}

function parseRules(capabilities: CapabilityMap, name: string): readonly KubernetesRule[] {
  return rulesOf(capabilities, name).map((rule, index) => parseRule(rule, `${name}[${index}]`));
}

function parseRule(value: unknown, at: string): KubernetesRule {
  const rule = members(value, at);
  const impersonate = rule.get('impersonate');
  const groups =
    impersonate === undefined ? undefined : members(impersonate, `${at}.impersonate`).get('groups');
  return {
    groups: texts(groups, `${at}.impersonate.groups`),
    recorderTags: texts(rule.get('recorder'), `${at}.recorder`, isTag),
    recorderAddresses: texts(rule.get('recorderaddrs'), `${at}.recorderAddrs`, isAddressPort),
    enforceRecorder: grantFlag(rule.get('enforcerecorder'), `${at}.enforceRecorder`),
    enableEvents: grantFlag(rule.get('enableevents'), `${at}.enableEvents`),
  };
}

/**
 * Returns the fields by folded name (see `exact-json.ts`), without `null` values. Rejects an object in which two field
 * names fold to the same name.
 *
 * @throws TailcastError `GRANT_MALFORMED`
 */
export function members(value: unknown, at: string): ReadonlyMap<string, unknown> {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) {
    throw malformed(`${at} is not an object`);
  }
  const entries = Object.entries(value);
  if (entries.length > MAX_MEMBERS) throw malformed(`${at} has more than ${MAX_MEMBERS} members`);
  const folded = new Map<string, unknown>();
  for (const [name, member] of entries) {
    const key = foldName(name);
    if (folded.has(key)) throw malformed(`${at} has two members that differ in letter case only`);
    folded.set(key, member ?? undefined);
  }
  return folded;
}

/**
 * Returns a list of texts, or an empty list if the value is absent.
 * @throws TailcastError `GRANT_MALFORMED`
 */
export function texts(
  value: unknown,
  at: string,
  accept: (text: string) => boolean = isText,
): readonly string[] {
  if (value === undefined) return [];
  if (!Array.isArray(value)) throw malformed(`${at} is not a list`);
  if (value.length > MAX_LIST) throw malformed(`${at} has more than ${MAX_LIST} elements`);
  return value.map((element: unknown, index) => {
    if (typeof element === 'string' && element.length <= MAX_TEXT && accept(element)) return element;
    throw malformed(`${at}[${index}] is not what it should be`);
  });
}

/** Returns a boolean, or false if the value is absent. @throws TailcastError `GRANT_MALFORMED` */
export function grantFlag(value: unknown, at: string): boolean {
  if (value === undefined) return false;
  if (typeof value !== 'boolean') throw malformed(`${at} is neither true nor false`);
  return value;
}

function isText(text: string): boolean {
  return text !== '';
}

/** Returns true if the text is `tag:` followed by a name. */
export function isTag(text: string): boolean {
  return /^tag:[A-Za-z][A-Za-z0-9-]*$/.test(text);
}

/** Returns true for a cluster name, or for a prefix of a cluster name followed by `*`. */
function isClusterPattern(text: string): boolean {
  return /^(?=.)[a-z0-9-]*\*?$/.test(text);
}

function isAddressPort(text: string): boolean {
  return parseAddressPort(text) !== undefined;
}

/** Returns the error for an invalid grant. */
export function malformed(detail: string): TailcastError {
  return new TailcastError('GRANT_MALFORMED', detail);
}
