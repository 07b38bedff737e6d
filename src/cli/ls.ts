import { podText, type ListedRecording } from '../wire/recorder-api/recording.ts';
import { resultText } from '../wire/recorder-api/recording-status.ts';
import { TailcastError } from '../errors.ts';
import { readTime } from '../search/query.ts';
import { openArchive } from './open-archive.ts';
import { shortIds } from './archive.ts';
import {
  formatAge,
  formatBytes,
  formatDuration,
  plain,
  print,
  printJson,
  printPagedTable,
} from './output.ts';
import type { CommandContext } from '../config/command-context.ts';
import type { Options } from './tool.ts';

const FILTERS = ['user', 'cluster', 'namespace', 'pod', 'state', 'result', 'trust', 'text'] as const;
/** To sort by a column other than time, `ls` reads at most this number of recordings. */
const MAX_SORTED = 100_000;

interface Column {
  readonly text: (recording: ListedRecording) => string;
  /** Returns the value by which recordings are sorted. Default: the text of the cell. */
  readonly order?: (recording: ListedRecording) => number;
}

const who = ({ source }: ListedRecording): string => source.user ?? source.tags?.join(',') ?? source.node;

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
  ['where', { text: podText }],
  ['cluster', { text: ({ cluster = '' }) => cluster }],
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
  ['result', { text: resultText }],
  ['trust', { text: ({ trust = '' }) => trust }],
  ['tags', { text: ({ review }) => review?.tags.join(' ') ?? '' }],
  ['reviewed', { text: ({ review }) => review?.reviewedBy ?? '' }],
  ['problem', { text: ({ problem = '' }) => problem }],
  ['command', { text: ({ command, kind }) => command ?? kind }],
]);
/** Default columns on a terminal, without `--wide` or `--columns`. */
const SHORT_COLUMNS = 'id,started,who,where,length,state,result,command';
/** Default columns on a terminal with fewer than {@link WIDE_TERMINAL} columns. */
const NARROW_COLUMNS = 'id,started,who,where,state,result,command';
const WIDE_TERMINAL = 100;
/** Columns that are truncated on a narrow terminal. */
const CUT_COLUMNS: ReadonlySet<string> = new Set([
  'who',
  'where',
  'command',
  'from',
  'container',
  'state',
  'result',
  'trust',
  'problem',
]);
const DEFAULT_COLUMNS = ['id', 'started', 'who', 'where', 'length', 'size', 'state', 'result', 'command'];

/** Column that is shown by default if the list contains a recording without a trusted signature. */
const TRUST_COLUMN = 'trust';

/** Valid names for `--columns` and `--sort`. */
const COLUMN_NAMES: readonly string[] = [...COLUMNS.keys()];

/**
 * `tailcast ls`: prints the newest recordings, one line each, or one JSON object each with `--json`.
 *
 * @throws TailcastError `USAGE` or `RECORDER_UNREACHABLE`
 */
export async function printRecordings(options: Options, context: CommandContext): Promise<void> {
  const limit = typeof options['limit'] === 'number' ? options['limit'] : 50;
  const sort = sortOf(options['sort']);
  const nowMs = Date.now();
  const layout = layoutOf(options, context);
  const query = queryOf(options, sort === undefined ? limit : MAX_SORTED, nowMs);
  const archive = await openArchive(options, context);
  const found: ListedRecording[] = [];
  let count = 0;
  for await (const recording of archive.list(query)) {
    count += 1;
    if (sort === undefined && count > limit) break;
    if (count > MAX_SORTED)
      throw new TailcastError('USAGE', `--sort: more than ${MAX_SORTED} match; narrow it, e.g. with --since`);
    if (sort === undefined && options['json'] === true) await printJson(context.stdout, recording);
    else found.push(recording);
  }
  const shown = sort === undefined ? found : found.toSorted(sort).slice(0, limit);
  if (options['json'] === true) {
    for (const recording of shown) await printJson(context.stdout, recording);
    return;
  }
  if (shown.length === 0) {
    await print(context.stderr, emptyText(archive.noRuleFor?.()));
    return;
  }
  const isGiven = typeof options['columns'] === 'string';
  await printList(shown, isGiven ? layout : withTrust(withoutResult(layout, shown), shown), nowMs, context);
}

/**
 * Returns the message for an empty list.
 *
 * @param viewer name of the viewer, if no viewer rule of the recorder matches this viewer
 */
function emptyText(viewer: string | undefined): string {
  if (viewer === undefined) return 'no recording matches\n';
  return `no viewer rule matches ${plain(viewer)}: ask for a rule in --viewers of the recorder\n`;
}

interface Layout {
  readonly columns: readonly (readonly [string, Column])[];
  /**
   * True if the output is a terminal, unless `--wide` or `--columns` is set. The list then shows short ids, and ages
   * instead of times, and fits the width of the terminal.
   */
  readonly isShort: boolean;
}

/** @throws TailcastError `USAGE` for an unknown column */
function layoutOf(options: Options, { stdout }: CommandContext): Layout {
  // programs that read the output get complete cells
  const isShort = stdout.isTTY === true && options['wide'] !== true && options['columns'] === undefined;
  const short = (stdout.columns ?? 80) < WIDE_TERMINAL ? NARROW_COLUMNS : SHORT_COLUMNS;
  return { columns: columnsOf(isShort ? short : options['columns']), isShort };
}

/** Removes the column `result` on a terminal if the column is empty, to save space. */
function withoutResult(layout: Layout, shown: readonly ListedRecording[]): Layout {
  if (!layout.isShort || shown.some(({ result }) => result !== undefined)) return layout;
  return { ...layout, columns: layout.columns.filter(([name]) => name !== 'result') };
}

/** Adds the column {@link TRUST_COLUMN} if the list contains a recording without a trusted signature. */
function withTrust(layout: Layout, shown: readonly ListedRecording[]): Layout {
  if (shown.every(({ trust }) => trust === undefined || trust === 'verified')) return layout;
  const column = [TRUST_COLUMN, columnOf(TRUST_COLUMN, '--columns')] as const;
  return { ...layout, columns: layout.columns.toSpliced(1, 0, column) };
}

async function printList(
  shown: readonly ListedRecording[],
  { columns, isShort }: Layout,
  nowMs: number,
  context: CommandContext,
): Promise<void> {
  const ids = shortIds(shown.map(({ id }) => id));
  const cellOf = (recording: ListedRecording, name: string, { text }: Column): string => {
    if (isShort && name === 'id') return ids.get(recording.id) ?? recording.id;
    return isShort && name === 'started' ? formatAge(recording.startedAt, nowMs) : text(recording);
  };
  const colour = (cell: string, at: number): number | undefined => colourOf(columns[at]?.[0] ?? '', cell);
  await printPagedTable(context, {
    header: columns.map(([name]) => name.toUpperCase()),
    rows: shown.map((recording) => columns.map(([name, column]) => cellOf(recording, name, column))),
    colour: hasColours(context) ? colour : undefined,
    width: isShort ? (context.stdout.columns ?? 80) : undefined,
    cut: new Set(columns.flatMap(([name], at) => (CUT_COLUMNS.has(name) ? [at] : []))),
  });
}

function queryOf(options: Options, limit: number, nowMs: number): Readonly<Record<string, string>> {
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

/** Returns the sort order; undefined for the order of the archive, newest first. */
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

/** Returns true if the output is a terminal, unless the user disabled colours (no-color.org). */
function hasColours({ stdout, environment }: CommandContext): boolean {
  return stdout.isTTY === true && (environment.get('NO_COLOR') ?? '') === '';
}

const RED = 31;
const GREEN = 32;
const YELLOW = 33;

/** Returns the colour of a cell that shows a failure or a running session, as on the page; otherwise undefined. */
function colourOf(column: string, cell: string): number | undefined {
  if (column === 'result') return cell === '' || cell === '0' ? undefined : YELLOW;
  if (column === TRUST_COLUMN) return cell === '' || cell === 'verified' ? undefined : RED;
  if (column !== 'state' || cell === 'completed') return undefined;
  return cell === 'running' ? GREEN : RED;
}
