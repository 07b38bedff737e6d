/** Runs queries on the files of the embedded index, read-only, in a process that can be killed. */
import { statSync } from 'node:fs';
import { join } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { zstdDecompressSync } from 'node:zlib';
import { hitOf } from '../../../search/hit.ts';
import type { Query } from '../../../search/query.ts';
import type {
  Facets,
  Found,
  FoundSession,
  Hit,
  IndexedSession,
  ListAsk,
  ListedSession,
  ListedSessions,
  Moment,
  Page,
} from '../../../search/search-index.ts';
import type { ViewerTerms } from '../../../search/viewer-terms.ts';
import { countFacets, type Faceted } from '../facet-counts.ts';
import { MOMENT, type ReadingEngine } from '../engine.ts';
import { compileQuery, type CompiledQuery } from './compile.ts';
import { listSessions } from './list-sessions.ts';
import {
  endOfMonth,
  firstMoment,
  listMonths,
  MOMENT_SPACE,
  monthOf,
  numberOf,
  openReadOnly,
  sessionOfMoment,
} from './database.ts';

const HITS_PER_SESSION = 3;
/**
 * Maximum number of moments of a session that are read in sequence. If a session has more matching moments, the reader
 * looks up the first moments with a query for this session.
 */
const MAX_STREAMED = 64;
const MAX_BLOCK = 16 * 1024 ** 2;

/** Executes queries with SQLite. */
export class IndexReader implements ReadingEngine {
  readonly #directory: string;
  readonly #files = new Map<string, { readonly database: DatabaseSync; readonly inode: number }>();
  /** Last block read during a query. Most hits of a session are in one block. */
  #block: { readonly month: string; readonly id: number; readonly moments: readonly unknown[] } | undefined;

  constructor(directory: string) {
    this.#directory = directory;
  }

  find(query: Query, may: ViewerTerms, { limit, cursor }: Page): Found {
    const sessions = this.#open();
    if (sessions === undefined) return { sessions: [] };
    const compiled = compileQuery(query, may, keyOf(sessions));
    const before = cursor === undefined ? Number.MAX_SAFE_INTEGER : (parseCursor(cursor) ?? 0);
    const describe = describer(sessions, compiled);
    this.#block = undefined;
    const found: (FoundSession & { readonly n: number })[] = [];
    const candidates = compiled.hasText
      ? this.#byMoments(compiled, before)
      : byNames(sessions, compiled, before);
    for (const { n, moments } of candidates) {
      const session = describe(n);
      if (session === undefined) continue;
      if (found.length === limit)
        return { sessions: found.map(withoutNumber), next: formatCursor(found.at(-1)?.n ?? 0) };
      const hits = moments.slice(0, HITS_PER_SESSION).flatMap((moment) => this.#hitOf(n, moment, compiled));
      found.push({ ...session, n, hits, more: moments.length > HITS_PER_SESSION });
    }
    return { sessions: found.map(withoutNumber) };
  }

  /** Returns the hits of one session in the order of time. */
  within(
    id: string,
    query: Query,
    may: ViewerTerms,
    limit: number,
  ): { readonly hits: readonly Hit[]; readonly more: boolean } {
    const sessions = this.#open();
    const row = sessions?.prepare('SELECT n FROM s WHERE id = ?').get(id);
    if (sessions === undefined || row === undefined) return { hits: [], more: false };
    const n = Number(row['n']);
    const compiled = compileQuery(query, may, keyOf(sessions));
    this.#block = undefined;
    const month = monthOf(n);
    const first = firstMoment(n, month);
    const database = this.#month(month);
    if (
      database === undefined ||
      compiled.words === undefined ||
      describer(sessions, compiled)(n) === undefined
    )
      return { hits: [], more: false };
    const found = database
      .prepare('SELECT rowid FROM m WHERE m MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid LIMIT ?')
      .all(compiled.words, first, first + MOMENT_SPACE, limit + 1)
      .map(({ rowid }) => Number(rowid));
    return {
      hits: found.slice(0, limit).flatMap((moment) => this.#hitOf(n, moment, compiled)),
      more: found.length > limit,
    };
  }

  /** Counts the facets of the newest matching sessions. */
  facets(query: Query, may: ViewerTerms): Facets {
    return countFacets(this.#faceted(query, may));
  }

  /** Lists the sessions that match filters such as user and pod. */
  list(ask: ListAsk): ListedSessions {
    const sessions = this.#open();
    if (sessions === undefined) return { sessions: [], more: false };
    const found: ListedSession[] = [];
    const compiled = compileQuery(ask.query, ask.may, keyOf(sessions));
    for (const session of listSessions(sessions, ask, compiled)) {
      if (found.length === ask.limit) return { sessions: found, more: true };
      found.push(session);
    }
    return { sessions: found, more: false };
  }

  /** Returns indexed sessions in the order of their ids. */
  versions(after: string, limit: number): readonly IndexedSession[] {
    const rows = this.#open()
      ?.prepare('SELECT id, ver FROM s WHERE id > ? ORDER BY id LIMIT ?')
      .all(after, limit);
    return (rows ?? []).map(({ id, ver }) => ({ id: String(id), version: String(ver) }));
  }

  version(id: string): string | undefined {
    const row = this.#open()?.prepare('SELECT ver FROM s WHERE id = ?').get(id);
    return row === undefined ? undefined : String(row['ver']);
  }

  close(): void {
    for (const { database } of this.#files.values()) database.close();
    this.#files.clear();
  }

  #open(): DatabaseSync | undefined {
    return this.#file('sessions', 'sf');
  }

  #month(name: string): DatabaseSync | undefined {
    return this.#file(name, 'm');
  }

  /** Opens a file, which may have been replaced under the same name. */
  #file(name: string, table: string): DatabaseSync | undefined {
    const path = join(this.#directory, `${name}.db`);
    const inode = statSync(path, { throwIfNoEntry: false })?.ino;
    const known = this.#files.get(name);
    if (known !== undefined && known.inode === inode) return known.database;
    known?.database.close();
    this.#files.delete(name);
    const database = inode === undefined ? undefined : openReadOnly(path, table);
    if (database !== undefined && inode !== undefined) this.#files.set(name, { database, inode });
    return database;
  }

  /** Yields the facet values of matching sessions, newest first. */
  *#faceted(query: Query, may: ViewerTerms): Generator<Faceted> {
    const sessions = this.#open();
    if (sessions === undefined) return;
    const compiled = compileQuery(query, may, keyOf(sessions));
    const last = Number.MAX_SAFE_INTEGER;
    const candidates = compiled.hasText ? this.#byMoments(compiled, last) : byNames(sessions, compiled, last);
    const names = sessions.prepare(
      'SELECT usr AS user, cluster, ns, pod, nodes AS node, tags AS tag, kind, state, result, trust FROM s WHERE n = ?',
    );
    const describe = describer(sessions, compiled);
    for (const { n } of candidates) {
      if (describe(n) === undefined) continue;
      yield Object.fromEntries(
        Object.entries(names.get(n) ?? {}).map(([facet, value]) => [
          facet,
          (facet === 'node' || facet === 'tag' ? listOf(value) : [value]).flatMap(valuesOf),
        ]),
      );
    }
  }

  /** Yields sessions with matching moments, newest first, each with its first matching moments. */
  *#byMoments({ match, from, to }: CompiledQuery, before: number): Generator<Candidate> {
    for (const name of listMonths(this.#directory)) {
      const end = Math.min(before, to, sessionOfMoment(Number.MAX_SAFE_INTEGER, name));
      if (numberOf(endOfMonth(name)) <= from) return;
      const database = this.#month(name);
      if (database !== undefined && match !== undefined)
        yield* momentsOf(database, name, match, Math.max(0, firstMoment(from, name)), firstMoment(end, name));
    }
  }

  #hitOf(n: number, moment: number, compiled: CompiledQuery): readonly Hit[] {
    const found = this.#readMoment(n, moment);
    if (found === undefined) return [];
    const hit = hitOf(found, compiled.marked);
    return hit === undefined ? [] : [hit];
  }

  #readMoment(n: number, moment: number): Moment | undefined {
    const month = monthOf(n);
    const id = this.#month(month)
      ?.prepare('SELECT id FROM blk WHERE id <= ? ORDER BY id DESC LIMIT 1')
      .get(moment)?.['id'];
    if (id === undefined) return undefined;
    if (this.#block?.month !== month || this.#block.id !== Number(id)) {
      const packed = this.#month(month)?.prepare('SELECT z FROM blk WHERE id = ?').get(id)?.['z'];
      if (!(packed instanceof Uint8Array)) return undefined;
      const moments = listOf(zstdDecompressSync(packed, { maxOutputLength: MAX_BLOCK }).toString());
      this.#block = { month, id: Number(id), moments };
    }
    const found = this.#block.moments[moment - this.#block.id];
    return found === undefined ? undefined : MOMENT.parse(found);
  }
}

/**
 * Yields matching moments in the file of a month, grouped by session; `first` is inclusive, `end` is exclusive. Uses
 * one query for all sessions, because FTS5 would otherwise combine the words of a `prefix*` for each session.
 */
function* momentsOf(
  database: DatabaseSync,
  month: string,
  match: string,
  first: number,
  end: number,
): Generator<Candidate> {
  const newest = database.prepare(
    'SELECT rowid FROM m WHERE m MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid DESC',
  );
  let open: { readonly n: number; readonly moments: number[] } | undefined;
  let below: number | undefined = end;
  while (below !== undefined) {
    const from: number = below;
    below = undefined;
    for (const { rowid } of newest.iterate(match, first, from)) {
      const moment = Number(rowid);
      const n = sessionOfMoment(moment, month);
      if (n !== open?.n) {
        if (open !== undefined) yield { n: open.n, moments: open.moments.toReversed() };
        open = { n, moments: [] };
      }
      open.moments.push(moment);
      if (open.moments.length < MAX_STREAMED) continue;
      below = firstMoment(n, month);
      break;
    }
    if (open !== undefined && below === undefined) yield { n: open.n, moments: open.moments.toReversed() };
    if (open !== undefined && below !== undefined) {
      const start = below;
      const firstOnes = database
        .prepare('SELECT rowid FROM m WHERE m MATCH ? AND rowid >= ? AND rowid < ? ORDER BY rowid LIMIT ?')
        .all(match, start, start + MOMENT_SPACE, HITS_PER_SESSION + 1);
      yield { n: open.n, moments: firstOnes.map(({ rowid }) => Number(rowid)) };
      open = undefined;
    }
  }
}

interface Candidate {
  readonly n: number;
  readonly moments: readonly number[];
}

function* byNames(
  sessions: DatabaseSync,
  { match, where, values }: CompiledQuery,
  before: number,
): Generator<Candidate> {
  const statement =
    match === undefined
      ? sessions.prepare(`SELECT n FROM s WHERE n < ? AND (${where}) ORDER BY n DESC`)
      : sessions.prepare(
          `SELECT n FROM sf JOIN s ON s.n = sf.rowid WHERE sf MATCH ? AND sf.rowid < ? AND (${where}) ORDER BY ` +
            'sf.rowid DESC',
        );
  const rows =
    match === undefined ? statement.iterate(before, ...values) : statement.iterate(match, before, ...values);
  for (const { n } of rows) yield { n: Number(n), moments: [] };
}

/**
 * Returns a function that describes a matching session. The function returns undefined if the conditions do not match,
 * or if the first write of the session is not complete.
 */
function describer(
  sessions: DatabaseSync,
  { where, values }: CompiledQuery,
): (n: number) => Omit<FoundSession, 'hits' | 'more'> | undefined {
  const statement = sessions.prepare(
    `SELECT id, partial, stopped FROM s WHERE n = ? AND kind <> '' AND (${where})`,
  );
  return (n) => {
    const row = statement.get(n, ...values);
    if (row === undefined) return undefined;
    const stoppedAt = row['stopped'];
    return {
      id: String(row['id']),
      partial: row['partial'] === 1,
      ...(typeof stoppedAt === 'number' ? { stoppedAt } : {}),
    };
  };
}

function keyOf(sessions: DatabaseSync): string {
  return String(sessions.prepare(`SELECT value FROM meta WHERE key = 'key'`).get()?.['value'] ?? '');
}

function withoutNumber({ n: _n, ...session }: FoundSession & { readonly n: number }): FoundSession {
  return session;
}

function formatCursor(n: number): string {
  return `n${n.toString(36)}`;
}

function parseCursor(text: string): number | undefined {
  return /^n[0-9a-z]{1,11}$/.test(text) ? parseInt(text.slice(1), 36) : undefined;
}

function valuesOf(value: unknown): readonly (string | number)[] {
  return typeof value === 'string' || typeof value === 'number' ? [value] : [];
}

/** Parses a JSON array that the writer wrote. */
function listOf(value: unknown): readonly unknown[] {
  const list: unknown = typeof value === 'string' ? JSON.parse(value) : [];
  return Array.isArray(list) ? list : [];
}
