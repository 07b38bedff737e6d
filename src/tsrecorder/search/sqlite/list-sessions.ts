/** Lists sessions that match filters, in each sort order of a list. Session numbers are only nearly sorted by time. */
import type { DatabaseSync } from 'node:sqlite';
import type { ListAsk, ListedSession } from '../../../search/search-index.ts';
import type { CompiledQuery } from './compile.ts';
import { millisecondOf, numberOf, SPILL } from './database.ts';

/**
 * Maximum number of sessions that a text lookup may return if another lookup is possible. If more sessions contain the
 * text, the search instead checks the text of all sessions that match the other filters.
 */
const MAX_TRIED = 2000;
/** Maximum number of trigrams in a lookup. */
const MAX_TRIGRAMS = 16;
/** Sort column of each sort order that is not by time. */
const COLUMNS = { longest: 'dur', largest: 'bytes' } as const;

interface Condition {
  readonly sql: string;
  readonly values: readonly (string | number)[];
}

interface Numbered {
  readonly n: number;
  readonly session: ListedSession;
}

/**
 * Lists sessions in the order of `ask.sort`. The duration of the search depends only on sessions that the viewer may
 * see.
 */
export function listSessions(
  sessions: DatabaseSync,
  ask: ListAsk,
  compiled: CompiledQuery,
): Iterable<ListedSession> {
  const { sort = 'newest' } = ask;
  return sort === 'longest' || sort === 'largest'
    ? listByValue(sessions, ask, COLUMNS[sort], compiled)
    : listByTime(sessions, ask, sort === 'newest', compiled);
}

function* listByTime(
  sessions: DatabaseSync,
  ask: ListAsk,
  isNewestFirst: boolean,
  compiled: CompiledQuery,
): Generator<ListedSession> {
  const spillMs = Number(sessions.prepare('SELECT value FROM meta WHERE key = ?').get(SPILL)?.['value'] ?? 0);
  const { order: after = '' } = isNewestFirst ? {} : (ask.after ?? {});
  const { source, id, narrowed } = sourceOf(sessions, ask, compiled);
  const found = both(narrowed, numbersOf(ask, id, after, spillMs), wantedBy(ask, compiled), {
    sql: 's.ord > ?',
    values: [after],
  });
  const rows = sessions
    .prepare(
      `SELECT s.n, s.id, s.ord, d.ver, d.rec FROM ${source} CROSS JOIN d ON d.n = s.n WHERE ${found.sql}
       ORDER BY ${id} ${isNewestFirst ? 'DESC' : 'ASC'}`,
    )
    .iterate(...found.values);
  // In descending order, all sessions after a row started in the millisecond of the row's session number or earlier. In
  // ascending order, none of these sessions started more than `spillMs` before this millisecond.
  yield* inOrder(
    numbered(rows),
    (left, right) => (left.order === right.order ? 0 : left.order < right.order === isNewestFirst ? 1 : -1),
    (first, n) =>
      isNewestFirst
        ? beginning(first.order) > millisecondOf(n)
        : beginning(first.order) < millisecondOf(n) - spillMs,
  );
}

/** Lists sessions, the largest value of a column first. */
function* listByValue(
  sessions: DatabaseSync,
  ask: ListAsk,
  column: 'dur' | 'bytes',
  compiled: CompiledQuery,
): Generator<ListedSession> {
  const { order, value = -1 } = ask.after ?? { order: '', value: Infinity };
  const { source, narrowed } = sourceOf(sessions, ask, compiled);
  // Sessions without a value are last. Without filters, the SQL index has the order of the list. With filters, the +
  // prevents SQLite from using this index: with the index, SQLite would read all sessions.
  const key = `${source === 's' ? '' : '+'}coalesce(s.${column}, -1)`;
  // SQLite uses the SQL index only for the first comparison.
  const behind = { sql: `${key} <= ? AND (${key}, s.ord) < (?, ?)`, values: [value, value, order] };
  const wanted = both(narrowed, wantedBy(ask, compiled), behind);
  const found = sessions
    .prepare(`SELECT s.n FROM ${source} WHERE ${wanted.sql} ORDER BY ${key} DESC, s.ord DESC LIMIT ?`)
    .all(...wanted.values, ask.limit + 1);
  const one = sessions.prepare(
    `SELECT s.n, s.id, s.ord, d.ver, d.rec, s.${column} AS value FROM s CROSS JOIN d ON d.n = s.n WHERE s.n = ?`,
  );
  for (const { n } of found) for (const { session } of numbered(one.iterate(Number(n)))) yield session;
}

const ALL: Condition = { sql: 'TRUE', values: [] };

function both(...conditions: readonly Condition[]): Condition {
  return {
    sql: conditions.map(({ sql }) => sql).join(' AND '),
    values: conditions.flatMap(({ values }) => values),
  };
}

/** Returns the conditions of a list query that the lookup of sessions does not check. */
function wantedBy(
  { text = '', from = '', before = '' }: ListAsk,
  { where, values }: CompiledQuery,
): Condition {
  return both(
    { sql: 's.ord >= ?', values: [from] },
    { sql: where, values },
    before === '' ? ALL : { sql: 's.ord < ?', values: [before] },
    text === '' ? ALL : { sql: 'instr(s.low, ?) > 0', values: [text] },
  );
}

/**
 * Returns the condition for the numbers of sessions in the time range of a list. @param after sessions with a lower
 * sort key are outside the range
 */
function numbersOf(
  { from = '', before = '' }: ListAsk,
  id: string,
  after: string,
  spillMs: number,
): Condition {
  const first = from > after ? from : after;
  return {
    sql: `${id} >= ? AND ${id} < ?`,
    values: [
      first === '' ? 0 : numberOf(beginning(first)),
      before === '' ? Number.MAX_SAFE_INTEGER : numberOf(beginning(before) + 1 + spillMs),
    ],
  };
}

/**
 * Sorts rows that are nearly sorted. @param isReached returns true if no row from number `n` on sorts before `first`
 */
function* inOrder(
  rows: Iterable<Numbered>,
  compare: (left: ListedSession, right: ListedSession) => number,
  isReached: (first: ListedSession, n: number) => boolean,
): Generator<ListedSession> {
  const waiting: ListedSession[] = [];
  for (const { n, session } of rows) {
    waiting.sort(compare);
    for (let [first] = waiting; first !== undefined && isReached(first, n); [first] = waiting) {
      waiting.shift();
      yield first;
    }
    waiting.push(session);
  }
  yield* waiting.toSorted(compare);
}

function* numbered(rows: Iterable<Readonly<Record<string, unknown>>>): Generator<Numbered> {
  for (const { n, id, ord, ver, rec, value } of rows)
    yield {
      n: Number(n),
      session: {
        id: String(id),
        order: String(ord),
        version: String(ver),
        recording: String(rec),
        ...(typeof value === 'number' ? { value } : {}),
      },
    };
}

interface Source {
  readonly source: string;
  /** SQL for the session numbers. */
  readonly id: string;
  readonly narrowed: Condition;
}

/**
 * Returns the sessions to check: the sessions that match the filters for user, pod and so on, or the sessions that
 * contain the text.
 */
function sourceOf(sessions: DatabaseSync, { text = '', may }: ListAsk, { match }: CompiledQuery): Source {
  // NOTE: only viewers who may see all sessions may use a text lookup, because its duration also depends on sessions
  // that a restricted viewer must not see.
  const trigrams = may === 'everything' ? trigramsOf(text) : undefined;
  if (match === undefined && trigrams === undefined) return { source: 's', id: 's.n', narrowed: ALL };
  const named = { sql: 'sf MATCH ?', values: [match ?? ''] };
  const byNames = { source: 'sf CROSS JOIN s ON s.n = sf.rowid', id: 'sf.rowid', narrowed: named };
  if (trigrams === undefined) return byNames;
  const byText = {
    source: 'st CROSS JOIN s ON s.n = st.rowid',
    id: 'st.rowid',
    narrowed: { sql: 'st MATCH ?', values: [trigrams] },
  };
  if (match === undefined) return byText;
  const tried = sessions
    .prepare('SELECT count(*) AS tried FROM (SELECT 1 FROM st WHERE st MATCH ? LIMIT ?)')
    .get(trigrams, MAX_TRIED + 1)?.['tried'];
  if (Number(tried) > MAX_TRIED) return byNames;
  const isNamed = { ...named, sql: 'EXISTS (SELECT 1 FROM sf WHERE sf MATCH ? AND sf.rowid = s.n)' };
  return { ...byText, narrowed: both(byText.narrowed, isNamed) };
}

/** Returns an FTS5 expression with the trigrams of a text; undefined if the text is too short or unsuitable. */
function trigramsOf(text: string): string | undefined {
  const characters = Array.from(text.toWellFormed());
  if (characters.length < 3 || text.includes('\0')) return undefined;
  const trigrams = characters.slice(2, 2 + MAX_TRIGRAMS).map((last, at) => {
    const three = `${characters[at] ?? ''}${characters[at + 1] ?? ''}${last}`;
    return `"${three.replaceAll('"', '""')}"`;
  });
  return trigrams.join(' AND ');
}

/** Returns the start millisecond of a sort key. */
function beginning(order: string): number {
  return Date.parse(`${order.slice(0, 23)}Z`);
}
