/** `tailcast search` and `tailcast index`: query and manage the search index of a recorder. */
import { setTimeout as sleep } from 'node:timers/promises';
import { z } from 'zod';
import { decodeRecording, podText, type ListedRecording } from '../wire/recorder-api/recording.ts';
import { TailcastError } from '../errors.ts';
import { stoppedText } from '../screen/clock-text.ts';
import { jsonOrUndefined } from '../wire/json-value.ts';
import { readTextLines } from '../wire/lines.ts';
import { parseQuery, printQuery, QueryError, type Query } from '../search/query.ts';
import { begunWith, partsOf, withoutPart } from '../search/nearest-query.ts';
import { COVERED_TEXT, NOT_INDEXED, REDACTED, secretNotice } from '../search/secret-notice.ts';
import { recordingLink } from '../search/recording-link.ts';
import type { CommandContext } from '../config/command-context.ts';
import { recorderAddress, recorderOrContextAddress } from './open-archive.ts';
import { formatBytes, formatDuration, plain, print, printJson } from './output.ts';
import { decodeDocument, fetchJson, readBody, requestApi, unreachable } from './recorder-archive.ts';
import type { Options } from './tool.ts';

const INDEX = z.object({
  state: z.enum(['ready', 'building', 'unavailable']),
  sessions: z.number(),
  partial: z.number(),
  bytes: z.number(),
  backlog: z.number(),
  lagSeconds: z.number(),
  problem: z.string().optional(),
  rebuilding: z.object({ done: z.number(), of: z.number() }).optional(),
});
const VERIFIED = z.union([
  z.object({ recording: z.string(), fault: z.string() }),
  z.object({
    done: z.literal(true),
    checked: z.number(),
    faults: z.number(),
    pending: z.number(),
  }),
  z.object({ checked: z.number(), of: z.number() }),
]);
const FOUND = z.object({
  sessions: z.array(
    z.object({
      recording: z.custom<ListedRecording>((value) => decodeRecording(value) !== undefined),
      hits: z.array(
        z.object({
          at: z.number(),
          text: z.string(),
          marks: z.array(z.tuple([z.number(), z.number()])),
          isCommand: z.boolean(),
        }),
      ),
      more: z.boolean(),
      partial: z.boolean(),
      stoppedAt: z.number().optional(),
    }),
  ),
  next: z.string().optional(),
  // for restricted viewers, the response contains only the state of the index
  index: INDEX.partial().required({ state: true }),
});
type Found = z.infer<typeof FOUND>;
type FoundSession = Found['sessions'][number];

const PAGE_SIZE = 50;

/**
 * Prints matching sessions with their matches, newest first. With `--json`, one JSON object per line.
 *
 * @returns the exit code as in grep: 0 for a match, 1 for no match; the caller returns 2 for an exception
 * @throws TailcastError `USAGE` or `RECORDER_UNREACHABLE`
 */
export async function searchRecordings(
  words: readonly string[],
  options: Options,
  context: CommandContext,
): Promise<number> {
  const query = words.join(' ');
  const parsed = checkQuery(query);
  const limit = typeof options['limit'] === 'number' ? options['limit'] : 20;
  const base = await recorderOrContextAddress(options, context);
  let count = 0;
  let cursor: string | undefined;
  do {
    const ask = {
      q: query,
      limit: String(Math.min(PAGE_SIZE, limit - count)),
      ...(cursor === undefined ? {} : { cursor }),
    };
    const { sessions, next, index } = await askSearch(base, ask, context.signal);
    if (cursor === undefined && index.state !== 'ready')
      await print(
        context.stderr,
        `the index is ${index.state}: ${index.backlog ?? 'some'} recordings are not in it yet\n`,
      );
    for (const session of sessions) {
      count += 1;
      if (options['json'] === true) await printJson(context.stdout, session);
      else await print(context.stdout, describe(session, base));
    }
    cursor = count < limit ? next : undefined;
  } while (cursor !== undefined);
  if (count > 0) return 0;
  await print(context.stderr, `${(await explainNoMatch(parsed, base, context)).join('\n')}\n`);
  return 1;
}

/**
 * Returns lines that explain an empty result: the number of searched recordings, text that is not indexed, and a
 * similar query.
 */
async function explainNoMatch(
  query: Query,
  base: string,
  { programName = 'tailcast', signal }: CommandContext,
): Promise<readonly string[]> {
  const command = (text: string): string => `${programName} search '${text.replaceAll("'", `'\\''`)}'`;
  const periods = query.clauses.filter((terms) => terms.some(({ kind }) => kind === 'time'));
  const period = periods.length === 0 ? 'of all times' : `with ${printQuery({ clauses: periods })}`;
  const covered = `The search covered the indexed recordings of ${base} ${period}: ${COVERED_TEXT}.`;
  const secret = secretNotice(query);
  const lines = [`No recording matches. ${covered}`, secret ?? NOT_INDEXED];
  if (secret !== undefined) return lines;
  if (query.clauses.flat().some(({ kind }) => kind === 'text') && (await hasRedacted(base, signal)))
    lines.push(
      `Some recordings contain values that look like secrets. The index has ${REDACTED} instead of such values. List ` +
        `recordings with redacted values: ${programName} search secret. Read one of them: ` +
        `${programName} export <id> --format txt --output -`,
    );
  const begun = begunWith(query, Date.now());
  const last = partsOf(query).length - 1;
  if (begun !== undefined) lines.push(`Only whole words match. Search for a prefix: ${command(begun)}`);
  else if (last > 0) lines.push(`Search with fewer terms: ${command(withoutPart(query, last))}`);
  return lines;
}

/** True if the index contains a session with a redacted value. */
async function hasRedacted(base: string, signal: AbortSignal): Promise<boolean> {
  const { sessions } = await askSearch(base, { q: 'secret', limit: String(PAGE_SIZE) }, signal);
  return sessions.some(
    ({ recording, hits }) =>
      recording.command?.includes(REDACTED) === true || hits.some(({ text }) => text.includes(REDACTED)),
  );
}

/**
 * Requests one page of search results.
 *
 * @param ask parameters of the request
 * @throws TailcastError `RECORDER_UNREACHABLE`, `USAGE`
 */
export async function askSearch(
  base: string,
  ask: Readonly<Record<string, string>>,
  signal: AbortSignal,
): Promise<Found> {
  return fetchJson(base, 'search', ask, signal, FOUND);
}

/** Prints the progress of a recorder's index. @returns the exit code: 0 if the index is complete, 1 otherwise */
export async function showIndexStatus(options: Options, context: CommandContext): Promise<number> {
  const base = await recorderAddress(options, context);
  const index = await fetchJson(base, 'index', {}, context.signal, INDEX);
  if (options['json'] === true) await printJson(context.stdout, index);
  else {
    const lines = [
      `state     ${index.state}${index.problem === undefined ? '' : `: ${plain(index.problem)}`}`,
      `sessions  ${index.sessions}, of which ${index.partial} are not indexed whole`,
      `backlog   ${index.backlog} recordings`,
      `lag       ${index.lagSeconds.toFixed(1)} s behind what is durable`,
      `size      ${formatBytes(index.bytes)}`,
      ...(index.rebuilding === undefined
        ? []
        : [`rebuild   ${index.rebuilding.done} of ${index.rebuilding.of} sessions are in the new one`]),
    ];
    await print(context.stdout, `${lines.join('\n')}\n`);
  }
  return index.state === 'ready' ? 0 : 1;
}

/**
 * Starts a rebuild of a recorder's index and prints its progress. @returns the exit code: 0 if the rebuild has finished
 * or, with `--no-wait`, has started
 */
export async function rebuildIndex(options: Options, context: CommandContext): Promise<number> {
  const base = await recorderAddress(options, context);
  const headers = { 'x-tailcast-action': 'rebuild' };
  await requestApi(base, 'index/rebuild', {}, context.signal, { method: 'POST', headers });
  if (options['wait'] === false) return 0;
  let previous = '';
  for (;;) {
    const { rebuilding } = await fetchJson(base, 'index', {}, context.signal, INDEX);
    const line =
      rebuilding === undefined ? 'the new index answers' : `${rebuilding.done} of ${rebuilding.of} sessions`;
    if (line !== previous) await print(context.stderr, `${line}\n`);
    if (rebuilding === undefined) return 0;
    previous = line;
    await sleep(POLL_MS, undefined, { signal: context.signal });
  }
}

/** Makes a recorder compare its index with its store. @returns the exit code: 0 if both agree, 1 otherwise */
export async function checkIndex(options: Options, context: CommandContext): Promise<number> {
  const base = await recorderAddress(options, context);
  const response = await requestApi(base, 'index/verify', {}, context.signal);
  for await (const previous of readTextLines(readBody(response, base, context.signal), MAX_LINE)) {
    if (previous.trim() === '') continue;
    const line = decodeDocument(jsonOrUndefined(previous), base, VERIFIED);
    if (options['json'] === true) await printJson(context.stdout, line);
    else if ('fault' in line)
      await print(
        context.stdout,
        `${plain(line.recording)}  ${FAULTS.get(line.fault) ?? plain(line.fault)}\n`,
      );
    else if (!('done' in line)) await print(context.stderr, `${line.checked} of ${line.of}\n`);
    if (!('done' in line)) continue;
    const { checked, faults, pending } = line;
    if (options['json'] !== true)
      await print(
        context.stdout,
        `${checked} recordings: ${faults} faults; ${pending} are still to be indexed\n`,
      );
    return faults === 0 ? 0 : 1;
  }
  throw unreachable(base, 'the response ended before everything was checked');
}

const FAULTS: ReadonlyMap<string, string> = new Map([
  ['missing', 'is not in the index'],
  ['tooMany', 'is in the index and not in the store'],
  ['version', 'the index has an older version'],
]);
const POLL_MS = 1000;
const MAX_LINE = 65_536;

/** Parses the query locally, so that a syntax error is reported without a request. */
function checkQuery(query: string): Query {
  try {
    return parseQuery(query, 0);
  } catch (error) {
    if (!(error instanceof QueryError)) throw error;
    throw new TailcastError('USAGE', error.message, { cause: error });
  }
}

function describe({ recording, hits, more, partial, stoppedAt }: FoundSession, base: string): string {
  const { id, source, startedAt, state, command } = recording;
  const who = source.user ?? source.tags?.join(',') ?? source.node;
  const lines = [
    [id, startedAt, who, podText(recording), state, command ?? '']
      .map(plain)
      .filter((part) => part !== '')
      .join('  '),
  ];
  for (const { at, text, isCommand } of hits)
    lines.push(`  ${formatDuration(at).padStart(7)}  ${isCommand ? '$ ' : ''}${plain(text)}`);
  if (more) lines.push('           …');
  if (partial) {
    const reason = stoppedAt === undefined ? 'not all of it is indexed' : stoppedText(stoppedAt);
    lines.push(`           (${reason})`);
  }
  const [first] = hits;
  lines.push(`  ${recordingLink(base, id, first?.at)}`);
  return `${lines.join('\n')}\n`;
}
