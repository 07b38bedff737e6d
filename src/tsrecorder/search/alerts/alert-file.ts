/**
 * Parser of the alert file: webhooks, and rules with their queries. The functions are pure: the caller reads the file.
 */
import { z } from 'zod';
import { TailcastError } from '../../../errors.ts';
import type { IndexedText } from '../../../search/moments.ts';
import { patternProblem, type RulePattern } from '../../../search/patterns.ts';
import { WEBHOOK_FORMATS } from './chat-message.ts';
import { parseQuery, QueryError, type Query } from '../../../search/query.ts';

const ACTIONS = ['notify', 'mark', 'hold', 'end'] as const;
/**
 * - `notify`: only notifies the webhook
 * - `mark`: writes a comment and a tag at the moment of the match
 * - `hold`: pauses the session; the session ends unless a viewer resumes it
 * - `end`: ends the session
 */
export type RuleAction = (typeof ACTIONS)[number];

const NAME = /^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$/;
const MAX_RULES = 300;
const MAX_GIVE_UP_HOURS = 720;
const NO_HOURS = `a number of hours up to ${MAX_GIVE_UP_HOURS} is expected`;
const NO_URL = 'is missing; set the address of the webhook, https://…';

const text = z.string('a text is expected').trim().min(1, 'a text is expected');
const flag = z.boolean('true or false is expected').default(false);

/** Returns the schema of an object that has only these keys. */
function mapping<Shape extends z.ZodRawShape>(shape: Shape): z.ZodObject<Shape, z.core.$strict> {
  const unknown = `no such key; there are ${Object.keys(shape).join(', ')}`;
  return z.strictObject(shape, {
    error: ({ code }) => (code === 'unrecognized_keys' ? unknown : 'a mapping is expected'),
  });
}

/** Returns the schema of an object that maps names to values. */
function named<Value extends z.ZodType>(value: Value) {
  const noName = 'a name has lower case letters, digits, dots, dashes and underscores, at most 64';
  return z
    .record(z.string().regex(NAME), value, {
      error: ({ code }) => (code === 'invalid_key' ? noName : 'a mapping is expected'),
    })
    .nullish()
    .transform((found) => new Map(Object.entries(found ?? {})));
}

const WEBHOOK = mapping({
  url: z.string(NO_URL),
  format: z.enum(WEBHOOK_FORMATS, `one of ${WEBHOOK_FORMATS.join(', ')} is expected`).default('json'),
  /** File with the signing keys. Required for the format `json`. */
  secretFile: text.exactOptional(),
  caFile: text.exactOptional(),
  /** Login or tag. The webhook gets alerts about recordings that this viewer may see. */
  viewer: text.regex(/^[^\s=*]*$/, 'a login or a tag is expected, as in the setting viewers').exactOptional(),
  text: flag,
  allowHttp: flag,
  player: text
    .refine(isAddress, 'the address of the page of recordings is expected, https://…')
    .exactOptional(),
}).superRefine((webhook, context) => {
  const problem = addressProblem(webhook);
  if (problem !== undefined) context.addIssue({ code: 'custom', path: ['url'], message: problem });
  if (webhook.secretFile !== undefined || webhook.format !== 'json') return;
  const message = 'is missing; name a file with 24 to 64 random bytes in base64';
  context.addIssue({ code: 'custom', path: ['secretFile'], message });
});
export type WrittenWebhook = z.infer<typeof WEBHOOK>;

const RULE = mapping({
  query: text.exactOptional(),
  output: text.exactOptional(),
  command: text.exactOptional(),
  accessRequests: flag,
  action: z.enum(ACTIONS, `one of ${ACTIONS.join(', ')} is expected`).exactOptional(),
  webhook: text.exactOptional(),
});

const FILE = mapping({
  webhooks: named(WEBHOOK),
  rules: named(RULE)
    .refine(({ size }) => size > 0, 'the list is empty; add at least one rule with a query and a webhook')
    .refine(({ size }) => size <= MAX_RULES, `at most ${MAX_RULES} rules are taken`),
  giveUpHours: z.number(NO_HOURS).positive(NO_HOURS).max(MAX_GIVE_UP_HOURS, NO_HOURS).default(72),
});

type Webhooks = ReadonlyMap<string, WrittenWebhook>;

/** A rule of the file. */
export interface AlertRule {
  readonly name: string;
  /** Query for sessions. Undefined if the rule matches steps of access requests. */
  readonly query: Query | undefined;
  /** Regular expression that a line of the session must match. */
  readonly pattern?: RulePattern;
  /** Action after a match. Default: `notify`. */
  readonly action?: RuleAction;
  /** Name of the webhook that is notified. Default: none. */
  readonly webhook?: string;
}

/** Contents of a valid file. */
export interface AlertFile {
  readonly webhooks: Webhooks;
  readonly rules: readonly AlertRule[];
  readonly giveUpHours: number;
}

type Fail = (key: string, problem: string) => void;

/**
 * Parses the file.
 *
 * @param entries top-level keys of the file
 * @param indexed text that the index contains; undefined if unknown. A rule about other text is an error, because the
 * rule never matches
 * @throws TailcastError `CONFIG_INVALID` that lists problems with their keys
 */
export function parseAlertFile(
  entries: ReadonlyMap<string, unknown>,
  file: string,
  indexed: IndexedText | undefined,
): AlertFile {
  const problems: string[] = [];
  const fail: Fail = (key, problem) => void problems.push(`${key} in ${file}: ${problem}`);
  const { data, error } = FILE.safeParse(Object.fromEntries(entries));
  for (const issue of error?.issues ?? []) {
    const keys = issue.code === 'unrecognized_keys' ? issue.keys : [undefined];
    for (const key of keys)
      fail([...issue.path, key].filter((each) => each !== undefined).join('.'), issue.message);
  }
  const { webhooks = new Map(), giveUpHours = 0 } = data ?? {};
  const rules = Array.from(data?.rules ?? [], ([name, rule]) =>
    readRule(name, rule, webhooks, indexed, fail),
  ).filter((rule) => rule !== undefined);
  if (problems.length > 0) throw new TailcastError('CONFIG_INVALID', problems.join('\n  '));
  return { webhooks, rules, giveUpHours };
}

function isAddress(value: string): boolean {
  return /^https?:$/.test(URL.parse(value)?.protocol ?? '');
}

function addressProblem({ url, allowHttp }: { url: string; allowHttp: boolean }): string | undefined {
  if (url.trim() === '') return NO_URL;
  if (!isAddress(url)) return 'an https:// address is expected';
  const { protocol, hostname, username, password } = new URL(url);
  if (username !== '' || password !== '')
    return 'has a password in it; take it out, messages are signed with secretFile';
  const mayBePlain = allowHttp || ['localhost', '127.0.0.1', '[::1]'].includes(hostname);
  return protocol === 'https:' || mayBePlain
    ? undefined
    : 'is not encrypted; use https://, or say allowHttp: true where only you can listen';
}

function readRule(
  name: string,
  { query: text, accessRequests, action = 'notify', webhook, ...found }: z.infer<typeof RULE>,
  webhooks: Webhooks,
  indexed: IndexedText | undefined,
  fail: Fail,
): AlertRule | undefined {
  const key = `rules.${name}`;
  checkWebhook(key, action, webhook, webhooks, fail);
  const rule = {
    name,
    ...(action === 'notify' ? {} : { action }),
    ...(webhook === undefined ? {} : { webhook }),
  };
  const pattern = readPattern(found, key, indexed, fail);
  if (accessRequests) {
    checkAccessRule(key, { query: text, ...found, action: rule.action }, fail);
    if (webhook !== undefined && webhooks.get(webhook)?.player === undefined)
      fail(`webhooks.${webhook}.player`, `is missing; rule ${name} links to the page of access requests`);
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

function checkWebhook(
  key: string,
  action: RuleAction,
  webhook: string | undefined,
  webhooks: Webhooks,
  fail: Fail,
): void {
  if (webhook === undefined && action === 'notify')
    fail(`${key}.webhook`, 'is missing; name one of webhooks');
  else if (webhook !== undefined && !webhooks.has(webhook))
    fail(`${key}.webhook`, `there is no ${webhook}; there are ${[...webhooks.keys()].join(', ') || 'none'}`);
}

function checkAccessRule(key: string, others: Readonly<Record<string, unknown>>, fail: Fail): void {
  for (const [other, value] of Object.entries(others))
    if (value !== undefined) fail(`${key}.${other}`, 'does not apply to accessRequests; use two rules');
}

function readPattern(
  { output, command }: Pick<z.infer<typeof RULE>, 'output' | 'command'>,
  key: string,
  indexed: IndexedText | undefined,
  fail: Fail,
): RulePattern | undefined {
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
