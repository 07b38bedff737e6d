import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { TailcastError } from '../errors.ts';
import { readTime } from '../search/query.ts';
import { openArchive } from './open-archive.ts';
import { formatBytes, formatDuration, formatTable, plain, print } from './output.ts';
import type { CommandContext } from '../config/command-context.ts';

const FILTERS = ['user', 'namespace', 'pod', 'state', 'text'] as const;
/** Recordings that are read at most when they are to be sorted by something else than time. */
const MAX_SORTED = 100_000;

interface Column {
  readonly text: (recording: ListedRecording) => string;
  /** By what it is sorted. Default: its text. */
  readonly order?: (recording: ListedRecording) => number;
}

const who = ({ source }: ListedRecording): string => source.user ?? source.tags?.join(',') ?? source.node;
const where = ({ kubernetes }: ListedRecording): string =>
  kubernetes === undefined ? '' : `${kubernetes.namespace}/${kubernetes.pod}`;

const COLUMNS: ReadonlyMap<string, Column> = new Map<string, Column>([
  ['id', { text: ({ id }) => id }],
  [
    'started',
    {
      text: ({ startedAt }) => startedAt.replace(/\.\d+Z$/, 'Z'),
      order: ({ startedAt }) => Date.parse(startedAt),
    },
  ],
  ['who', { text: who }],
  ['from', { text: ({ source }) => source.node }],
  ['where', { text: where }],
  ['container', { text: ({ kubernetes }) => kubernetes?.container ?? '' }],
  ['kind', { text: ({ kind }) => kind }],
  [
    'length',
    {
      text: ({ durationSeconds }) => (durationSeconds === undefined ? '' : formatDuration(durationSeconds)),
      order: ({ durationSeconds = 0 }) => durationSeconds,
    },
  ],
  ['size', { text: ({ bytes }) => formatBytes(bytes), order: ({ bytes }) => bytes }],
  ['state', { text: ({ state }) => state }],
  [
    'exit',
    {
      text: ({ exitCode }) => (exitCode === undefined ? '' : String(exitCode)),
      order: ({ exitCode = -1 }) => exitCode,
    },
  ],
  ['trust', { text: ({ trust = '' }) => trust }],
  ['problem', { text: ({ problem = '' }) => problem }],
  ['command', { text: ({ command, kind }) => command ?? kind }],
]);
const DEFAULT_COLUMNS = ['id', 'started', 'who', 'where', 'length', 'size', 'state', 'exit', 'command'];
/** Shown as well if a recording is listed that no trusted recorder signed. */
const TRUST_COLUMN = 'trust';

/** What can be named with `--columns` and `--sort`. */
const COLUMN_NAMES: readonly string[] = [...COLUMNS.keys()];

/**
 * `tailcast ls`: the newest recordings, one line each, or one JSON object each with `--json`.
 *
 * @throws TailcastError `USAGE` or `RECORDER_UNREACHABLE`.
 */
export async function printRecordings(
  options: Readonly<Record<string, unknown>>,
  context: CommandContext,
): Promise<void> {
  const limit = typeof options['limit'] === 'number' ? options['limit'] : 50;
  const sort = sortOf(options['sort']);
  const given = columnsOf(options['columns']);
  const query = queryOf(options, sort === undefined ? limit : MAX_SORTED, Date.now());
  const archive = await openArchive(options, context);
  const found: ListedRecording[] = [];
  let count = 0;
  for await (const recording of archive.list(query)) {
    count += 1;
    if (sort === undefined && count > limit) break;
    if (count > MAX_SORTED)
      throw new TailcastError('USAGE', `--sort: more than ${MAX_SORTED} match; narrow it, e.g. with --since`);
    if (sort === undefined && options['json'] === true) await printJson(recording, context);
    else found.push(recording);
  }
  const shown = sort === undefined ? found : found.toSorted(sort).slice(0, limit);
  if (options['json'] === true) {
    for (const recording of shown) await printJson(recording, context);
    return;
  }
  if (shown.length === 0) {
    await print(context.stderr, 'no recording matches\n');
    return;
  }
  await printTable(withTrust(given, shown, options['columns']), shown, context);
}

type NamedColumn = readonly [name: string, column: Column];

/** If a recording is listed that no trusted recorder signed, the default columns say so. */
function withTrust(
  columns: readonly NamedColumn[],
  shown: readonly ListedRecording[],
  given: unknown,
): readonly NamedColumn[] {
  const hasUntrusted = shown.some(({ trust }) => trust !== undefined && trust !== 'verified');
  if (!hasUntrusted || typeof given === 'string') return columns;
  return columns.toSpliced(1, 0, [TRUST_COLUMN, columnOf(TRUST_COLUMN, '--columns')]);
}

async function printTable(
  columns: readonly NamedColumn[],
  shown: readonly ListedRecording[],
  context: CommandContext,
): Promise<void> {
  const header = columns.map(([name]) => name.toUpperCase());
  const rows = shown.map((recording) => columns.map(([, { text }]) => plain(text(recording))));
  const paint = (cell: string, at: number): string => {
    const name = columns[at]?.[0] ?? '';
    return name === 'state' || name === 'exit' || name === TRUST_COLUMN ? painted(name, cell) : cell;
  };
  await print(context.stdout, formatTable(header, rows, hasColours(context) ? paint : undefined));
}

function printJson(recording: ListedRecording, { stdout }: CommandContext): Promise<void> {
  return print(stdout, `${JSON.stringify(recording)}\n`);
}

function queryOf(
  options: Readonly<Record<string, unknown>>,
  limit: number,
  nowMs: number,
): Readonly<Record<string, string>> {
  const query: Record<string, string> = { limit: String(Math.min(limit, 500)) };
  for (const name of FILTERS) {
    const value = options[name];
    if (typeof value === 'string') query[name] = value;
  }
  for (const [name, parameter] of [
    ['since', 'from'],
    ['until', 'to'],
  ] as const) {
    const value = options[name];
    if (typeof value !== 'string') continue;
    const atMs = readTime(value, nowMs);
    if (atMs === undefined)
      throw new TailcastError(
        'USAGE',
        `--${name} takes a date (2026-01-31), a time (2026-01-31T08:00:00Z) or an age (90m, 12h, 7d)`,
      );
    query[parameter] = new Date(atMs).toISOString();
  }
  return query;
}

function columnsOf(given: unknown): readonly (readonly [string, Column])[] {
  const names = typeof given === 'string' ? given.split(',').map((name) => name.trim()) : DEFAULT_COLUMNS;
  return names.map((name) => [name, columnOf(name, '--columns')]);
}

/** Undefined: the newest first, as they come. */
function sortOf(given: unknown): ((left: ListedRecording, right: ListedRecording) => number) | undefined {
  if (typeof given !== 'string' || given === '-started') return undefined;
  const isDown = given.startsWith('-');
  const { text, order } = columnOf(isDown ? given.slice(1) : given, '--sort');
  const compare = (left: ListedRecording, right: ListedRecording): number =>
    order === undefined ? text(left).localeCompare(text(right)) : order(left) - order(right);
  return isDown ? (left, right) => compare(right, left) : compare;
}

function columnOf(name: string, option: string): Column {
  const column = COLUMNS.get(name);
  if (column === undefined)
    throw new TailcastError('USAGE', `${option}: there is no ${name}; known: ${COLUMN_NAMES.join(', ')}`);
  return column;
}

/** Colours are for people at a terminal who have not said that they want none (no-color.org). */
function hasColours({ stdout, environment }: CommandContext): boolean {
  return stdout.isTTY === true && (environment.get('NO_COLOR') ?? '') === '';
}

/** What went wrong stands out; what runs does too. */
function painted(column: string, cell: string): string {
  const word = cell.trim();
  if (word === '' || word === '0' || word === 'closed' || word === 'verified') return cell;
  const colour = column === 'exit' ? 33 : word === 'open' ? 32 : 31;
  return `\x1b[${colour}m${cell}\x1b[0m`;
}
