/**
 * Parser of the alert file: webhooks, and rules with their queries. Pure functions; the caller reads the file. The
 * parser collects all problems.
 */
import { TailcastError } from '../../../errors.ts';
import type { IndexedText } from '../../../search/moments.ts';
import { parseQuery, QueryError, type Query } from '../../../search/query.ts';

/** Contents of a valid file. */
export interface AlertFile {
  readonly webhooks: ReadonlyMap<string, WrittenWebhook>;
  readonly rules: readonly WrittenRule[];
  readonly giveUpHours: number;
}

export interface WrittenWebhook {
  readonly url: string;
  readonly secretFile: string;
  readonly caFile?: string;
  /** Login or tag. The webhook sees the recordings that this viewer may see. */
  readonly viewer?: string;
  readonly text: boolean;
  readonly player?: string;
}

interface WrittenRule {
  readonly name: string;
  readonly query: Query;
  readonly webhook: string;
}

const SECTIONS = ['webhooks', 'rules', 'giveUpHours'];
const WEBHOOK_KEYS = ['url', 'secretFile', 'caFile', 'viewer', 'text', 'allowHttp', 'player'];
const RULE_KEYS = ['query', 'webhook'];
const NAME = /^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$/;
const MAX_RULES = 100;
const MAX_GIVE_UP_HOURS = 720;
const GIVE_UP_HOURS = 72;

type Report = (key: string, problem: string) => void;
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
  const report: Report = (key, problem) => void problems.push(`${key} in ${file}: ${problem}`);
  onlyKnown(entries, SECTIONS, '', report);
  const webhooks = new Map<string, WrittenWebhook>();
  for (const [name, value] of members(entries.get('webhooks'), 'webhooks', report))
    webhooks.set(name, readWebhook(name, value, report));
  const rules = Array.from(members(entries.get('rules'), 'rules', report), ([name, value]) =>
    readRule(name, value, webhooks, indexed, report),
  );
  if (rules.length === 0) report('rules', 'there is none; name at least one, with a query and a webhook');
  if (rules.length > MAX_RULES) report('rules', `there are ${rules.length}; at most ${MAX_RULES} are taken`);
  const giveUpHours = entries.get('giveUpHours') ?? GIVE_UP_HOURS;
  const isNumber = typeof giveUpHours === 'number' && giveUpHours > 0 && giveUpHours <= MAX_GIVE_UP_HOURS;
  if (!isNumber) report('giveUpHours', `a number of hours up to ${MAX_GIVE_UP_HOURS} is expected`);
  if (problems.length > 0) throw new TailcastError('CONFIG_INVALID', problems.join('\n  '));
  return {
    webhooks,
    rules: rules.filter((rule) => rule !== undefined),
    giveUpHours: isNumber ? giveUpHours : GIVE_UP_HOURS,
  };
}

function members(value: unknown, key: string, report: Report): Members {
  if (value === undefined || value === null) return new Map();
  if (typeof value === 'object' && !Array.isArray(value)) return new Map(Object.entries(value));
  report(key, 'a mapping is expected');
  return new Map();
}

function onlyKnown(found: Members, known: readonly string[], prefix: string, report: Report): void {
  for (const key of found.keys())
    if (!known.includes(key)) report(`${prefix}${key}`, `no such key; there are ${known.join(', ')}`);
}

function checkName(name: string, key: string, report: Report): void {
  if (!NAME.test(name))
    report(key, 'a name has lower case letters, digits, dots, dashes and underscores, at most 64');
}

function readWebhook(name: string, value: unknown, report: Report): WrittenWebhook {
  const key = `webhooks.${name}`;
  checkName(name, key, report);
  const found = members(value, key, report);
  onlyKnown(found, WEBHOOK_KEYS, `${key}.`, report);
  const url = readAddress(found, key, report);
  const secretFile = readText(found, 'secretFile', key, report);
  if (secretFile === undefined)
    report(`${key}.secretFile`, 'is missing; name a file with 24 to 64 random bytes in base64');
  const caFile = readText(found, 'caFile', key, report);
  const viewer = readText(found, 'viewer', key, report);
  if (viewer !== undefined && /[\s=*]/.test(viewer))
    report(`${key}.viewer`, 'a login or a tag is expected, as in the setting viewers');
  const player = readText(found, 'player', key, report);
  if (player !== undefined && !(URL.canParse(player) && /^https?:$/.test(new URL(player).protocol)))
    report(`${key}.player`, 'the address of the page of recordings is expected, https://…');
  return {
    url,
    secretFile: secretFile ?? '',
    text: readFlag(found, 'text', key, report),
    ...(caFile === undefined ? {} : { caFile }),
    ...(viewer === undefined ? {} : { viewer }),
    ...(player === undefined ? {} : { player }),
  };
}

function readAddress(found: Members, key: string, report: Report): string {
  const allowHttp = readFlag(found, 'allowHttp', key, report);
  const text = readText(found, 'url', key, report);
  const url = text !== undefined && URL.canParse(text) ? new URL(text) : undefined;
  if (text === undefined) report(`${key}.url`, 'is missing; name the address that is told, https://…');
  else if (url === undefined || !/^https?:$/.test(url.protocol))
    report(`${key}.url`, 'an https:// address is expected');
  else if (url.username !== '' || url.password !== '')
    report(`${key}.url`, 'has a password in it; take it out, messages are signed with secretFile');
  else if (!mayBePlain(url) && !allowHttp)
    report(`${key}.url`, 'is not encrypted; use https://, or say allowHttp: true where only you can listen');
  return url?.href ?? '';
}

/** True for an encrypted or local address. */
function mayBePlain({ protocol, hostname }: URL): boolean {
  return protocol === 'https:' || ['localhost', '127.0.0.1', '[::1]'].includes(hostname);
}

function readText(found: Members, name: string, key: string, report: Report): string | undefined {
  const value = found.get(name);
  if (value === undefined) return undefined;
  if (typeof value === 'string' && value.trim() !== '') return value.trim();
  report(`${key}.${name}`, 'a text is expected');
  return '';
}

function readFlag(found: Members, name: string, key: string, report: Report): boolean {
  const value = found.get(name) ?? false;
  if (typeof value === 'boolean') return value;
  report(`${key}.${name}`, 'true or false is expected');
  return false;
}

function readRule(
  name: string,
  value: unknown,
  webhooks: ReadonlyMap<string, WrittenWebhook>,
  indexed: IndexedText | undefined,
  report: Report,
): WrittenRule | undefined {
  const key = `rules.${name}`;
  checkName(name, key, report);
  const found = members(value, key, report);
  onlyKnown(found, RULE_KEYS, `${key}.`, report);
  const webhook = readText(found, 'webhook', key, report);
  if (webhook === undefined) report(`${key}.webhook`, 'is missing; name one of webhooks');
  else if (!webhooks.has(webhook))
    report(
      `${key}.webhook`,
      `there is no ${webhook}; there are ${[...webhooks.keys()].join(', ') || 'none'}`,
    );
  const text = readText(found, 'query', key, report);
  if (text === undefined) {
    report(`${key}.query`, 'is missing; name what sessions are looked for, as in tailcast search');
    return undefined;
  }
  const query = readQuery(text, `${key}.query`, indexed, report);
  return query === undefined || webhook === undefined ? undefined : { name, query, webhook };
}

function readQuery(
  text: string,
  key: string,
  indexed: IndexedText | undefined,
  report: Report,
): Query | undefined {
  let query: Query;
  try {
    query = parseQuery(text, 0);
  } catch (error) {
    if (!(error instanceof QueryError)) throw error;
    report(key, error.message);
    return undefined;
  }
  if (query.clauses.length === 0) report(key, 'is true of every session; name what is looked for');
  for (const term of query.clauses.flat()) {
    if (term.kind === 'time')
      report(key, `a rule looks at what comes in: take out ${term.field}:${term.value}`);
    else if (term.kind === 'text' && term.field === 'text' && indexed !== undefined && indexed !== 'all')
      report(key, `text:${term.value} is never true while searchText is ${indexed}; set searchText to all`);
    else if (term.kind === 'text' && term.field === 'cmd' && indexed === 'off')
      report(key, `cmd:${term.value} is never true while searchText is off; set it to commands or all`);
  }
  return query;
}
