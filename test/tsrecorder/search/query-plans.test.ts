/**
 * SQLite's query plans for lists and searches. No query may scan a table that grows with the number of sessions, unless
 * the scan returns the results in the required order.
 */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect, it } from 'vitest';
import type { ViewerTerms } from '../../../src/search/viewer-terms.ts';
import { IndexReader } from '../../../src/tsrecorder/search/sqlite/reader.ts';
import { IndexWriter } from '../../../src/tsrecorder/search/sqlite/writer.ts';
import { doc, moment, query } from './engine-suite.ts';

const QUERIES = [
  '',
  'word',
  'word other',
  '"word other"',
  'wor*',
  'word OR other',
  'word NOT other',
  'NOT word',
  'cmd:ls',
  'cmd:"ls word"',
  'text:word',
  'user:alice@example.com',
  'user:ali*',
  '-user:alice@example.com',
  'ns:prod pod:web-1',
  'tag:ci*',
  'node:desk',
  'kind:exec state:running',
  'exit:!=0 duration:>1h',
  'after:2026-01-01 before:2026-03-01',
  'word after:2026-01-01 exit:0',
  'id:n_1',
];
const VIEWERS: readonly ViewerTerms[] = [
  'everything',
  [],
  [
    { kind: 'user', value: 'alice@example.com' },
    { kind: 'namespace', value: 'prod' },
    { kind: 'tag', value: 'tag:ci' },
  ],
];

const BEFORE = '2026-02-01T00:03:00.000000000Z n';

/** Returns all SQL queries that SQLite prepares during `act`, with their plans. */
function plansOf(act: () => void): readonly (readonly [sql: string, step: string])[] {
  const plans = new Map<string, readonly string[]>();
  const prepare = DatabaseSync.prototype.prepare;
  // NOTE: SQL queries are built in many modules, so only SQLite sees all of them
  DatabaseSync.prototype.prepare = function prepareExplained(this: DatabaseSync, sql: string) {
    if (!plans.has(sql) && /^\s*SELECT/i.test(sql)) {
      plans.set(sql, []);
      const steps = prepare.call(this, `EXPLAIN QUERY PLAN ${sql}`).all();
      plans.set(
        sql,
        steps.map(({ detail }) => String(detail)),
      );
    }
    return prepare.call(this, sql);
  };
  try {
    act();
  } finally {
    DatabaseSync.prototype.prepare = prepare;
  }
  return Array.from(plans, ([sql, steps]) => steps.map((step) => [sql, step] as const)).flat();
}

it('no list and no search scans a table that grows with the number of sessions', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'tailcast-plans-'));
  const writer = new IndexWriter(directory);
  for (const at of [1, 2, 3]) {
    const listing = {
      order: `2026-02-01T00:0${at}:00.000000000Z n`,
      version: '1',
      recording: '{}',
      searched: 'n_1\nprod',
      bytes: 1,
    };
    writer.put(
      { ...doc(`n_${at}`, { user: 'alice@example.com', namespace: 'prod' }), listing },
      [moment(1, 'word other')],
      false,
    );
  }
  const reader = new IndexReader(directory);
  const plans = plansOf(() => {
    for (const may of VIEWERS) {
      for (const text of QUERIES) {
        reader.find(query(text), may, { limit: 2 });
        reader.find(query(text), may, { limit: 2, cursor: 'nk6k0000' });
        reader.facets(query(text), may);
        reader.within('n_1', query(text), may, 5);
        // lists select only by names, so queries for text are not tested with lists
        if (
          query(text)
            .clauses.flat()
            .some(({ kind }) => kind === 'text')
        )
          continue;
        for (const wanted of ['', 'pr', 'prod']) {
          const ask = { query: query(text), may, text: wanted, limit: 2 };
          reader.list(ask);
          for (const sort of ['oldest', 'longest', 'largest'] as const)
            for (const after of [undefined, { order: BEFORE }, { order: BEFORE, value: 1 }])
              reader.list({ ...ask, sort, ...(after === undefined ? {} : { after }) });
          reader.list({
            ...ask,
            from: '2026-01-01T00:00:00.000000000Z',
            before: BEFORE,
          });
        }
      }
    }
    reader.versions('', 5);
    reader.version('n_1');
    writer.status();
    writer.ids('', 5);
  });
  reader.close();
  writer.close();
  expect(plans.length).toBeGreaterThan(50);
  const scans = plans.filter(([, step]) => step.startsWith('SCAN'));
  // FTS5 reports every query as a scan; a query with words or a range of rows uses its index
  const inTables = scans.filter(([, step]) => !/VIRTUAL TABLE INDEX \d+:(?:.*M|[=<>])/.test(step));
  expect(
    inTables.filter(
      ([, step]) => !/^SCAN (?:json_each|sqlite_master|\(|s USING COVERING INDEX s_partial)/.test(step),
    ),
  ).toEqual([]);
});
