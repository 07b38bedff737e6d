/**
 * Writes the index. Every step leaves it so that a process that is killed there loses nothing: a session has an empty
 * version while its moments are being written, and whoever finds that writes them again.
 */
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import type { DatabaseSync, StatementSync } from 'node:sqlite';
import { zstdCompressSync } from 'node:zlib';
import type {
  IndexedSession,
  IndexStatus,
  Moment,
  SessionDoc,
  SessionNames,
} from '../../../search/search-index.ts';
import { indexText } from '../../../search/tokens.ts';
import { facetWords, nameWords } from './facets.ts';
import {
  endOfMonth,
  firstMoment,
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

const MAX_OPEN_MONTHS = 4;
/** Text that is compressed together. */
const BLOCK = 65_536;

/** Called before each step that a kill may come before; tests use it. */
export type OnStep = (step: string) => void;

/** All of a session. */
export interface WholeSession {
  readonly doc: SessionDoc;
  readonly moments: readonly Moment[];
  readonly partial: boolean;
}

interface Month {
  readonly name: string;
  readonly database: DatabaseSync;
  readonly insert: StatementSync;
  readonly insertBlock: StatementSync;
}

export class IndexWriter {
  readonly #directory: string;
  readonly #sessions: DatabaseSync;
  readonly #months = new Map<string, Month>();
  readonly #key: string;
  readonly #onStep: OnStep;

  /** Makes what is missing. @throws what SQLite throws when it is damaged. */
  constructor(directory: string, onStep: OnStep = () => undefined) {
    this.#directory = directory;
    this.#onStep = onStep;
    this.#sessions = openSessions(directory);
    this.#check();
    this.#key = textOf(this.#sessions.prepare(`SELECT value FROM meta WHERE key = 'key'`).get()?.['value']);
  }

  /** Replaces what there is of a session. */
  put(doc: SessionDoc, moments: readonly Moment[], partial: boolean): 'put' | 'same' {
    return this.putAll([{ doc, moments, partial }]) === 0 ? 'same' : 'put';
  }

  /** The same of several, each once: they are written together. @returns how many there were to write */
  putAll(sessions: readonly WholeSession[]): number {
    const fresh = sessions.filter(
      ({ doc }) => doc.version === '' || this.version(doc.names.id) !== doc.version,
    );
    if (fresh.length === 0) return 0;
    const begun: (WholeSession & { readonly n: number })[] = [];
    transaction(this.#sessions, () => {
      for (const session of fresh) begun.push({ ...session, n: this.#begin(session.doc.names) });
    });
    this.#onStep('begun');
    for (const [month, ofMonth] of Map.groupBy(begun, ({ n }) => monthOf(n))) {
      transaction(this.#month(month).database, () => {
        for (const { n, doc, moments } of ofMonth) {
          this.#clearMoments(n);
          this.#writeMoments(n, 0, doc.names, moments);
        }
      });
      this.#onStep('moments');
    }
    transaction(this.#sessions, () => {
      for (const { n, doc, moments, partial } of begun) this.#finish(n, doc, moments.length, partial);
    });
    this.#onStep('finished');
    return fresh.length;
  }

  /** A session that grows: its version is empty until it is put. `fresh`: what there is of it goes. */
  append(names: SessionNames, moments: readonly Moment[], fresh: boolean, partial: boolean): void {
    const known = this.#find(names.id);
    const isNew = fresh || known === undefined;
    const n = isNew ? this.#begin(names) : known.n;
    this.#onStep('begun');
    const before = isNew ? 0 : known.moments;
    // a session always has one, so that its names are found with words
    const added = isNew && moments.length === 0 ? [NOTHING] : moments;
    transaction(this.#month(monthOf(n)).database, () => {
      if (isNew) this.#clearMoments(n);
      this.#writeMoments(n, before, names, added);
    });
    this.#onStep('appended');
    transaction(this.#sessions, () =>
      this.#finish(n, { names, version: '', text: 'all' }, before + added.length, partial),
    );
    this.#onStep('finished');
  }

  remove(id: string): void {
    const known = this.#find(id);
    if (known === undefined) return;
    prepareWrite(this.#sessions, `UPDATE s SET ver = '' WHERE n = ?`).run(known.n);
    this.#onStep('marked');
    transaction(this.#month(monthOf(known.n)).database, () => this.#clearMoments(known.n));
    this.#onStep('cleared');
    transaction(this.#sessions, () => {
      for (const sql of [
        'DELETE FROM s WHERE n = ?',
        'DELETE FROM sf WHERE rowid = ?',
        'DELETE FROM d WHERE n = ?',
        'DELETE FROM st WHERE rowid = ?',
      ])
        prepareWrite(this.#sessions, sql).run(known.n);
    });
    this.#onStep('removed');
  }

  /** Takes removed words out of the bytes of the files. Slow: for after a retention run. */
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
      const { database } = this.#month(name);
      database.exec(`INSERT INTO m(m) VALUES ('optimize'); VACUUM; PRAGMA wal_checkpoint(TRUNCATE)`);
      this.#onStep('compacted');
    }
    this.#sessions.exec(`
      INSERT INTO sf(sf) VALUES ('optimize'); INSERT INTO st(st) VALUES ('optimize');
      VACUUM; PRAGMA wal_checkpoint(TRUNCATE)`);
  }

  /** Which version there is of a session; undefined: none. */
  version(id: string): string | undefined {
    return this.#find(id)?.version;
  }

  /** In the order of ids. */
  ids(after: string, limit: number): readonly IndexedSession[] {
    return this.#sessions
      .prepare('SELECT id, ver FROM s WHERE id > ? ORDER BY id LIMIT ?')
      .all(after, limit)
      .map(({ id, ver }) => ({ id: textOf(id), version: textOf(ver) }));
  }

  status(): IndexStatus {
    const row = this.#sessions
      .prepare('SELECT count(*) AS sessions, (SELECT count(*) FROM s WHERE partial = 1) AS partial FROM s')
      .get();
    return {
      sessions: Number(row?.['sessions'] ?? 0),
      partial: Number(row?.['partial'] ?? 0),
      bytes: indexBytes(this.#directory),
    };
  }

  close(): void {
    for (const { database } of this.#months.values()) database.close();
    this.#months.clear();
    this.#sessions.close();
  }

  /** @throws when the files are damaged, as far as a quick look tells. */
  #check(): void {
    const [newest] = listMonths(this.#directory);
    const databases = [this.#sessions, ...(newest === undefined ? [] : [this.#month(newest).database])];
    for (const database of databases) {
      const found = textOf(database.prepare('PRAGMA quick_check(1)').get()?.['quick_check']);
      if (found !== 'ok') throw new Error(`the index is damaged: ${found}`);
    }
  }

  #find(id: string): { readonly n: number; readonly version: string; readonly moments: number } | undefined {
    const row = this.#sessions.prepare('SELECT n, ver, moments FROM s WHERE id = ?').get(id);
    if (row === undefined) return undefined;
    return { n: Number(row['n']), version: textOf(row['ver']), moments: Number(row['moments']) };
  }

  /** Makes room for a session: it is known, without a version, and has no moments. */
  #begin(names: SessionNames): number {
    const known = this.#find(names.id)?.n;
    const n = known ?? this.#freeNumber(numberOf(names.startedAtMs));
    if (known === undefined)
      prepareWrite(
        this.#sessions,
        `INSERT INTO s(n, id, ver, tags, nodes, kind, state, moments, partial) VALUES (?, ?, '', '[]', '[]', '', '', 0, 0)`,
      ).run(n, names.id);
    else prepareWrite(this.#sessions, `UPDATE s SET ver = '', moments = 0 WHERE n = ?`).run(n);
    return n;
  }

  #freeNumber(first: number): number {
    const taken = this.#sessions.prepare('SELECT 1 FROM s WHERE n = ?');
    let n = first;
    while (taken.get(n) !== undefined) n += 1;
    const late = millisecondOf(n) - millisecondOf(first);
    if (late > 0)
      this.#sessions
        .prepare(
          `INSERT INTO meta(key, value) VALUES (?, ?)
           ON CONFLICT(key) DO UPDATE SET value = max(CAST(value AS INTEGER), excluded.value)`,
        )
        .run(SPILL, String(late));
    return n;
  }

  #clearMoments(n: number): void {
    const { name, database } = this.#month(monthOf(n));
    const first = firstMoment(n, name);
    const last = first + MOMENT_SPACE - 1;
    // most have none: to look is cheaper than to delete
    if (
      database.prepare('SELECT 1 FROM blk WHERE id >= ? AND id <= ? LIMIT 1').get(first, last) === undefined
    )
      return;
    prepareWrite(database, 'DELETE FROM m WHERE rowid >= ? AND rowid <= ?').run(first, last);
    prepareWrite(database, 'DELETE FROM blk WHERE id >= ? AND id <= ?').run(first, last);
  }

  #writeMoments(n: number, before: number, names: SessionNames, moments: readonly Moment[]): void {
    const month = this.#month(monthOf(n));
    const first = firstMoment(n, month.name) + before;
    const facets = facetWords(this.#key, names);
    const words = nameWords(names);
    const given = moments.length === 0 && before === 0 ? [NOTHING] : moments.slice(0, MOMENT_SPACE - before);
    let block: Moment[] = [];
    let length = 0;
    for (const [index, moment] of given.entries()) {
      const text = moment.rows.map((row) => row.text).join('\n');
      month.insert.run(first + index, indexText(text), indexText(moment.command?.text ?? ''), words, facets);
      block.push(moment);
      length += text.length;
      if (length < BLOCK && index + 1 < given.length) continue;
      const packed = zstdCompressSync(Buffer.from(JSON.stringify(block)));
      month.insertBlock.run(first + index + 1 - block.length, packed);
      block = [];
      length = 0;
    }
  }

  #finish(n: number, { names, version, listing }: SessionDoc, moments: number, partial: boolean): void {
    prepareWrite(
      this.#sessions,
      `UPDATE s SET ver = ?, usr = ?, tags = ?, ns = ?, pod = ?, container = ?, nodes = ?, kind = ?, state = ?, cmd = ?,
         dur = ?, exit = ?, moments = ?, partial = ?, ord = ?, low = ? WHERE n = ?`,
    ).run(
      version,
      names.user ?? null,
      JSON.stringify(names.tags),
      names.namespace ?? null,
      names.pod ?? null,
      names.container ?? null,
      JSON.stringify(names.nodes),
      names.kind,
      names.state,
      names.command ?? null,
      names.durationSeconds ?? null,
      names.exitCode ?? null,
      moments,
      partial ? 1 : 0,
      listing?.order ?? null,
      listing?.searched ?? null,
      n,
    );
    prepareWrite(this.#sessions, 'DELETE FROM d WHERE n = ?').run(n);
    prepareWrite(this.#sessions, 'DELETE FROM st WHERE rowid = ?').run(n);
    if (listing !== undefined) {
      const { version: stored, recording, searched } = listing;
      prepareWrite(this.#sessions, 'INSERT INTO d(n, ver, rec) VALUES (?, ?, ?)').run(n, stored, recording);
      prepareWrite(this.#sessions, 'INSERT INTO st(rowid, low) VALUES (?, ?)').run(n, searched);
    }
    prepareWrite(this.#sessions, 'INSERT OR REPLACE INTO sf(rowid, d, f) VALUES (?, ?, ?)').run(
      n,
      nameWords(names),
      facetWords(this.#key, names),
    );
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
    const month = {
      name,
      database,
      insert: prepareWrite(database, 'INSERT INTO m(rowid, text, cmd, d, f) VALUES (?, ?, ?, ?, ?)'),
      insertBlock: prepareWrite(database, 'INSERT OR REPLACE INTO blk(id, z) VALUES (?, ?)'),
    };
    this.#months.set(name, month);
    return month;
  }
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

/** For writing: FTS5 leaves row numbers of its own behind that are larger than a number can be. */
function prepareWrite(database: DatabaseSync, sql: string): StatementSync {
  const statement = database.prepare(sql);
  statement.setReadBigInts(true);
  return statement;
}

function textOf(value: unknown): string {
  return typeof value === 'string' ? value : '';
}
