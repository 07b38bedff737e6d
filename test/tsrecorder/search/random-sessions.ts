/** Random sessions, queries and viewers. There are few different values, so that queries match often. */
import fc from 'fast-check';
import type { Moment } from '../../../src/search/search-index.ts';
import type { ViewerTerms } from '../../../src/search/viewer-terms.ts';
import { moment } from './engine-suite.ts';

const WORDS = ['alpha', 'beta', 'al', 'store_failed', '10.0.0.1', '日本語', 'É', 'prod'];
const word = fc.constantFrom(...WORDS);
const row = fc.array(word, { minLength: 1, maxLength: 3 }).map((words) => words.join(' '));
const momentOf = fc
  .tuple(fc.nat(50), fc.array(row, { maxLength: 3 }), fc.option(row, { nil: undefined }))
  .map(([at, rows, command]): Moment => {
    const made = moment(at, ...rows);
    return command === undefined ? made : { ...made, command: { text: command, isGuessed: false } };
  });
/** State of a session and the text on its screen. */
export const sessionOf = fc.record({
  user: fc.constantFrom('alice', 'bob', undefined),
  cluster: fc.constantFrom('east', 'west', undefined),
  namespace: fc.constantFrom('prod', 'prod', 'dev', 'east/prod', undefined),
  pod: fc.constantFrom('web-1', 'web-10', 'web-2-a', 'db', undefined),
  tags: fc.subarray(['tag:ci', 'tag:ops']),
  kind: fc.constantFrom('exec', 'attach'),
  state: fc.constantFrom('completed', 'running'),
  command: fc.constantFrom('sh alpha', undefined),
  result: fc.constantFrom('0', '1', '77', 'failed to start', undefined),
  trust: fc.constantFrom('verified', 'unverified', 'failed', undefined),
  durationSeconds: fc.constantFrom(0.5, 3, 4, 7199.5, 7200, undefined),
  moments: fc.array(momentOf, { maxLength: 4 }),
});
const term = fc.oneof(
  word,
  word.map((text) => `text:${text}`),
  word.map((text) => `cmd:${text}`),
  fc.tuple(word, word).map(([left, right]) => `"${left} ${right}"`),
  fc.constantFrom('alp*', '"store_failed alp"*', 'user:alice', 'user:al*', 'ns:prod', 'ns:d*', 'pod:web-*'),
  fc.constantFrom('tag:tag:ci', 'tag:tag:*', 'node:laptop', 'node:nL*', 'kind:attach', 'state:running'),
  fc.constantFrom(
    'id:n_1',
    'id:n_*',
    'cluster:east',
    'cluster:w*',
    'container:app',
    'pod:web-1*',
    'pod:web-2-*',
  ),
  fc.constantFrom('result:0', 'result:"failed to start"', '-result:77', 'trust:failed', '-trust:verified'),
  fc.constantFrom('exit:0', 'exit:1', 'exit:!=0', 'exit:!=1', 'exit:>0', 'exit:>=77', 'exit:<77', 'exit:<=0'),
  fc.constantFrom(
    'duration:>1h',
    'duration:>=2h',
    'duration:<2h',
    'duration:<=3',
    'duration:2h',
    'duration:!=3',
  ),
  fc.constantFrom('after:2026-02-01T00:02:00Z', 'before:2026-02-01T00:02:00Z'),
);
/** Generates texts of queries; some texts are invalid queries. */
export const askedOf = fc
  .array(
    fc.tuple(fc.constantFrom('', '-'), term, fc.constantFrom('', '', ' OR')).map((parts) => parts.join('')),
    { minLength: 1, maxLength: 4 },
  )
  .map((terms) => terms.join(' ').replace(/ OR$/, ''));
export const mayOf = fc.constantFrom<ViewerTerms>(
  'everything',
  'everything',
  [],
  [{ kind: 'user', value: 'alice' }],
  [{ kind: 'cluster', value: 'east' }],
  [{ kind: 'namespace', value: 'east/prod' }],
  [
    { kind: 'namespace', value: 'prod' },
    { kind: 'tag', value: 'tag:ci' },
  ],
);

export function withoutAbsent<T extends object>(given: T): T {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)) as T;
}
