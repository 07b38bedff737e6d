/**
 * Parses the policy file. It consists of optional sections whose values override the defaults. The caller
 * parses the YAML. The error lists all problems of the file.
 */
import { TailcastError } from '../../errors.ts';
import { PROGRAM_PAGES, type ProgramPages } from './browser-pages.ts';
import {
  DEFAULT_POLICY,
  POLICY_ACTIONS,
  POLICY_CLASSES,
  UNREADABLE_WORKLOADS,
  type ClassActions,
  type Policy,
  type PolicyAction,
  type PolicyClass,
  type PortRange,
  type SessionPolicy,
  type UnreadableWorkloads,
} from './policy.ts';

const SECTIONS = ['enforced', 'others', 'portForward', 'sessions', 'workloads', 'browsers'] as const;
const NOTICE = /^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}]{1,200}$/u;
const MINUTE_MS = 60_000;

/**
 * @param entries top-level keys of the file
 * @throws TailcastError `CONFIG_INVALID` that lists every problem
 */
export function parsePolicy(entries: ReadonlyMap<string, unknown>, file: string): Policy {
  const problems: string[] = [];
  const say = (at: string, problem: string): void => void problems.push(`${at} in ${file}: ${problem}`);
  for (const key of entries.keys()) {
    if (!isOneOf(SECTIONS, key)) say(key, `no such section; there are ${SECTIONS.join(', ')}`);
  }
  const members = (name: (typeof SECTIONS)[number]): ReadonlyMap<string, unknown> => {
    const value = entries.get(name) ?? {};
    if (typeof value === 'object' && !Array.isArray(value)) return new Map(Object.entries(value));
    say(name, 'a mapping is expected');
    return new Map();
  };
  const policy: Policy = {
    enforced: parseActions(members('enforced'), DEFAULT_POLICY.enforced, 'enforced', say),
    others: parseActions(members('others'), DEFAULT_POLICY.others, 'others', say),
    refusedPorts: parsePorts(members('portForward'), say),
    sessions: parseSessions(members('sessions'), say),
    unreadableWorkloads: parseWorkloads(members('workloads'), say),
    programPages: parseBrowsers(members('browsers'), say),
  };
  if (problems.length > 0) throw new TailcastError('CONFIG_INVALID', problems.join('\n  '));
  return policy;
}

type Say = (at: string, problem: string) => void;

function parseActions(
  members: ReadonlyMap<string, unknown>,
  defaults: ClassActions,
  section: string,
  say: Say,
): ClassActions {
  const actions: Record<PolicyClass, PolicyAction> = { ...defaults };
  for (const [name, value] of members) {
    const at = `${section}.${name}`;
    if (!isOneOf(POLICY_CLASSES, name)) say(at, `no such class; there are ${POLICY_CLASSES.join(', ')}`);
    else if (typeof value !== 'string' || !isOneOf(POLICY_ACTIONS, value))
      say(at, `one of ${POLICY_ACTIONS.join(', ')} is expected`);
    else if (value === 'record' && name !== 'exec' && name !== 'attach')
      say(at, 'only exec and attach can be recorded; use event or refuse');
    else actions[name] = value;
  }
  return actions;
}

function parsePorts(members: ReadonlyMap<string, unknown>, say: Say): readonly PortRange[] {
  const ranges: PortRange[] = [];
  for (const [name, value] of members) {
    if (name !== 'refusePorts' || !Array.isArray(value)) {
      say(`portForward.${name}`, 'only refusePorts is known here, and it is a list of ports and ranges');
      continue;
    }
    for (const [index, item] of value.entries()) {
      const range = parseRange(item);
      if (range === undefined)
        say(`portForward.refusePorts[${index}]`, 'a port or a range such as 10250-10259 is expected');
      else ranges.push(range);
    }
  }
  return ranges;
}

function parseRange(item: unknown): PortRange | undefined {
  const match = /^(\d{1,5})(?:-(\d{1,5}))?$/.exec(String(item));
  if (match === null) return undefined;
  const first = Number(match[1]);
  const last = Number(match[2] ?? match[1]);
  return first >= 1 && last <= 65_535 && first <= last ? { first, last } : undefined;
}

function parseSessions(members: ReadonlyMap<string, unknown>, say: Say): SessionPolicy {
  const found = new Map<string, number>();
  let start: Pick<SessionPolicy, 'notice' | 'askReason'> = DEFAULT_POLICY.sessions;
  for (const [name, value] of members) {
    if (name === 'notice' || name === 'askReason') {
      start = { ...start, ...parseStart(name, value, say) };
      continue;
    }
    const known = ['perUser', 'total', 'maxMinutes', 'idleMinutes'].includes(name);
    if (!known)
      say(
        `sessions.${name}`,
        'no such key; there are perUser, total, maxMinutes, idleMinutes, notice, askReason',
      );
    else if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < 1 || value > 1_000_000)
      say(`sessions.${name}`, 'a whole number from 1 to 1000000 is expected');
    else found.set(name, value);
  }
  const minutes = (name: string): number | undefined => {
    const value = found.get(name);
    return value === undefined ? undefined : value * MINUTE_MS;
  };
  const { sessions } = DEFAULT_POLICY;
  return {
    perUser: found.get('perUser') ?? sessions.perUser,
    total: found.get('total') ?? sessions.total,
    maxDurationMs: minutes('maxMinutes') ?? sessions.maxDurationMs,
    idleMs: minutes('idleMinutes') ?? sessions.idleMs,
    notice: start.notice,
    askReason: start.askReason,
  };
}

/** Parses the keys `notice` and `askReason`. */
function parseStart(
  name: 'notice' | 'askReason',
  value: unknown,
  say: Say,
): Partial<Pick<SessionPolicy, 'notice' | 'askReason'>> {
  if (name === 'askReason') {
    if (typeof value === 'boolean') return { askReason: value };
    say('sessions.askReason', 'true or false is expected');
    return {};
  }
  if (typeof value === 'string' && NOTICE.test(value)) return { notice: value };
  say('sessions.notice', 'one line of up to 200 characters without control characters is expected');
  return {};
}

function parseWorkloads(members: ReadonlyMap<string, unknown>, say: Say): UnreadableWorkloads {
  let unreadable = DEFAULT_POLICY.unreadableWorkloads;
  for (const [name, value] of members) {
    if (name !== 'unreadable') say(`workloads.${name}`, 'only unreadable is known here');
    else if (typeof value === 'string' && isOneOf(UNREADABLE_WORKLOADS, value)) unreadable = value;
    else say('workloads.unreadable', `one of ${UNREADABLE_WORKLOADS.join(', ')} is expected`);
  }
  return unreadable;
}

function parseBrowsers(members: ReadonlyMap<string, unknown>, say: Say): ProgramPages {
  let pages = DEFAULT_POLICY.programPages;
  for (const [name, value] of members) {
    if (name !== 'programPages') say(`browsers.${name}`, 'only programPages is known here');
    else if (typeof value === 'string' && isOneOf(PROGRAM_PAGES, value)) pages = value;
    else say('browsers.programPages', `one of ${PROGRAM_PAGES.join(', ')} is expected`);
  }
  return pages;
}

function isOneOf<const Words extends readonly string[]>(words: Words, word: string): word is Words[number] {
  return words.includes(word);
}
