/** Lists sessions in other orders: oldest, longest or largest first. */
import type { DatabaseSync } from 'node:sqlite';
import type { ListAsk, ListedSession, ListSort } from '../../../search/search-index.ts';
import type { CompiledQuery } from './compile.ts';
import { millisecondOf, numberOf } from './database.ts';
import {
  beginning,
  inOrder,
  compareNewest,
  numbersOf,
  sourceOf,
  spillOf,
  type NumberedSession,
} from './list-sessions.ts';

const MAX_SORTED = 20_000;
const COLUMNS = { longest: 'dur', largest: 'bytes' } as const;

type Values = readonly (string | number)[];
interface Condition {
  readonly sql: string;
  readonly values: Values;
}

/** Returns true for an order by duration or size. */
export function isByValue(sort: ListSort | undefined): sort is keyof typeof COLUMNS {
  return sort === 'longest' || sort === 'largest';
}

/** Lists sessions, oldest first. */
export function* listOldest(
  sessions: DatabaseSync,
  ask: ListAsk,
  compiled: CompiledQuery,
): Generator<ListedSession> {
  const spill = spillOf(sessions);
  const { source, id, values } = sourceOf(sessions, ask, compiled);
  const { first, end } = numbersOf(ask, spill);
  const after = ask.after?.order ?? '';
  const begin = after === '' ? first : Math.max(first, numberOf(beginning(after)));
  const wanted = conditionsOf(ask, compiled);
  const rows = sessions
    .prepare(
      `SELECT s.n, s.id, s.ord, d.ver, d.rec FROM ${source} CROSS JOIN d ON d.n = s.n
       WHERE ${[...values.map(({ sql }) => sql), `${id} >= ? AND ${id} < ? AND s.ord > ?`, wanted.sql].join(' AND ')}
       ORDER BY ${id}`,
    )
    .iterate(...values.map(({ value }) => value), begin, end, after, ...wanted.values);
  // The sessions that follow have greater numbers than `n`, so they started at most `spill` milliseconds before the
  // millisecond of `n`.
  const isReached = (one: NumberedSession, { n }: NumberedSession): boolean =>
    beginning(one.order) < millisecondOf(n) - spill;
  yield* inOrder(listed(rows), (left, right) => compareNewest(right, left), isReached);
}

/**
 * Lists sessions, longest or largest first. For restricted viewers, the duration of the search depends only on sessions
 * that they may see.
 *
 * @param maxSorted maximum number of sessions to sort in memory; if there are more, all sessions are read in the order
 *   of the SQL index
 */
export function* listByValue(
  sessions: DatabaseSync,
  ask: ListAsk & { readonly sort: keyof typeof COLUMNS },
  compiled: CompiledQuery,
  maxSorted = MAX_SORTED,
): Generator<ListedSession> {
  const { source, id, values } = sourceOf(sessions, ask, compiled);
  const column = `s.${COLUMNS[ask.sort]}`;
  const { first, end } = numbersOf(ask, spillOf(sessions));
  const narrowed: Condition = {
    sql: [...values.map(({ sql }) => sql), `${id} >= ? AND ${id} < ?`].join(' AND '),
    values: [...values.map(({ value }) => value), first, end],
  };
  if (ask.may === 'everything') {
    const few = sessions
      .prepare(`SELECT count(*) AS few FROM (SELECT 1 FROM ${source} WHERE ${narrowed.sql} LIMIT ?)`)
      .get(...narrowed.values, maxSorted + 1)?.['few'];
    if (Number(few) > maxSorted) {
      const isReached = (one: NumberedSession, row: NumberedSession): boolean =>
        one.value !== row.value || beginning(one.order) > millisecondOf(row.n);
      yield* inOrder(throughIndex(sessions, ask, compiled, column), compareNewest, isReached);
      return;
    }
  }
  const { after } = ask;
  const behind = after === undefined ? ALL : afterPosition(column, after.value, after.order);
  const wanted = conditionsOf(ask, compiled);
  // NOTE: without the +, SQLite would scan all sessions in the order of the SQL index on `column`.
  const found = sessions
    .prepare(
      `SELECT s.n FROM ${source} WHERE ${narrowed.sql} AND ${wanted.sql} AND ${behind.sql}
       ORDER BY +${column} DESC, s.ord DESC LIMIT ?`,
    )
    .all(...narrowed.values, ...wanted.values, ...behind.values, ask.limit + 1);
  const whole = sessions.prepare(
    `SELECT s.n, s.id, s.ord, d.ver, d.rec, ${column} AS value FROM s CROSS JOIN d ON d.n = s.n WHERE s.n = ?`,
  );
  for (const { n } of found) for (const { n: _n, ...row } of listed(whole.iterate(Number(n)))) yield row;
}

/** Reads all sessions that follow the list position, in the order of the SQL index on `column`. */
function* throughIndex(
  sessions: DatabaseSync,
  ask: ListAsk & { readonly sort: keyof typeof COLUMNS },
  compiled: CompiledQuery,
  column: string,
): Generator<NumberedSession> {
  const { after } = ask;
  const spill = spillOf(sessions);
  const wanted = conditionsOf(ask, compiled);
  const named: Condition =
    compiled.match === undefined
      ? ALL
      : {
          sql: 'EXISTS (SELECT 1 FROM sf WHERE sf MATCH ? AND sf.rowid = s.n)',
          values: [compiled.match],
        };
  const unknown: Condition = { sql: `${column} IS NULL`, values: [] };
  const ranges: readonly Condition[] =
    after === undefined
      ? [{ sql: `${column} > ?`, values: [Number.NEGATIVE_INFINITY] }, unknown]
      : after.value === undefined
        ? [tied(unknown, after.order, spill)]
        : [
            tied({ sql: `${column} = ?`, values: [after.value] }, after.order, spill),
            { sql: `${column} < ?`, values: [after.value] },
            unknown,
          ];
  for (const range of ranges)
    yield* listed(
      sessions
        .prepare(
          `SELECT s.n, s.id, s.ord, d.ver, d.rec, ${column} AS value
           FROM s INDEXED BY s_${COLUMNS[ask.sort]} CROSS JOIN d ON d.n = s.n
           WHERE s.ord IS NOT NULL AND ${range.sql} AND ${wanted.sql} AND ${named.sql}
           ORDER BY ${column} DESC, s.n DESC`,
        )
        .iterate(...range.values, ...wanted.values, ...named.values),
    );
}

const ALL: Condition = { sql: 'TRUE', values: [] };

/** Returns the condition for older sessions with the same value. */
function tied({ sql, values }: Condition, order: string, spillMs: number): Condition {
  return {
    sql: `${sql} AND s.n < ? AND s.ord < ?`,
    values: [...values, numberOf(beginning(order) + 1 + spillMs), order],
  };
}

/** Returns the condition for sessions that follow a position in a list by duration or size. */
function afterPosition(column: string, value: number | undefined, order: string): Condition {
  if (value === undefined) return { sql: `(${column} IS NULL AND s.ord < ?)`, values: [order] };
  return {
    sql: `(${column} < ? OR ${column} IS NULL OR (${column} = ? AND s.ord < ?))`,
    values: [value, value, order],
  };
}

/** Returns the conditions of a list query that the lookup of sessions does not check. */
function conditionsOf({ text = '', from = '', before = '' }: ListAsk, compiled: CompiledQuery): Condition {
  return {
    sql: [
      's.ord >= ?',
      compiled.where,
      ...(before === '' ? [] : ['s.ord < ?']),
      ...(text === '' ? [] : ['instr(s.low, ?) > 0']),
    ].join(' AND '),
    values: [from, ...compiled.values, ...(before === '' ? [] : [before]), ...(text === '' ? [] : [text])],
  };
}

function* listed(rows: Iterable<Readonly<Record<string, unknown>>>): Generator<NumberedSession> {
  for (const { n, id, ord, ver, rec, value } of rows)
    yield {
      n: Number(n),
      id: String(id),
      order: String(ord),
      version: String(ver),
      recording: String(rec),
      ...(typeof value === 'number' ? { value } : {}),
    };
}
