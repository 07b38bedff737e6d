/**
 * `tailcast alerts test`: searches the index of a recorder with alert rules, and sends test messages to the webhooks of
 * these rules.
 */
import { randomUUID } from 'node:crypto';
import { loadAlerts } from '../compose/alert-settings.ts';
import type { CommandContext } from '../config/command-context.ts';
import { errorText, TailcastError } from '../errors.ts';
import { printQuery } from '../search/query.ts';
import { testMessage } from '../tsrecorder/search/alerts/alert-message.ts';
import type { AlertRule } from '../tsrecorder/search/alerts/alert-file.ts';
import { isDelivered, sendToWebhook } from '../tsrecorder/search/alerts/webhook-request.ts';
import type { AlertWebhook } from '../tsrecorder/search/alerts/webhook-sender.ts';
import { recorderAddress } from './open-archive.ts';
import { formatDuration, plain, print, printJson } from './output.ts';
import { askSearch } from './search.ts';
import type { Options } from './tool.ts';

const SHOWN = 20;

/**
 * @returns the exit code: 0 if every test passed, 1 if a webhook rejected its message
 * @throws TailcastError `CONFIG_INVALID` for the file, `USAGE`, `RECORDER_UNREACHABLE`
 */
export async function testAlerts(
  file: string,
  names: readonly string[],
  options: Options,
  context: CommandContext,
): Promise<number> {
  const { rules, webhooks } = await loadAlerts(file, { viewers: undefined, searchText: undefined });
  const unknown = names.find((name) => !rules.some((rule) => rule.name === name));
  if (unknown !== undefined)
    throw new TailcastError(
      'USAGE',
      `there is no rule ${unknown} in ${file}; there are ${rules.map(({ name }) => name).join(', ')}`,
    );
  const chosen = rules.filter(({ name }) => names.length === 0 || names.includes(name));
  const printResult = (value: object, text: string): Promise<void> =>
    options['json'] === true ? printJson(context.stdout, value) : print(context.stdout, `${text}\n`);
  if (options['search'] !== false) {
    const base = await recorderAddress(options, context);
    for (const rule of chosen) await search(rule, base, printResult, context);
  }
  if (options['deliver'] !== true) return 0;
  let code = 0;
  for (const [name, ofWebhook] of Map.groupBy(chosen, ({ webhook = '' }) => webhook)) {
    const webhook = webhooks.get(name);
    if (webhook !== undefined && !(await deliver(name, webhook, ofWebhook, printResult, context))) code = 1;
  }
  return code;
}

type Print = (value: object, text: string) => Promise<void>;

async function search(
  { name: rule, query: parsed, pattern }: AlertRule,
  base: string,
  printResult: Print,
  { signal, stderr }: CommandContext,
): Promise<void> {
  if (parsed === undefined) return;
  const query = printQuery(parsed);
  if (pattern !== undefined) {
    const text = `rule ${rule}: matches ${pattern.in} of new sessions only: ${plain(pattern.source)}`;
    return printResult({ rule, query, pattern }, text);
  }
  const { sessions, next, index } = await askSearch(base, { q: query, limit: String(SHOWN) }, signal);
  if (index.state !== 'ready')
    await print(stderr, `the index is ${index.state}: not everything can be found yet\n`);
  const found = sessions.map(({ recording: { id, startedAt }, hits: [hit] }) => ({
    recording: id,
    startedAt,
    ...(hit === undefined ? {} : { at: hit.at, text: hit.text }),
  }));
  const lines = found.map(
    ({ recording, startedAt, at, text }) =>
      `  ${plain(recording)}  ` +
      `${plain(startedAt)}${at === undefined ? '' : `  ${formatDuration(at)}  ${plain(text ?? '')}`}`,
  );
  const count = `${sessions.length}${next === undefined ? '' : ' or more'}`;
  await printResult(
    { rule, query, sessions: found, more: next !== undefined },
    [`rule ${rule}: matches ${count} sessions: ${plain(query)}`, ...lines].join('\n'),
  );
}

async function deliver(
  name: string,
  { target, ...view }: AlertWebhook,
  rules: readonly AlertRule[],
  printResult: Print,
  { signal }: CommandContext,
): Promise<boolean> {
  const nowMs = Date.now();
  const message = testMessage(
    `test_${randomUUID()}`,
    rules.map((rule) => rule.name),
    nowMs,
    view,
  );
  try {
    const answer = await sendToWebhook(target, message, nowMs, signal);
    const taken = isDelivered(answer);
    await printResult(
      { webhook: name, status: answer.status, taken },
      `webhook ${name}: answered ${answer.status}, ${taken ? 'alerts are accepted' : 'alerts would be sent again'}`,
    );
    return taken;
  } catch (error) {
    signal.throwIfAborted();
    await printResult(
      { webhook: name, error: errorText(error), taken: false },
      `webhook ${name}: ${errorText(error)}`,
    );
    return false;
  }
}
