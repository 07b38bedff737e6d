/**
 * The files of the embedded index: `sessions.db` with what a session is called, and one file for each month with the words
 * on its screens. Only the processes of the index load this: node:sqlite is not part of every build of Node.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { Moment } from '../../../search/search-index.ts';

/** Numbers of moments that a session may have in its month's file. */
export const MOMENT_SPACE = 32_768;
/** What stands for the text of a session that has none. */
export const NOTHING: Moment = { t0: 0, t1: 0, rows: [] };
/** Sessions that may begin in one millisecond. */
const SESSIONS_PER_MS = 32;

/**
 * NOTE: beginnings have no index of their own (`prefix='3'`): they are put together from their words, once for each question. Measured, one
 * for three characters alone makes the file of a month half as large again.
 */
const TOKENIZER = `tokenize="ascii tokenchars '_'"`;

/**
 * Bytes of words that FTS5 collects before it writes them as a piece of the index. NOTE: measured: with 16 MiB, which do not fit into the
 * cache of a core, it takes a fifth more CPU to collect, sort and put together.
 */
const COLLECTED = 2 * 1024 ** 2;
/** Pieces of a size that are put together. More are written less often, and read more until the month is tidied. */
const MERGED = 32;
/** So many of a size keep who writes waiting. */
const TOO_MANY = 64;

/** Checks that this build of SQLite can do what is needed. @throws Error with a sentence. */
export function probeSqlite(): void {
  const database = new DatabaseSync(':memory:');
  try {
    database.exec(`CREATE VIRTUAL TABLE t USING fts5(a, content='', contentless_delete=1, ${TOKENIZER})`);
  } catch (error) {
    throw new Error('the SQLite of this Node has no FTS5 with contentless_delete', { cause: error });
  } finally {
    database.close();
  }
}

/** Opens or makes `sessions.db`. @throws what SQLite throws when the file is damaged. */
export function openSessions(directory: string): DatabaseSync {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const database = openFile(join(directory, 'sessions.db'), 'NORMAL');
  database.exec(`
    CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS s(
      n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, ver TEXT NOT NULL, usr TEXT, tags TEXT NOT NULL, ns TEXT, pod TEXT,
      container TEXT, nodes TEXT NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, result TEXT, trust TEXT, cmd TEXT, dur REAL, exit INTEGER, hid INTEGER,
      moments INTEGER NOT NULL, partial INTEGER NOT NULL, stopped REAL, ord TEXT, low TEXT, bytes INTEGER);
    CREATE TABLE IF NOT EXISTS d(n INTEGER PRIMARY KEY, ver TEXT NOT NULL, rec TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS s_usr ON s(usr, n);
    CREATE INDEX IF NOT EXISTS s_ns ON s(ns, n);
    CREATE INDEX IF NOT EXISTS s_pod ON s(pod, n);
    CREATE INDEX IF NOT EXISTS s_dur ON s(dur, n) WHERE ord IS NOT NULL;
    CREATE INDEX IF NOT EXISTS s_bytes ON s(bytes, n) WHERE ord IS NOT NULL;
    CREATE INDEX IF NOT EXISTS s_partial ON s(n) WHERE partial = 1;
    CREATE VIRTUAL TABLE IF NOT EXISTS sf USING fts5(d, f, content='', contentless_delete=1, ${TOKENIZER});
    CREATE VIRTUAL TABLE IF NOT EXISTS st USING fts5(
      low, content='', contentless_delete=1, detail=none, tokenize='trigram case_sensitive 1');
  `);
  for (const table of ['sf', 'st'] as const) setMerging(database, table);
  database
    .prepare('INSERT OR IGNORE INTO meta(key, value) VALUES (?, ?)')
    .run('key', randomBytes(32).toString('hex'));
  return database;
}

/** Opens or makes the file of a month. */
export function openMonth(directory: string, month: string): DatabaseSync {
  // what is in here is what sessions.db says is in here: it must not be lost after that
  const database = openFile(join(directory, `${month}.db`), 'FULL');
  database.exec(`
    CREATE TABLE IF NOT EXISTS blk(id INTEGER PRIMARY KEY, z BLOB NOT NULL);
    CREATE VIRTUAL TABLE IF NOT EXISTS m USING fts5(text, d, f, content='', contentless_delete=1, ${TOKENIZER});
  `);
  setMerging(database, 'm');
  return database;
}

function setMerging(database: DatabaseSync, table: 'm' | 'sf' | 'st'): void {
  const known = database.prepare(`SELECT v FROM ${table}_config WHERE k = 'automerge'`).get()?.['v'];
  if (known === MERGED) return;
  database.exec(`
    INSERT INTO ${table}(${table}, rank) VALUES ('hashsize', ${COLLECTED});
    INSERT INTO ${table}(${table}, rank) VALUES ('automerge', ${MERGED});
    INSERT INTO ${table}(${table}, rank) VALUES ('crisismerge', ${TOO_MANY})`);
}

/** @returns undefined when there is none, or none with that table yet. */
export function openReadOnly(path: string, table: string): DatabaseSync | undefined {
  if (!existsSync(path)) return undefined;
  const database = new DatabaseSync(path, { readOnly: true });
  database.exec('PRAGMA busy_timeout = 1000; PRAGMA cache_size = -16384; PRAGMA query_only = 1');
  const found = database.prepare('SELECT 1 FROM sqlite_master WHERE name = ?').get(table);
  if (found !== undefined) return database;
  database.close();
  return undefined;
}

/** `YYYY-MM` of those that there are, newest first. */
export function listMonths(directory: string): readonly string[] {
  if (!existsSync(directory)) return [];
  return readdirSync(directory)
    .flatMap((name) => /^(\d{4}-\d{2})\.db$/.exec(name)?.[1] ?? [])
    .toSorted()
    .toReversed();
}

/** Bytes of all files of the index. */
export function indexBytes(directory: string): number {
  return readdirSync(directory).reduce(
    (sum, name) => sum + (statSync(join(directory, name), { throwIfNoEntry: false })?.size ?? 0),
    0,
  );
}

/** The number of a session that begins at a moment, in milliseconds with their parts, if it is free: numbers are in the order of time. */
export function numberOf(startedAtMs: number): number {
  return Math.floor(Math.max(0, startedAtMs) * SESSIONS_PER_MS);
}

/** The millisecond of a number: a session begins in it, or up to {@link SPILL} earlier when many began at once. */
export function millisecondOf(n: number): number {
  return Math.floor(n / SESSIONS_PER_MS);
}

/** In `meta`: milliseconds that a session was numbered late at most. */
export const SPILL = 'spill';

/** The month in whose file a session is. */
export function monthOf(n: number): string {
  return new Date(millisecondOf(n)).toISOString().slice(0, 7);
}

/** Milliseconds since the epoch. */
export function endOfMonth(month: string): number {
  const date = new Date(`${month}-01T00:00:00Z`);
  return date.setUTCMonth(date.getUTCMonth() + 1);
}

/** The first number of the moments of a session, in its month's file. */
export function firstMoment(n: number, month: string): number {
  return (n - numberOf(Date.parse(`${month}-01T00:00:00Z`))) * MOMENT_SPACE;
}

/** The session of a moment. */
export function sessionOfMoment(moment: number, month: string): number {
  return Math.floor(moment / MOMENT_SPACE) + numberOf(Date.parse(`${month}-01T00:00:00Z`));
}

function openFile(path: string, synchronous: 'NORMAL' | 'FULL'): DatabaseSync {
  const database = new DatabaseSync(path);
  chmodSync(path, 0o600);
  database.exec(`
    PRAGMA page_size = 8192; PRAGMA journal_mode = WAL; PRAGMA synchronous = ${synchronous};
    PRAGMA busy_timeout = 5000; PRAGMA cache_size = -16384;
  `);
  return database;
}
