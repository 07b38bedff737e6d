/**
 * Parser of the alert file: webhooks, and rules with their queries. The functions are pure: the caller reads the file.
 * The parser collects all problems.
 */
import { TailcastError } from '../../../errors.ts';
import type { IndexedText } from '../../../search/moments.ts';
import { patternProblem, type RulePattern } from '../../../search/patterns.ts';
import { WEBHOOK_FORMATS, type WebhookFormat } from './chat-message.ts';
import { parseQuery, QueryError, type Query } from '../../../search/query.ts';

/** Contents of a valid file. */
export interface AlertFile {
  readonly webhooks: ReadonlyMap<string, WrittenWebhook>;
  readonly rules: readonly WrittenRule[];
  readonly giveUpHours: number;
}

export interface WrittenWebhook {
  readonly url: string;
  /** File with the signing keys. Required for the format `json`. */
  readonly secretFile?: string;
  readonly caFile?: string;
  /** Login or tag. The webhook gets alerts about recordings that this viewer may see. */
  readonly viewer?: string;
  readonly format: WebhookFormat;
  readonly text: boolean;
  readonly player?: string;
}

interface WrittenRule {
  readonly name: string;
  /** Query of the rule; undefined for a rule about steps of access requests. */
  readonly query: Query | undefined;
  readonly pattern?: RulePattern;
  /** Action after a match. Default: `notify`. */
  readonly action?: RuleAction;
  /** Name of the webhook that is notified. Default: none. */
  readonly webhook?: string;
}

const ACTIONS = ['notify', 'mark', 'hold', 'end'] as const;
/**
 * - `notify`: only notifies the webhook
 * - `mark`: writes a comment and a tag at the moment of the match
 * - `hold`: pauses the session, which ends unless a viewer resumes it
 * - `end`: ends the session
 */
export type RuleAction = (typeof ACTIONS)[number];

const SECTIONS = ['webhooks', 'rules', 'giveUpHours'];
const WEBHOOK_KEYS = ['url', 'format', 'secretFile', 'caFile', 'viewer', 'text', 'allowHttp', 'player'];
const RULE_KEYS = ['query', 'output', 'command', 'accessRequests', 'action', 'webhook'];
const NAME = /^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$/;
const MAX_RULES = 300;
const MAX_GIVE_UP_HOURS = 720;
const GIVE_UP_HOURS = 72;

type Fail = (key: string, problem: string) => void;
type Members = ReadonlyMap<string, unknown>;

/**
 * Parses the file.
 *
 * @param entries top-level keys of the file
 * @param indexed indexed text; undefined if unknown. Rules about other text are errors because they never match
 * @throws TailcastError `CONFIG_INVALID` that lists every problem with its key
 */
export function parseAlertFile(entries: Members, file: string, indexed: IndexedText | undefined): AlertFile {
  const problems: string[] = [];
  const fail: Fail = (key, problem) => void problems.push(`${key} in ${file}: ${problem}`);
  onlyKnown(entries, SECTIONS, '', fail);
  const webhooks = new Map<string, WrittenWebhook>();
  for (const [name, value] of members(entries.get('webhooks'), 'webhooks', fail))
    webhooks.set(name, readWebhook(name, value, fail));
  const rules = Array.from(members(entries.get('rules'), 'rules', fail), ([name, value]) =>
    readRule(name, value, webhooks, indexed, fail),
  );
  if (rules.length === 0)
    fail('rules', 'the list is empty; add at least one rule with a query and a webhook');
  if (rules.length > MAX_RULES) fail('rules', `there are ${rules.length}; at most ${MAX_RULES} are taken`);
  const giveUpHours = entries.get('giveUpHours') ?? GIVE_UP_HOURS;
  const isNumber = typeof giveUpHours === 'number' && giveUpHours > 0 && giveUpHours <= MAX_GIVE_UP_HOURS;
  if (!isNumber) fail('giveUpHours', `a number of hours up to ${MAX_GIVE_UP_HOURS} is expected`);
  if (problems.length > 0) throw new TailcastError('CONFIG_INVALID', problems.join('\n  '));
  return {
    webhooks,
    rules: rules.filter((rule) => rule !== undefined),
    giveUpHours: isNumber ? giveUpHours : GIVE_UP_HOURS,
  };
}

function members(value: unknown, key: string, fail: Fail): Members {
  if (value === undefined || value === null) return new Map();
  if (typeof value === 'object' && !Array.isArray(value)) return new Map(Object.entries(value));
  fail(key, 'a mapping is expected');
  return new Map();
}

function onlyKnown(found: Members, known: readonly string[], prefix: string, fail: Fail): void {
  for (const key of found.keys())
    if (!known.includes(key)) fail(`${prefix}${key}`, `no such key; there are ${known.join(', ')}`);
}

function checkName(name: string, key: string, fail: Fail): void {
  if (!NAME.test(name))
    fail(key, 'a name has lower case letters, digits, dots, dashes and underscores, at most 64');
}

function readWebhook(name: string, value: unknown, fail: Fail): WrittenWebhook {
  const key = `webhooks.${name}`;
  checkName(name, key, fail);
  const found = members(value, key, fail);
  onlyKnown(found, WEBHOOK_KEYS, `${key}.`, fail);
  const url = readAddress(found, key, fail);
  const written = readText(found, 'format', key, fail) ?? 'json';
  const format = WEBHOOK_FORMATS.find((name) => name === written);
  if (format === undefined) fail(`${key}.format`, `one of ${WEBHOOK_FORMATS.join(', ')} is expected`);
  const secretFile = readText(found, 'secretFile', key, fail);
  if (secretFile === undefined && format === 'json')
    fail(`${key}.secretFile`, 'is missing; name a file with 24 to 64 random bytes in base64');
  const caFile = readText(found, 'caFile', key, fail);
  const viewer = readText(found, 'viewer', key, fail);
  if (viewer !== undefined && /[\s=*]/.test(viewer))
    fail(`${key}.viewer`, 'a login or a tag is expected, as in the setting viewers');
  const player = readText(found, 'player', key, fail);
  if (player !== undefined && !(URL.canParse(player) && /^https?:$/.test(new URL(player).protocol)))
    fail(`${key}.player`, 'the address of the page of recordings is expected, https://…');
  return {
    url,
    format: format ?? 'json',
    ...(secretFile === undefined ? {} : { secretFile }),
    text: readFlag(found, 'text', key, fail),
    ...(caFile === undefined ? {} : { caFile }),
    ...(viewer === undefined ? {} : { viewer }),
    ...(player === undefined ? {} : { player }),
  };
}

function readAddress(found: Members, key: string, fail: Fail): string {
  const allowHttp = readFlag(found, 'allowHttp', key, fail);
  const text = readText(found, 'url', key, fail);
  const url = text !== undefined && URL.canParse(text) ? new URL(text) : undefined;
  if (text === undefined) fail(`${key}.url`, 'is missing; set the address of the webhook, https://…');
  else if (url === undefined || !/^https?:$/.test(url.protocol))
    fail(`${key}.url`, 'an https:// address is expected');
  else if (url.username !== '' || url.password !== '')
    fail(`${key}.url`, 'has a password in it; take it out, messages are signed with secretFile');
  else if (!mayBePlain(url) && !allowHttp)
    fail(`${key}.url`, 'is not encrypted; use https://, or say allowHttp: true where only you can listen');
  return url?.href ?? '';
}

/** True for an encrypted or local address. */
function mayBePlain({ protocol, hostname }: URL): boolean {
  return protocol === 'https:' || ['localhost', '127.0.0.1', '[::1]'].includes(hostname);
}

function readText(found: Members, name: string, key: string, fail: Fail): string | undefined {
  const value = found.get(name);
  if (value === undefined) return undefined;
  if (typeof value === 'string' && value.trim() !== '') return value.trim();
  fail(`${key}.${name}`, 'a text is expected');
  return '';
}

function readFlag(found: Members, name: string, key: string, fail: Fail): boolean {
  const value = found.get(name) ?? false;
  if (typeof value === 'boolean') return value;
  fail(`${key}.${name}`, 'true or false is expected');
  return false;
}

function readRule(
  name: string,
  value: unknown,
  webhooks: ReadonlyMap<string, WrittenWebhook>,
  indexed: IndexedText | undefined,
  fail: Fail,
): WrittenRule | undefined {
  const key = `rules.${name}`;
  checkName(name, key, fail);
  const found = members(value, key, fail);
  onlyKnown(found, RULE_KEYS, `${key}.`, fail);
  const rule = { name, ...readTarget(found, key, webhooks, fail) };
  const text = readText(found, 'query', key, fail);
  const pattern = readPattern(found, key, indexed, fail);
  if (readFlag(found, 'accessRequests', key, fail)) {
    for (const other of ['query', 'output', 'command', 'action'])
      if (found.has(other)) fail(`${key}.${other}`, 'does not apply to accessRequests; use two rules');
    if (rule.webhook !== undefined && webhooks.get(rule.webhook)?.player === undefined)
      fail(
        `webhooks.${rule.webhook}.player`,
        `is missing; rule ${name} links to the page of access requests`,
      );
    return { ...rule, query: undefined };
  }
  if (text === undefined && pattern === undefined) {
    fail(`${key}.query`, 'is missing; set query, output, command or accessRequests');
    return undefined;
  }
  const query = text === undefined ? { clauses: [] } : readQuery(text, `${key}.query`, indexed, fail);
  if (query === undefined) return undefined;
  if (pattern === undefined) return { ...rule, query };
  if (query.clauses.flat().some(({ kind }) => kind === 'text'))
    fail(`${key}.query`, `has words; a rule with ${pattern.in} takes only keys such as ns: or user:`);
  return { ...rule, query, pattern };
}

/** Returns the action of a rule and its webhook. */
function readTarget(
  found: Members,
  key: string,
  webhooks: ReadonlyMap<string, WrittenWebhook>,
  fail: Fail,
): Pick<WrittenRule, 'action' | 'webhook'> {
  const written = readText(found, 'action', key, fail) ?? 'notify';
  const action = ACTIONS.find((each) => each === written) ?? 'notify';
  if (action !== written) fail(`${key}.action`, `one of ${ACTIONS.join(', ')} is expected`);
  const webhook = readText(found, 'webhook', key, fail);
  if (webhook === undefined && action === 'notify')
    fail(`${key}.webhook`, 'is missing; name one of webhooks');
  else if (webhook !== undefined && !webhooks.has(webhook))
    fail(`${key}.webhook`, `there is no ${webhook}; there are ${[...webhooks.keys()].join(', ') || 'none'}`);
  return {
    ...(action === 'notify' ? {} : { action }),
    ...(webhook === undefined ? {} : { webhook }),
  };
}

function readPattern(
  found: Members,
  key: string,
  indexed: IndexedText | undefined,
  fail: Fail,
): RulePattern | undefined {
  const output = readText(found, 'output', key, fail);
  const command = readText(found, 'command', key, fail);
  if (output !== undefined && command !== undefined) fail(key, 'has output and command; use two rules');
  const source = output ?? command;
  if (source === undefined) return undefined;
  const kind = output === undefined ? 'command' : 'output';
  const problem = patternProblem(source);
  if (problem !== undefined) fail(`${key}.${kind}`, problem);
  if (indexed === 'off')
    fail(`${key}.${kind}`, 'is never true while searchText is off; set it to commands or all');
  return { in: kind, source };
}

function readQuery(
  text: string,
  key: string,
  indexed: IndexedText | undefined,
  fail: Fail,
): Query | undefined {
  let query: Query;
  try {
    query = parseQuery(text, 0);
  } catch (error) {
    if (!(error instanceof QueryError)) throw error;
    fail(key, error.message);
    return undefined;
  }
  if (query.clauses.length === 0) fail(key, 'matches every session; add a term');
  for (const term of query.clauses.flat()) {
    if (term.kind === 'time')
      fail(key, `a rule applies to new sessions and events: remove ${term.field}:${term.value}`);
    else if (term.kind === 'text' && term.field === 'text' && indexed !== undefined && indexed !== 'all')
      fail(key, `text:${term.value} is never true while searchText is ${indexed}; set searchText to all`);
    else if (term.kind === 'text' && term.field === 'cmd' && indexed === 'off')
      fail(key, `cmd:${term.value} is never true while searchText is off; set it to commands or all`);
  }
  return query;
}
