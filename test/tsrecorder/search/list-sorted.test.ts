/**
 * Sorted lists with more sessions than the recorder sorts in memory. The recorder reads such lists from the database
 * indexes of lengths and sizes. The result must be the same as in memory.
 */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { ListAsk, ListedSession } from '../../../src/search/search-index.ts';
import { compileQuery } from '../../../src/tsrecorder/search/sqlite/compile.ts';
import { openSessions } from '../../../src/tsrecorder/search/sqlite/database.ts';
import { listByValue } from '../../../src/tsrecorder/search/sqlite/list-sorted.ts';
import { IndexWriter } from '../../../src/tsrecorder/search/sqlite/writer.ts';
import { doc, query } from './engine-suite.ts';

const SESSIONS = 300;
/** More sessions than the index can number in one millisecond. */
const IN_ONE = 70;
const LIMIT = 7;

it('are read from the index of the value, a page at a time', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-sorted-'));
  const writer = new IndexWriter(directory);
  writer.putAll(
    Array.from({ length: SESSIONS }, (_, at) => {
      const startedAtMs = Date.parse('2026-02-01T00:00:00Z') + Math.floor(at / IN_ONE);
      // within a millisecond, the order of the start times differs from the order of the sessions' numbers
      const within = String((at * 7919) % 1_000_000).padStart(6, '0');
      const order = `${new Date(startedAtMs).toISOString().slice(0, -1)}${within}Z n`;
      const bytes = at % 11;
      const searched = at % 3 === 0 ? 'fizz' : 'buzz';
      const listing = { order, version: '1', recording: '{}', searched, bytes };
      const user = at % 2 === 0 ? 'bob' : 'alice';
      const length = at % 5 === 0 ? {} : { durationSeconds: (at % 13) / 4 };
      return {
        doc: { ...doc(`n_${at}`, { user, startedAtMs, ...length }), listing },
        moments: [],
        partial: false,
      };
    }),
  );
  writer.close();
  const sessions = openSessions(directory);
  onTestFinished(() => sessions.close());
  const { value: key } = sessions.prepare(`SELECT value FROM meta WHERE key = 'key'`).get() ?? {};
  const prepared: string[] = [];
  const prepare = sessions.prepare.bind(sessions);
  sessions.prepare = (sql) => {
    prepared.push(sql);
    return prepare(sql);
  };
  type Ask = ListAsk & { readonly sort: 'longest' | 'largest' };
  const page = (ask: Ask, maxSorted: number): readonly ListedSession[] => {
    const listed = listByValue(sessions, ask, compileQuery(ask.query, ask.may, String(key)), maxSorted);
    return [...listed.take(ask.limit)];
  };
  const all = (ask: Ask, maxSorted: number): readonly string[] => {
    const ids: string[] = [];
    for (let after: ListAsk['after']; ;) {
      const found = page(after === undefined ? ask : { ...ask, after }, maxSorted);
      ids.push(...found.map(({ id }) => id));
      const last = found.at(-1);
      if (last === undefined) return ids;
      after = last.value === undefined ? { order: last.order } : { order: last.order, value: last.value };
    }
  };
  for (const sort of ['longest', 'largest'] as const)
    for (const [words, text, count] of [
      ['', '', SESSIONS],
      ['user:bob', '', SESSIONS / 2],
      ['user:bob', 'fizz', SESSIONS / 6],
      ['exit:!=1', 'zz', 0],
    ] as const) {
      const ask = { query: query(words), may: 'everything', text, sort, limit: LIMIT } as const;
      const sorted = all(ask, SESSIONS);
      prepared.length = 0;
      expect(all(ask, 5), `${sort} ${words} ${text}`).toEqual(sorted);
      expect(new Set(sorted).size).toBe(count === 0 ? sorted.length : count);
      const walked = prepared.filter((sql) => sql.includes('INDEXED BY'));
      if (count > 0) expect(walked.length).toBeGreaterThan(0);
      for (const sql of new Set(walked)) {
        const plan = prepare(`EXPLAIN QUERY PLAN ${sql}`)
          .all()
          .map(({ detail }) => String(detail));
        expect(plan[0], sql).toContain(`SEARCH s USING INDEX s_${sort === 'longest' ? 'dur' : 'bytes'}`);
        // no sorting: the index provides the order
        expect(plan.join('\n'), sql).not.toContain('TEMP B-TREE');
      }
    }
});
