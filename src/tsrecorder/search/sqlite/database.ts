/**
 * The files of the embedded index. `sessions.db` contains the names (user, pod, command and others) of each session,
 * and one file per month contains the words of the screens. Only index processes load this module, because some builds
 * of Node.js lack node:sqlite.
 */
import { randomBytes } from 'node:crypto';
import { chmodSync, existsSync, mkdirSync, readdirSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { Moment } from '../../../search/search-index.ts';

/** Maximum number of moments of a session in the file of its month. */
export const MOMENT_SPACE = 32_768;
/** Moment of a session without text. */
export const NOTHING: Moment = { t0: 0, t1: 0, rows: [] };
/** Number of session numbers that belong to one millisecond. */
const SESSIONS_PER_MS = 32;

/**
 * NOTE: there is no prefix index, because `prefix='3'` would enlarge the file of a month by half. Without this index,
 * FTS5 has to combine all words with a prefix in each query.
 */
const TOKENIZER = `tokenize="ascii tokenchars '_'"`;

/**
 * Size of the words that FTS5 collects before it writes a segment, in bytes. NOTE: 16 MiB would cost 20 % more CPU,
 * because 16 MiB do not fit into the cache of a core.
 */
const COLLECTED = 2 * 1024 ** 2;
/**
 * Number of segments of one size that are merged at once. With a larger number, there are fewer writes, but queries
 * read more segments until the month is merged.
 */
const MERGED = 32;
/** Number of segments of one size at which the writer merges immediately. */
const TOO_MANY = 64;

/** Checks the features of this SQLite build. @throws Error with a sentence */
export function probeSqlite(): void {
  using database = new DatabaseSync(':memory:');
  try {
    database.exec(`CREATE VIRTUAL TABLE t USING fts5(a, content='', contentless_delete=1, ${TOKENIZER})`);
  } catch (error) {
    throw new Error('the SQLite of this Node has no FTS5 with contentless_delete', { cause: error });
  }
}

/** Opens or creates `sessions.db`. @throws Error of SQLite if the file is damaged */
export function openSessions(directory: string): DatabaseSync {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const database = openFile(join(directory, 'sessions.db'), 'NORMAL');
  database.exec(`
    CREATE TABLE IF NOT EXISTS meta(key TEXT PRIMARY KEY, value TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS s(
      n INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, ver TEXT NOT NULL, usr TEXT, tags TEXT NOT NULL, cluster TEXT, ns TEXT, pod TEXT,
      container TEXT, nodes TEXT NOT NULL, kind TEXT NOT NULL, state TEXT NOT NULL, result TEXT, trust TEXT, cmd TEXT, dur REAL, exit INTEGER, hid INTEGER,
      moments INTEGER NOT NULL, partial INTEGER NOT NULL, stopped REAL, ord TEXT, low TEXT, bytes INTEGER);
    CREATE TABLE IF NOT EXISTS d(n INTEGER PRIMARY KEY, ver TEXT NOT NULL, rec TEXT NOT NULL);
    CREATE INDEX IF NOT EXISTS s_usr ON s(usr, n);
    CREATE INDEX IF NOT EXISTS s_ns ON s(ns, n);
    CREATE INDEX IF NOT EXISTS s_pod ON s(pod, n);
    CREATE INDEX IF NOT EXISTS s_longest ON s(coalesce(dur, -1), ord) WHERE ord IS NOT NULL;
    CREATE INDEX IF NOT EXISTS s_largest ON s(coalesce(bytes, -1), ord) WHERE ord IS NOT NULL;
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

/** Opens or creates the file of a month. */
export function openMonth(directory: string, month: string): DatabaseSync {
  // `sessions.db` describes the content of this file, so writes to this file must be durable.
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

/** Opens a file for reading. @returns undefined if the file or the table does not exist */
export function openReadOnly(path: string, table: string): DatabaseSync | undefined {
  if (!existsSync(path)) return undefined;
  const database = new DatabaseSync(path, { readOnly: true });
  database.exec('PRAGMA busy_timeout = 1000; PRAGMA cache_size = -16384; PRAGMA query_only = 1');
  const found = database.prepare('SELECT 1 FROM sqlite_master WHERE name = ?').get(table);
  if (found !== undefined) return database;
  database.close();
  return undefined;
}

/** Lists the existing months as `YYYY-MM`, newest first. */
export function listMonths(directory: string): readonly string[] {
  if (!existsSync(directory)) return [];
  return readdirSync(directory)
    .flatMap((name) => /^(\d{4}-\d{2})\.db$/.exec(name)?.[1] ?? [])
    .toSorted()
    .toReversed();
}

/** Returns the size of all files of the index, in bytes. */
export function indexBytes(directory: string): number {
  return readdirSync(directory).reduce(
    (sum, name) => sum + (statSync(join(directory, name), { throwIfNoEntry: false })?.size ?? 0),
    0,
  );
}

/**
 * Returns the preferred number of a session that starts at this time, in milliseconds with fractions. Numbers are in
 * the order of time.
 */
export function numberOf(startedAtMs: number): number {
  return Math.floor(Math.max(0, startedAtMs) * SESSIONS_PER_MS);
}

/**
 * Returns the millisecond of a session number. The session started in this millisecond or, if many sessions started at
 * once, up to {@link SPILL} milliseconds earlier.
 */
export function millisecondOf(n: number): number {
  return Math.floor(n / SESSIONS_PER_MS);
}

/**
 * Key in table `meta`. Its value is the maximum time between the start of a session and the millisecond of its session
 * number, in milliseconds.
 */
export const SPILL = 'spill';

/** Returns the month of the file that contains a session. */
export function monthOf(n: number): string {
  return new Date(millisecondOf(n)).toISOString().slice(0, 7);
}

/** Returns the end of a month in milliseconds since the epoch. */
export function endOfMonth(month: string): number {
  const date = new Date(`${month}-01T00:00:00Z`);
  return date.setUTCMonth(date.getUTCMonth() + 1);
}

/** Returns the first moment number of a session in the file of its month. */
export function firstMoment(n: number, month: string): number {
  return (n - numberOf(Date.parse(`${month}-01T00:00:00Z`))) * MOMENT_SPACE;
}

/** Returns the session number of a moment number. */
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
