/**
 * Writes the index. The process may be killed between any two steps. For this reason, a session has an empty version
 * while its moments are written. After a kill, sessions with an empty version are indexed again.
 */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import type {
  IndexedSession,
  IndexStatus,
  Moment,
  SessionDoc,
  SessionNames,
} from '../../../search/search-index.ts';
import type { CompleteSession, WritingEngine } from '../engine.ts';
import { createFacetWords, nameWords } from './facets.ts';
import {
  endOfMonth,
  indexBytes,
  listMonths,
  millisecondOf,
  MOMENT_SPACE,
  NOTHING,
  monthOf,
  numberOf,
  openMonth,
  openSessions,
  SPILL,
} from './database.ts';
import { packMoments, type Packed } from './pack-moments.ts';
import { markProperClose, takeProperClose } from './proper-close.ts';
import { GrowingBytes } from '../../../wire/growing-bytes.ts';
import { exitCodeOf } from '../../../wire/recorder-api/recording-status.ts';
import { Statements } from './statements.ts';

const MAX_OPEN_MONTHS = 4;
/** Number of commits after which the segments of a month are merged, because each query reads all segments. */
const UNTIDY = 16;
/** Number of FTS5 pages of 4 KB that one merge step writes. */
const TIDIED_PAGES = 1000;
/** Called before each step. Tests use this callback to simulate a kill. */
export type OnStep = (step: string) => void;

interface Month {
  readonly name: string;
  /** Number of the first session of the month. */
  readonly first: number;
  readonly database: DatabaseSync;
  readonly statements: Statements;
  /** Number of commits since the last merge. */
  commits: number;
}

/** A pending session. */
interface Added extends Packed {
  readonly doc: SessionDoc;
  readonly moments: number;
  readonly partial: boolean;
}

/** A session whose moments are being written. */
interface StartedSession {
  readonly n: number;
  /** True if the session is new. */
  readonly isNew: boolean;
  /** Words in the names (user, pod and others) of the session, and one word for the exact value of each name. */
  readonly words: string;
  readonly facets: string;
}

/** Writes an index with SQLite. */
export class IndexWriter implements WritingEngine {
  readonly #directory: string;
  readonly #sessions: DatabaseSync;
  readonly #months = new Map<string, Month>();
  readonly #added: Added[] = [];
  /**
   * Bytes of the pending sessions, in one reusable block of memory. With separate strings and buffers instead, garbage
   * collection would take 10 % of the CPU time of an index build.
   */
  readonly #waiting = new GrowingBytes(32 * 1024 ** 2);
  /** Months whose segments may need a merge; undefined before the first check. */
  #untidy: Set<string> | undefined;
  #tidying: string | undefined;
  readonly #statements: Statements;
  readonly #facetWords: (names: SessionNames) => string;
  readonly #onStep: OnStep;
  /** Number of sessions. The count is kept in memory, because counting a million rows takes longer than a search. */
  #count: number;

  /** Opens the files, and creates missing files. @throws Error of SQLite if a file is damaged */
  constructor(directory: string, onStep: OnStep = () => undefined) {
    this.#directory = directory;
    this.#onStep = onStep;
    // NOTE: compare the files before SQLite opens them, because opening may change them.
    const isUnchanged = takeProperClose(directory, this.#looked());
    this.#sessions = openSessions(directory);
    this.#statements = new Statements(this.#sessions);
    if (!isUnchanged) this.#check();
    this.#count = Number(this.#statements.get('SELECT count(*) AS count FROM s')?.['count'] ?? 0);
    this.#facetWords = createFacetWords(
      textOf(this.#sessions.prepare(`SELECT value FROM meta WHERE key = 'key'`).get()?.['value']),
    );
  }

  /** Writes a session, and replaces its older version. */
  put(doc: SessionDoc, moments: readonly Moment[], partial: boolean): 'put' | 'same' {
    return this.putAll([{ doc, moments, partial }]) === 0 ? 'same' : 'put';
  }

  /** Writes several sessions together. @returns number of written sessions */
  putAll(sessions: readonly CompleteSession[]): number {
    for (const session of sessions) this.add(session);
    return this.flush();
  }

  /**
   * Adds a session, which the next flush writes. Pending sessions are encoded to save memory and garbage collection.
   */
  add({ doc, moments, partial }: CompleteSession): void {
    this.#added.push({ doc, moments: moments.length, partial, ...packMoments(this.#waiting, moments, 0) });
  }

  /** Writes the added sessions. @returns their number */
  flush(): number {
    try {
      return this.#writeAdded();
    } finally {
      this.#waiting.cut(0);
    }
  }

  #writeAdded(): number {
    const fresh = this.#added
      .splice(0)
      .filter(({ doc }) => doc.version === '' || this.version(doc.names.id) !== doc.version);
    if (fresh.length === 0) return 0;
    const started: (Added & { readonly started: StartedSession })[] = [];
    transaction(this.#sessions, () => {
      for (const session of fresh) started.push({ ...session, started: this.#begin(session.doc.names) });
    });
    // Write the sessions in the order of their numbers, because FTS5 collects rows in memory only while each row id is
    // greater than the previous row id.
    started.sort((left, right) => left.started.n - right.started.n);
    this.#onStep('begun');
    for (const [month, ofMonth] of Map.groupBy(started, (session) => monthOf(session.started.n))) {
      this.#write(month, () => {
        for (const session of ofMonth) {
          this.#clearMoments(session.started.n);
          this.#writeMoments(session.started, 0, session);
        }
      });
      this.#onStep('moments');
    }
    transaction(this.#sessions, () => {
      for (const { doc, moments, partial, started: session } of started)
        this.#finish(session, doc, moments, partial);
    });
    this.#onStep('finished');
    return fresh.length;
  }

  /**
   * Appends moments to a running session. The version of the session is empty until the complete session is written. If
   * `fresh` is true, deletes the earlier text of the session.
   */
  append(names: SessionNames, moments: readonly Moment[], fresh: boolean, partial: boolean): void {
    const known = this.#find(names.id);
    const isNew = fresh || known === undefined;
    const started = isNew ? this.#begin(names) : this.#startAs(known.n, names, false);
    const { n } = started;
    this.#onStep('begun');
    const before = isNew ? 0 : known.moments;
    // Write at least one moment per session. Otherwise a search for words would not find the names of the session.
    const added = isNew && moments.length === 0 ? [NOTHING] : moments;
    const { length } = this.#waiting;
    const packed = packMoments(this.#waiting, added, before);
    this.#write(monthOf(n), () => {
      if (isNew) this.#clearMoments(n);
      this.#writeMoments(started, before, packed);
    });
    this.#waiting.cut(length);
    this.#onStep('appended');
    transaction(this.#sessions, () =>
      this.#finish(started, { names, version: '', text: 'all' }, before + added.length, partial),
    );
    this.#onStep('finished');
  }

  remove(id: string): void {
    const known = this.#find(id);
    if (known === undefined) return;
    this.#statements.run(`UPDATE s SET ver = '' WHERE n = ?`, known.n);
    this.#onStep('marked');
    this.#write(monthOf(known.n), () => this.#clearMoments(known.n));
    this.#onStep('cleared');
    transaction(this.#sessions, () => {
      for (const sql of [
        'DELETE FROM s WHERE n = ?',
        'DELETE FROM sf WHERE rowid = ?',
        'DELETE FROM d WHERE n = ?',
        'DELETE FROM st WHERE rowid = ?',
      ])
        this.#statements.run(sql, known.n);
    });
    this.#count -= 1;
    this.#onStep('removed');
  }

  /** Erases removed words from the files. This operation is slow. It is called after a retention run. */
  compact(): void {
    for (const name of listMonths(this.#directory)) {
      const [from, to] = [numberOf(Date.parse(`${name}-01T00:00:00Z`)), numberOf(endOfMonth(name))];
      const left = this.#sessions.prepare('SELECT 1 FROM s WHERE n >= ? AND n < ? LIMIT 1').get(from, to);
      if (left === undefined) {
        this.#months.get(name)?.database.close();
        this.#months.delete(name);
        for (const end of ['', '-wal', '-shm'])
          rmSync(join(this.#directory, `${name}.db${end}`), { force: true });
        continue;
      }
      const month = this.#month(name);
      month.database.exec(`INSERT INTO m(m) VALUES ('optimize'); VACUUM; PRAGMA wal_checkpoint(TRUNCATE)`);
      setCommits(month, 0);
      this.#onStep('compacted');
    }
    this.#sessions.exec(`
      INSERT INTO sf(sf) VALUES ('optimize'); INSERT INTO st(st) VALUES ('optimize');
      VACUUM; PRAGMA wal_checkpoint(TRUNCATE)`);
  }

  /**
   * Merges the segments of a month into one segment, one step per call. Skips the newest month, because the writer
   * still appends to it.
   *
   * @returns true if there is more to merge
   */
  tidy(): boolean {
    const [newest, ...closed] = listMonths(this.#directory);
    this.#untidy ??= new Set(closed);
    const name =
      this.#tidying ?? [...this.#untidy].find((month) => month !== newest && closed.includes(month));
    if (name === undefined) return false;
    const month = this.#month(name);
    const isFirst = this.#tidying === undefined;
    if (isFirst && month.commits < UNTIDY) {
      this.#untidy.delete(name);
      return true;
    }
    this.#tidying = name;
    const changes = (): number => Number(month.statements.get('SELECT total_changes() AS made')?.['made']);
    const before = changes();
    // The FTS5 commands for merging all segments, and for the next merge step.
    month.statements.run(
      `INSERT INTO m(m, rank) VALUES ('merge', ?)`,
      isFirst ? -TIDIED_PAGES : TIDIED_PAGES,
    );
    this.#onStep('tidied');
    if (isFirst || changes() - before >= 2) return true;
    setCommits(month, 0);
    this.#tidying = undefined;
    this.#untidy.delete(name);
    return true;
  }

  /** Returns the indexed version of a session, or undefined. */
  version(id: string): string | undefined {
    return this.#find(id)?.version;
  }

  /** Returns indexed sessions in the order of their ids. */
  ids(after: string, limit: number): readonly IndexedSession[] {
    return this.#sessions
      .prepare('SELECT id, ver FROM s WHERE id > ? ORDER BY id LIMIT ?')
      .all(after, limit)
      .map(({ id, ver }) => ({ id: textOf(id), version: textOf(ver) }));
  }

  /**
   * Checks only that the index is open. No other process can replace the files, because this process is their only
   * writer.
   */
  check(): void {
    if (!this.#sessions.isOpen) throw new Error('the index is not open');
  }

  status(): IndexStatus {
    const partial = this.#statements.get('SELECT count(*) AS count FROM s WHERE partial = 1');
    return {
      sessions: this.#count,
      partial: Number(partial?.['count'] ?? 0),
      bytes: indexBytes(this.#directory),
    };
  }

  close(): void {
    for (const { database } of this.#months.values()) database.close();
    this.#months.clear();
    this.#sessions.close();
    markProperClose(this.#directory, this.#looked());
  }

  /** Returns the names of the files that are checked for damage. */
  #looked(): readonly string[] {
    return ['sessions', ...listMonths(this.#directory).slice(0, 1)].map((name) => `${name}.db`);
  }

  /** Checks the files for damage. @throws Error if they are damaged */
  #check(): void {
    const [newest] = listMonths(this.#directory);
    const databases = [this.#sessions, ...(newest === undefined ? [] : [this.#month(newest).database])];
    for (const database of databases) {
      const found = textOf(database.prepare('PRAGMA quick_check(1)').get()?.['quick_check']);
      if (found !== 'ok') throw new Error(`the index is damaged: ${found}`);
    }
  }

  #find(id: string): { readonly n: number; readonly version: string; readonly moments: number } | undefined {
    const row = this.#statements.get('SELECT n, ver, moments FROM s WHERE id = ?', id);
    if (row === undefined) return undefined;
    return { n: Number(row['n']), version: textOf(row['ver']), moments: Number(row['moments']) };
  }

  /** Inserts a session without a version and without moments. */
  #begin(names: SessionNames): StartedSession {
    const known = this.#find(names.id)?.n;
    if (known !== undefined) {
      this.#statements.run(`UPDATE s SET ver = '', moments = 0 WHERE n = ?`, known);
      return this.#startAs(known, names, false);
    }
    const n = this.#freeNumber(numberOf(names.startedAtMs));
    // Insert user, namespace and pod now, so that their SQL indexes are written only once. The kind is still empty, so
    // searches do not find the session yet.
    this.#statements.run(
      `INSERT INTO s(n, id, ver, usr, tags, ns, pod, nodes, kind, state, moments, partial)
       VALUES (?, ?, '', ?, '[]', ?, ?, '[]', '', '', 0, 0)`,
      n,
      names.id,
      ...searchedColumns(names),
    );
    this.#count += 1;
    return this.#startAs(n, names, true);
  }

  #startAs(n: number, names: SessionNames, isNew: boolean): StartedSession {
    return { n, isNew, words: nameWords(names), facets: this.#facetWords(names) };
  }

  #freeNumber(first: number): number {
    let n = first;
    while (this.#statements.get('SELECT 1 FROM s WHERE n = ?', n) !== undefined) n += 1;
    const late = millisecondOf(n) - millisecondOf(first);
    if (late > 0)
      this.#statements.run(
        `INSERT INTO meta(key, value) VALUES (?, ?)
         ON CONFLICT(key) DO UPDATE SET value = max(CAST(value AS INTEGER), excluded.value)`,
        SPILL,
        String(late),
      );
    return n;
  }

  #clearMoments(n: number): void {
    const { first: begins, statements } = this.#month(monthOf(n));
    const first = (n - begins) * MOMENT_SPACE;
    const last = first + MOMENT_SPACE - 1;
    // Look for rows first. Most sessions have no rows to delete, and a lookup is cheaper than a delete.
    if (statements.get('SELECT 1 FROM blk WHERE id >= ? AND id <= ? LIMIT 1', first, last) === undefined)
      return;
    statements.run('DELETE FROM m WHERE rowid >= ? AND rowid <= ?', first, last);
    statements.run('DELETE FROM blk WHERE id >= ? AND id <= ?', first, last);
  }

  #writeMoments({ n, words, facets }: StartedSession, before: number, { texts, blocks }: Packed): void {
    const { first: begins, statements } = this.#month(monthOf(n));
    const first = (n - begins) * MOMENT_SPACE + before;
    for (const [index, text] of texts.entries())
      statements.run(
        'INSERT INTO m(rowid, text, d, f) VALUES (?, ?, ?, ?)',
        first + index,
        // FTS5 treats the bytes as UTF-8 text.
        this.#waiting.all.subarray(text.start, text.end),
        words,
        facets,
      );
    for (const [index, bytes] of blocks)
      statements.run(
        'INSERT OR REPLACE INTO blk(id, z) VALUES (?, ?)',
        first + index,
        this.#waiting.all.subarray(bytes.start, bytes.end),
      );
  }

  #finish(
    started: StartedSession,
    { names, version, listing, stoppedAt }: SessionDoc,
    moments: number,
    partial: boolean,
  ): void {
    const { n, isNew, words, facets } = started;
    if (!isNew) {
      this.#statements.run('UPDATE s SET usr = ?, ns = ?, pod = ? WHERE n = ?', ...searchedColumns(names), n);
      for (const sql of [
        'DELETE FROM d WHERE n = ?',
        'DELETE FROM st WHERE rowid = ?',
        'DELETE FROM sf WHERE rowid = ?',
      ])
        this.#statements.run(sql, n);
    }
    this.#statements.run(
      `UPDATE s SET ver = ?, tags = ?, cluster = ?, container = ?, nodes = ?, kind = ?, state = ?, result = ?,
         trust = ?, cmd = ?, dur = ?, exit = ?, hid = ?, moments = ?, partial = ?, stopped = ?, ord = NULL, low = NULL, bytes = NULL WHERE n = ?`,
      version,
      JSON.stringify(names.tags),
      names.cluster ?? null,
      names.container ?? null,
      JSON.stringify(names.nodes),
      names.kind,
      names.state,
      names.result ?? null,
      names.trust ?? null,
      names.command ?? null,
      names.durationSeconds ?? null,
      exitCodeOf(names.result) ?? null,
      names.hidden ?? null,
      moments,
      partial ? 1 : 0,
      stoppedAt ?? null,
      n,
    );
    if (listing !== undefined) {
      const { version: stored, order, recording, searched, bytes } = listing;
      this.#statements.run('UPDATE s SET ord = ?, low = ?, bytes = ? WHERE n = ?', order, searched, bytes, n);
      this.#statements.run('INSERT INTO d(n, ver, rec) VALUES (?, ?, ?)', n, stored, recording);
      this.#statements.run('INSERT INTO st(rowid, low) VALUES (?, ?)', n, searched);
    }
    this.#statements.run('INSERT INTO sf(rowid, d, f) VALUES (?, ?, ?)', n, words, facets);
  }

  /** Commits changes to the file of a month. */
  #write(name: string, act: () => void): void {
    const month = this.#month(name);
    transaction(month.database, () => {
      act();
      setCommits(month, month.commits + 1);
    });
    this.#untidy?.add(name);
  }

  #month(name: string): Month {
    const known = this.#months.get(name);
    if (known !== undefined) return known;
    const [oldest] = this.#months.values();
    if (this.#months.size >= MAX_OPEN_MONTHS && oldest !== undefined) {
      oldest.database.close();
      this.#months.delete(oldest.name);
    }
    const database = openMonth(this.#directory, name);
    const first = numberOf(Date.parse(`${name}-01T00:00:00Z`));
    const statements = new Statements(database);
    const commits = Number(statements.get('PRAGMA user_version')?.['user_version'] ?? 0);
    const month = { name, first, database, statements, commits };
    this.#months.set(name, month);
    return month;
  }
}

function setCommits(month: Month, commits: number): void {
  month.database.exec(`PRAGMA user_version = ${commits}`);
  month.commits = commits;
}

function transaction(database: DatabaseSync, act: () => void): void {
  database.exec('BEGIN IMMEDIATE');
  try {
    act();
    database.exec('COMMIT');
  } catch (error) {
    if (database.isTransaction) database.exec('ROLLBACK');
    throw error;
  }
}

/** Returns the values of the columns user, namespace and pod. Each of these columns has an SQL index. */
function searchedColumns({ user, namespace, pod }: SessionNames): readonly (string | null)[] {
  return [user ?? null, namespace ?? null, pod ?? null];
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
