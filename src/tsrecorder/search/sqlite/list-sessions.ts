/** Lists sessions that match filters, sorted exactly by time. Session numbers are only nearly sorted by time. */
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

export interface NumberedSession extends ListedSession {
  readonly n: number;
}

/** Lists sessions, newest first. The duration of the search depends only on sessions that the viewer may see. */
export function* listSessions(
  sessions: DatabaseSync,
  ask: ListAsk,
  compiled: CompiledQuery,
): Generator<ListedSession> {
  // The sessions that follow have lower numbers than `n`, so they started in the millisecond of `n` or earlier.
  const isReached = (first: NumberedSession, { n }: NumberedSession): boolean =>
    beginning(first.order) > millisecondOf(n);
  yield* inOrder(rowsOf(sessions, ask, compiled), compareNewest, isReached);
}

/** Sorts rows that are nearly sorted. @param isReached true if neither `row` nor a later row sorts before `first` */
export function* inOrder(
  rows: Iterable<NumberedSession>,
  compare: (left: NumberedSession, right: NumberedSession) => number,
  isReached: (first: NumberedSession, row: NumberedSession) => boolean,
): Generator<ListedSession> {
  const waiting: NumberedSession[] = [];
  for (const row of rows) {
    waiting.sort(compare);
    for (let [first] = waiting; first !== undefined && isReached(first, row); [first] = waiting) {
      waiting.shift();
      yield withoutNumber(first);
    }
    waiting.push(row);
  }
  for (const row of waiting.toSorted(compare)) yield withoutNumber(row);
}

function* rowsOf(sessions: DatabaseSync, ask: ListAsk, compiled: CompiledQuery): Generator<NumberedSession> {
  const { text = '', from = '', before = '' } = ask;
  const { first, end } = numbersOf(ask, spillOf(sessions));
  const { source, id, values } = sourceOf(sessions, ask, compiled);
  const conditions = [
    `${id} < ? AND ${id} >= ? AND s.ord >= ?`,
    compiled.where,
    ...(before === '' ? [] : ['s.ord < ?']),
    ...(text === '' ? [] : ['instr(s.low, ?) > 0']),
  ];
  const rows = sessions
    .prepare(
      `SELECT s.n, s.id, s.ord, d.ver, d.rec FROM ${source} CROSS JOIN d ON d.n = s.n
       WHERE ${[...values.map(({ sql }) => sql), ...conditions].join(' AND ')} ORDER BY ${id} DESC`,
    )
    .iterate(
      ...values.map(({ value }) => value),
      end,
      first,
      from,
      ...compiled.values,
      ...(before === '' ? [] : [before]),
      ...(text === '' ? [] : [text]),
    );
  for (const { n, id: name, ord, ver, rec } of rows)
    yield {
      n: Number(n),
      id: String(name),
      order: String(ord),
      version: String(ver),
      recording: String(rec),
    };
}

/** Returns the value of {@link SPILL}, in milliseconds. */
export function spillOf(sessions: DatabaseSync): number {
  return Number(sessions.prepare('SELECT value FROM meta WHERE key = ?').get(SPILL)?.['value'] ?? 0);
}

/** Returns the range of numbers of sessions in a time range: `first` inclusive, `end` exclusive. */
export function numbersOf(
  { from = '', before = '' }: Pick<ListAsk, 'from' | 'before'>,
  spillMs: number,
): { readonly first: number; readonly end: number } {
  return {
    first: from === '' ? 0 : numberOf(beginning(from)),
    end: before === '' ? Number.MAX_SAFE_INTEGER : numberOf(beginning(before) + 1 + spillMs),
  };
}

interface Source {
  readonly source: string;
  /** SQL for the session numbers. */
  readonly id: string;
  readonly values: readonly { readonly sql: string; readonly value: string }[];
}

/**
 * Returns the sessions to check: those that match the filters for user, pod and so on, or those that contain the text.
 */
export function sourceOf(
  sessions: DatabaseSync,
  { text = '', may }: ListAsk,
  { match }: CompiledQuery,
): Source {
  // NOTE: only viewers who may see all sessions may use a text lookup, because its duration also depends on sessions
  // that a restricted viewer must not see.
  const trigrams = may === 'everything' ? trigramsOf(text) : undefined;
  if (match === undefined && trigrams === undefined) return { source: 's', id: 's.n', values: [] };
  const named = { sql: 'sf MATCH ?', value: match ?? '' };
  const byNames = { source: 'sf CROSS JOIN s ON s.n = sf.rowid', id: 'sf.rowid', values: [named] };
  if (trigrams === undefined) return byNames;
  const byText = {
    source: 'st CROSS JOIN s ON s.n = st.rowid',
    id: 'st.rowid',
    values: [{ sql: 'st MATCH ?', value: trigrams }],
  };
  if (match === undefined) return byText;
  const tried = sessions
    .prepare('SELECT count(*) AS tried FROM (SELECT 1 FROM st WHERE st MATCH ? LIMIT ?)')
    .get(trigrams, MAX_TRIED + 1)?.['tried'];
  if (Number(tried) > MAX_TRIED) return byNames;
  const isNamed = { ...named, sql: 'EXISTS (SELECT 1 FROM sf WHERE sf MATCH ? AND sf.rowid = s.n)' };
  return { ...byText, values: [...byText.values, isNamed] };
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
export function beginning(order: string): number {
  return Date.parse(`${order.slice(0, 23)}Z`);
}

/** Compares sessions for sorting, newest first. */
export function compareNewest(left: ListedSession, right: ListedSession): number {
  if (left.order === right.order) return 0;
  return left.order < right.order ? 1 : -1;
}

function withoutNumber({ n: _n, ...session }: NumberedSession): ListedSession {
  return session;
}
