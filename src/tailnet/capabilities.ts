/**
 * Kubernetes grants as typed rules, parsed like Tailscale's operator (*the reference*): field names in any case
 * (as Go's `encoding/json` matches them), `null` as absent, unknown fields ignored. One invalid rule makes the
 * complete grant invalid, because it may otherwise allow more than intended. Pure.
 */
import { TailcastError } from '../errors.ts';
import { parseAddressPort } from './addresses.ts';
import { foldName } from './exact-json.ts';
import type { CapabilityMap } from './identity.ts';

/** Name of the capability in a policy file's `grants[].app`. */
export const KUBERNETES_CAPABILITY = 'tailscale.com/cap/kubernetes';
/** Older name: applies to impersonation only, and only if the newer name has no rule. */
export const LEGACY_KUBERNETES_CAPABILITY = 'https://tailscale.com/cap/kubernetes';

/** One element of the capability's list. */
export interface KubernetesRule {
  /** Groups to impersonate, in the order of the grant. */
  readonly groups: readonly string[];
  /** Tags of recorder nodes, `tag:…`. */
  readonly recorderTags: readonly string[];
  /** `ip:port` or `[ipv6]:port`, set by the control server. */
  readonly recorderAddresses: readonly string[];
  readonly enforceRecorder: boolean;
  readonly enableEvents: boolean;
}

const MAX_RULES = 1000;
const MAX_LIST = 1000;
const MAX_TEXT = 1024;
const MAX_MEMBERS = 100;

/** @throws TailcastError `GRANT_MALFORMED` */
export function parseKubernetesRules(capabilities: CapabilityMap): {
  readonly impersonation: readonly KubernetesRule[];
  readonly recording: readonly KubernetesRule[];
} {
  const recording = parseRules(capabilities, KUBERNETES_CAPABILITY);
  const impersonation =
    recording.length > 0 ? recording : parseRules(capabilities, LEGACY_KUBERNETES_CAPABILITY);
  return { impersonation, recording };
}

function parseRules(capabilities: CapabilityMap, name: string): readonly KubernetesRule[] {
  const rules = capabilities.get(name) ?? [];
  if (rules.length > MAX_RULES) throw malformed(`${name} has more than ${MAX_RULES} rules`);
  return rules.map((rule, index) => parseRule(rule, `${name}[${index}]`));
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
    enforceRecorder: flag(rule.get('enforcerecorder'), `${at}.enforceRecorder`),
    enableEvents: flag(rule.get('enableevents'), `${at}.enableEvents`),
  };
}

/**
 * Returns the fields by folded name, without `null` values. Two names that fold to one are ambiguous and
 * rejected.
 */
function members(value: unknown, at: string): ReadonlyMap<string, unknown> {
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

function texts(value: unknown, at: string, accept: (text: string) => boolean = isText): readonly string[] {
  if (value === undefined) return [];
  if (!Array.isArray(value)) throw malformed(`${at} is not a list`);
  if (value.length > MAX_LIST) throw malformed(`${at} has more than ${MAX_LIST} elements`);
  return value.map((element: unknown, index) => {
    if (typeof element === 'string' && element.length <= MAX_TEXT && accept(element)) return element;
    throw malformed(`${at}[${index}] is not what it should be`);
  });
}

function flag(value: unknown, at: string): boolean {
  if (value === undefined) return false;
  if (typeof value !== 'boolean') throw malformed(`${at} is neither true nor false`);
  return value;
}

function isText(text: string): boolean {
  return text !== '';
}

function isTag(text: string): boolean {
  return /^tag:[A-Za-z][A-Za-z0-9-]*$/.test(text);
}

function isAddressPort(text: string): boolean {
  return parseAddressPort(text) !== undefined;
}

function malformed(detail: string): TailcastError {
  return new TailcastError('GRANT_MALFORMED', detail);
}
