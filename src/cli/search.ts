/** `tailcast search` and `tailcast index status`: what a recorder's index knows. */
import { z } from 'zod';
import { decodeRecording, type ListedRecording } from '../wire/recorder-api/recording.ts';
import { TailcastError } from '../errors.ts';
import { parseQuery, QueryError } from '../search/query.ts';
import type { CommandContext } from '../config/command-context.ts';
import { recorderAddress } from './open-archive.ts';
import { formatBytes, formatDuration, plain, print } from './output.ts';
import { fetchJson } from './recorder-archive.ts';

const INDEX = z.object({
  state: z.enum(['ready', 'building', 'unavailable']),
  sessions: z.number(),
  partial: z.number(),
  bytes: z.number(),
  backlog: z.number(),
  lagSeconds: z.number(),
  problem: z.string().optional(),
});
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
    }),
  ),
  next: z.string().optional(),
  index: INDEX,
});
type FoundSession = z.infer<typeof FOUND>['sessions'][number];

const PAGE_SIZE = 50;
/** How long before a hit a link begins. */
const LEAD_SECONDS = 2;

/**
 * Prints sessions that match, newest first, with where they do; one JSON object a line with `--json`.
 *
 * @returns the exit code, as grep's: 0 something was found, 1 nothing; what is thrown is 2.
 * @throws TailcastError `USAGE` or `RECORDER_UNREACHABLE`.
 */
export async function searchRecordings(
  words: readonly string[],
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<number> {
  const query = words.join(' ');
  checkQuery(query);
  const limit = typeof options['limit'] === 'number' ? options['limit'] : 20;
  const base = await recorderAddress(options, context);
  let count = 0;
  let cursor: string | undefined;
  do {
    const ask = {
      q: query,
      limit: String(Math.min(PAGE_SIZE, limit - count)),
      ...(cursor === undefined ? {} : { cursor }),
    };
    const { sessions, next, index } = FOUND.parse(await fetchJson(base, 'search', ask, context.signal));
    if (cursor === undefined && index.state !== 'ready')
      await print(
        context.stderr,
        `the index is ${index.state}: ${index.backlog} recordings are not in it yet\n`,
      );
    for (const session of sessions) {
      count += 1;
      await print(
        context.stdout,
        options['json'] === true ? `${JSON.stringify(session)}\n` : describe(session, base),
      );
    }
    cursor = count < limit ? next : undefined;
  } while (cursor !== undefined);
  return count === 0 ? 1 : 0;
}

/** Prints how far the index of a recorder is. @returns the exit code: 0 it is complete, 1 it is not. */
export async function showIndexStatus(
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<number> {
  const base = await recorderAddress(options, context);
  const { index } = FOUND.parse(await fetchJson(base, 'search', { q: '', limit: '1' }, context.signal));
  if (options['json'] === true) await print(context.stdout, `${JSON.stringify(index)}\n`);
  else {
    const lines = [
      `state     ${index.state}${index.problem === undefined ? '' : `: ${plain(index.problem)}`}`,
      `sessions  ${index.sessions}, of which ${index.partial} are not indexed whole`,
      `backlog   ${index.backlog} recordings`,
      `lag       ${index.lagSeconds.toFixed(1)} s behind what is durable`,
      `size      ${formatBytes(index.bytes)}`,
    ];
    await print(context.stdout, `${lines.join('\n')}\n`);
  }
  return index.state === 'ready' ? 0 : 1;
}

/** A mistake is told at once, without a recorder. */
function checkQuery(query: string): void {
  try {
    parseQuery(query, 0);
  } catch (error) {
    if (!(error instanceof QueryError)) throw error;
    throw new TailcastError('USAGE', error.message, { cause: error });
  }
}

function describe({ recording, hits, more, partial }: FoundSession, base: string): string {
  const { id, source, kubernetes, startedAt, state, command } = recording;
  const who = source.user ?? source.tags?.join(',') ?? source.node;
  const where = kubernetes === undefined ? '' : `${kubernetes.namespace}/${kubernetes.pod}`;
  const lines = [
    [id, startedAt, who, where, state, command ?? '']
      .map(plain)
      .filter((part) => part !== '')
      .join('  '),
  ];
  for (const { at, text, isCommand } of hits)
    lines.push(`  ${formatDuration(at).padStart(7)}  ${isCommand ? '$ ' : ''}${plain(text)}`);
  if (more) lines.push('           …');
  if (partial) lines.push('           (not all of it is indexed)');
  const [first] = hits;
  const start = first === undefined ? '' : `?t=${Math.max(0, Math.floor(first.at) - LEAD_SECONDS)}`;
  lines.push(
    `  ${new URL(`#/r/${encodeURIComponent(id)}${start}`, base.endsWith('/') ? base : `${base}/`).href}`,
  );
  return `${lines.join('\n')}\n`;
}
