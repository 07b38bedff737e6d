/** `tailcast report`: lists access requests and their use, from the signed access events of a recorder. */
import { z } from 'zod';
import type { CommandContext } from '../config/command-context.ts';
import { TailcastError } from '../errors.ts';
import { readTime } from '../search/query.ts';
import { recorderOrContextAddress } from './open-archive.ts';
import { plain, print, printJson } from './output.ts';
import { fetchJson } from './recorder-archive.ts';
import type { Options } from './tool.ts';

/**
 * The latest accepted time of an event: the end of the year 9999, in seconds since the epoch. An unsigned event can
 * contain any number, which may not be a valid date.
 */
const MAX_SECONDS = 253_402_300_799;
const SOURCE = z.object({ node: z.string(), nodeUser: z.string().optional() });
const STEP = z.object({
  event: z.object({
    type: z.literal('tailcast-access-request'),
    timestamp: z.int().min(0).max(MAX_SECONDS),
    source: SOURCE,
    access: z.object({
      request: z.string(),
      step: z.string(),
      requester: z.string(),
      node: z.string(),
      groups: z.array(z.string()),
      user: z.string(),
      writes: z.boolean(),
      namespaces: z.array(z.string()),
      reason: z.string(),
      call: z.string(),
      expires: z.string(),
      approvers: z.array(z.string()),
    }),
  }),
  trust: z.string().optional(),
});
const USE = z.object({
  event: z.object({
    timestamp: z.number(),
    kubernetes: z.object({ Subresource: z.string() }),
    access: z.object({ request: z.string() }),
  }),
  trust: z.string().optional(),
});
const PAGE = z.object({
  events: z.array(z.unknown()),
  next: z.string().nullish(),
  skipped: z.array(z.string()).default([]),
});
const SESSIONS: ReadonlySet<string> = new Set(['exec', 'attach', 'portforward']);

/** One access request. */
type ReportRow = ReturnType<typeof rowOf>;

/**
 * Prints the report.
 *
 * @returns the exit code: 1 if the recorder could not read all events
 * @throws TailcastError `USAGE`, `RECORDER_UNREACHABLE`
 */
export async function printReport(options: Options, context: CommandContext): Promise<number> {
  const base = await recorderOrContextAddress(options, context);
  const nowMs = Date.now();
  const sinceMs = readTime(String(options['since']), nowMs);
  if (sinceMs === undefined)
    throw new TailcastError('USAGE', '--since takes a date (2026-01-31) or an age (12h, 30d)');
  const from = new Date(sinceMs).toISOString();
  const skipped = new Set<string>();
  const events = (query: Readonly<Record<string, string>>): AsyncGenerator<unknown> =>
    readEvents(base, { ...query, from }, skipped, context.signal);
  const steps: z.infer<typeof STEP>[] = [];
  for await (const event of events({ type: 'tailcast-access-request' })) {
    const parsed = STEP.safeParse(event);
    if (parsed.success) steps.push(parsed.data);
  }
  const uses = await countUses(events({ type: 'kubernetes-api-request', text: '"access":{"request":' }));
  const rows = [...Map.groupBy(steps, ({ event }) => event.access.request)]
    .map(([id, ofRequest]) => rowOf(id, ofRequest, uses.get(id), nowMs))
    .map((row) => (skipped.size === 0 ? row : { ...row, unused: false, trust: 'unverified' }))
    .toSorted((left, right) => (left.requested < right.requested ? -1 : 1));
  const format = String(options['format']);
  if (format === 'json')
    await printJson(context.stdout, { since: from, requests: rows, skipped: [...skipped] });
  else await print(context.stdout, format === 'csv' ? toCsv(rows) : toMarkdown(rows, from));
  if (skipped.size === 0) return 0;
  const names = [...skipped].map(plain).join(', ');
  await print(context.stderr, `tailcast: the report is incomplete. The recorder could not read: ${names}\n`);
  return 1;
}

interface Use {
  calls: number;
  sessions: number;
  /** False if an event has no valid signature. */
  isVerified: boolean;
}

/** Counts the API requests and sessions that used each access request. */
async function countUses(events: AsyncIterable<unknown>): Promise<ReadonlyMap<string, Use>> {
  const uses = new Map<string, Use>();
  for await (const event of events) {
    const { data } = USE.safeParse(event);
    if (data === undefined) continue;
    const { access, kubernetes } = data.event;
    const use = uses.get(access.request) ?? { calls: 0, sessions: 0, isVerified: true };
    uses.set(access.request, use);
    if (data.trust !== 'verified') use.isVerified = false;
    use.calls += 1;
    if (SESSIONS.has(kubernetes.Subresource)) use.sessions += 1;
  }
  return uses;
}

async function* readEvents(
  base: string,
  query: Readonly<Record<string, string>>,
  skipped: Set<string>,
  signal: AbortSignal,
): AsyncGenerator<unknown> {
  let cursor: string | undefined;
  do {
    const ask = { ...query, limit: '500', ...(cursor === undefined ? {} : { cursor }) };
    const page = await fetchJson(base, 'events', ask, signal, PAGE);
    for (const name of page.skipped) skipped.add(name);
    yield* page.events;
    cursor = page.next ?? undefined;
  } while (cursor !== undefined);
}

function resultOf(times: {
  readonly failed: string;
  readonly granted: string;
  readonly denied: string;
  readonly revoked: string;
  readonly isOver: boolean;
}): string {
  if (times.failed !== '') return 'failed';
  if (times.revoked !== '') return 'revoked';
  if (times.denied !== '') return 'denied';
  if (times.isOver) return 'expired';
  return times.granted === '' ? 'pending' : 'granted';
}

/** Returns the steps without a grant that did not take effect. */
function effective(steps: readonly z.infer<typeof STEP>[]): readonly z.infer<typeof STEP>[] {
  const isFailed = steps.some(({ event }) => event.access.step === 'requestFailed');
  return isFailed ? steps.filter(({ event }) => event.access.step !== 'granted') : steps;
}

function rowOf(request: string, steps: readonly z.infer<typeof STEP>[], use: Use | undefined, nowMs: number) {
  const sorted = effective(steps).toSorted((left, right) => left.event.timestamp - right.event.timestamp);
  const timeOf = (...names: readonly string[]): string => {
    const step = sorted.find(({ event }) => names.includes(event.access.step));
    return step === undefined ? '' : new Date(step.event.timestamp * 1000).toISOString();
  };
  const access = sorted.at(-1)?.event.access;
  if (access === undefined) throw new TailcastError('INTERNAL', 'a request without a step');
  const failed = timeOf('requestFailed');
  const granted = timeOf('granted');
  const [denied, revoked] = [timeOf('denied'), timeOf('revoked')];
  const isOver = Date.parse(access.expires) <= nowMs;
  const result = resultOf({ failed, granted, denied, revoked, isOver });
  const { calls = 0, sessions = 0, isVerified: isUseVerified = true } = use ?? {};
  const isVerified = isUseVerified && sorted.every(({ trust }) => trust === 'verified');
  const named = [
    ...access.groups.map((group) => `group ${group}`),
    ...(access.user === '' ? [] : [`user ${access.user}`]),
  ];
  return {
    request,
    requester: access.requester,
    node: access.node,
    access: access.writes ? 'writes' : named.join(', '),
    namespaces: access.namespaces.join(' '),
    reason: access.reason,
    call: access.call,
    requested: timeOf('requested', 'granted', 'requestFailed'),
    result,
    approvers: access.approvers.join(' '),
    granted,
    ended: revoked !== '' ? revoked : granted !== '' && isOver ? access.expires : '',
    /** Number of recorded API requests that used this access. */
    calls,
    /** Number of sessions among these API requests. */
    sessions,
    /** True if access was granted and never used. */
    unused: granted !== '' && calls === 0,
    /**
     * `verified` if the recorder read all events, and a trusted recorder signed the events of this request and of its
     * use.
     */
    trust: isVerified ? 'verified' : 'unverified',
  };
}

const COLUMNS = [
  'request',
  'requester',
  'node',
  'access',
  'namespaces',
  'reason',
  'call',
  'requested',
  'result',
  'approvers',
  'granted',
  'ended',
  'calls',
  'sessions',
  'unused',
  'trust',
] as const satisfies readonly (keyof ReportRow)[];

/** Spreadsheets execute a cell that starts with one of these characters as a formula. */
const FORMULA = /^[=+\-@\t\r]/;

function toCsv(rows: readonly ReportRow[]): string {
  const cell = (value: string | number | boolean): string => {
    const text = plain(String(value));
    return `"${(FORMULA.test(text) ? `'${text}` : text).replaceAll('"', '""')}"`;
  };
  const lines = rows.map((row) => COLUMNS.map((name) => cell(row[name])).join(','));
  return `${[COLUMNS.join(','), ...lines].join('\r\n')}\r\n`;
}

function toMarkdown(rows: readonly ReportRow[], from: string): string {
  const shown = COLUMNS.filter((name) => name !== 'node' && name !== 'namespaces');
  const cell = (value: string | number | boolean): string =>
    plain(String(value)).replaceAll(/[\\|`*_<>[\]]/g, String.raw`\$&`);
  const unused = rows.filter((row) => row.unused).length;
  const granted = rows.filter((row) => row.granted !== '').length;
  return [
    '# Access on request',
    '',
    `Since ${from}: ${rows.length} requests, ${granted} granted, ${unused} granted and not used.`,
    '',
    `| ${shown.join(' | ')} |`,
    `|${shown.map(() => '---').join('|')}|`,
    ...rows.map((row) => `| ${shown.map((name) => cell(row[name])).join(' | ')} |`),
    '',
  ].join('\n');
}
