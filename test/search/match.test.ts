/** Alert queries and the embedded index must give the same results. */
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createWatches, RuleWatch } from '../../src/search/match.ts';
import { parseQuery, printQuery, QueryError, type Query } from '../../src/search/query.ts';
import type { SessionNames } from '../../src/search/search-index.ts';
import type { ViewerTerms } from '../../src/search/viewer-terms.ts';
import { IndexReader } from '../../src/tsrecorder/search/sqlite/reader.ts';
import { IndexWriter } from '../../src/tsrecorder/search/sqlite/writer.ts';
import { doc, moment, names, NOW, query } from '../tsrecorder/search/engine-suite.ts';
import { askedOf, mayOf, sessionOf, withoutAbsent } from '../tsrecorder/search/random-sessions.ts';

const everything = 'everything' as const;

function watch(asked: Query, may: ViewerTerms = everything, sinceMs = 0): RuleWatch {
  return new RuleWatch([{ id: 'r', query: asked, may, sinceMs }]);
}

describe('a rule', () => {
  it('is true of the sessions that the index finds, where it finds them, and of no others', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tailcast-match-'));
    const writer = new IndexWriter(directory);
    const reader = new IndexReader(directory);
    let version = 0;
    let matched = 0;
    try {
      fc.assert(
        fc.property(
          fc.array(sessionOf, { minLength: 3, maxLength: 3 }),
          fc.array(askedOf, { minLength: 6, maxLength: 6 }),
          mayOf,
          (sessions, texts, may) => {
            version += 1;
            const all = sessions.map(({ moments, ...more }, at) => {
              const of = doc(`n_${at}`, withoutAbsent(more) as Partial<SessionNames>, String(version));
              return { doc: of, moments, partial: false };
            });
            writer.putAll(all);
            for (const text of texts) {
              let parsed: Query;
              try {
                parsed = parseQuery(text, NOW);
              } catch (error) {
                expect(error).toBeInstanceOf(QueryError);
                continue;
              }
              const { sessions: found } = reader.find(parsed, may, { limit: 50 });
              const true_ = all.flatMap(({ doc: of, moments }) => {
                const [match] = watch(parsed, may).match(of.names, moments, true);
                return match === undefined ? [] : [[of.names.id, match.hit]];
              });
              matched += true_.length;
              const indexed = found.map(({ id, hits }) => [id, hits[0]]).toReversed();
              expect(new Map(true_ as never), printQuery(parsed)).toEqual(new Map(indexed as never));
            }
          },
        ),
        { numRuns: 220 },
      );
      // many rules must have matched, so that the comparison is meaningful; with fewer archives, this number would
      // depend too much on the seed
      expect(matched).toBeGreaterThan(300);
    } finally {
      reader.close();
      writer.close();
    }
  });

  it('is told once of a session, at the first of its moments', () => {
    const rule = watch(query('needle'));
    const running = names('n_1', { state: 'running' });
    expect(rule.match(running, [moment(1, 'hay')], false)).toEqual([]);
    expect(rule.match(running, [moment(2, 'a needle'), moment(3, 'needle')], false)).toEqual([
      { rule: 'r', hit: { at: 2, text: 'a needle', marks: [[2, 8]], isCommand: false } },
    ]);
    expect(rule.match(running, [moment(4, 'needle')], false)).toEqual([]);
  });

  it('is not asked of what was over before there was the rule', () => {
    const over = names('n_1', { startedAtMs: 1_000_000, durationSeconds: 60 });
    const needle = [moment(1, 'needle')];
    expect(watch(query('needle'), everything, 1_060_001).match(over, needle, true)).toEqual([]);
    expect(watch(query('needle'), everything, 1_060_000).match(over, needle, true)).toHaveLength(1);
    expect(watch(query('needle'), everything, 2_000_000).match(over, needle, false)).toHaveLength(1);
    // the text at 120 s proves that the session lasted longer than its recorded 60 s
    const longer = [...needle, moment(120, 'later')];
    expect(watch(query('needle'), everything, 1_120_000).match(over, longer, true)).toHaveLength(1);
  });
});

it('a pattern is switched off only for the session whose output makes it slow', () => {
  const pattern = { in: 'output', source: '(?i)aws.{0,40}(key|secret).{0,40}[0-9a-zA-Z/+]{40}' } as const;
  const rule = { id: 'aws', query: { clauses: [] }, may: everything, sinceMs: 0, pattern };
  const createWatch = createWatches([rule], () => {
    const { user, system } = process.threadCpuUsage();
    return (user + system) / 1000;
  });
  const running = createWatch();
  const hostile = createWatch();
  let seed = 1;
  const word = (): string =>
    ['aws', 'AWS', 'key', 'secret', '0a'][(seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648) % 5] ?? '';
  for (let lines = 0; hostile.readsOutput && lines < 20_000; lines += 1)
    hostile.output({ at: 1, text: Array.from({ length: 50 }, word).join('').replaceAll(/.{39}/g, '$& ') });
  expect(hostile.match(names('n_hostile'), [], false)).toEqual([{ rule: 'aws', isSlow: true }]);
  for (const watching of [running, createWatch()]) {
    watching.output({ at: 1, text: `aws_secret_access_key = ${'a1B2'.repeat(10)}` });
    expect(watching.match(names('n_other'), [], false)).toMatchObject([{ rule: 'aws', hit: { at: 1 } }]);
  }
});
