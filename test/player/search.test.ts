import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { EMPTY_FILTER } from '../../src/player/addresses.ts';
import {
  queryOffers,
  findPart,
  plainText,
  queryOfFilter,
  readQuery,
  toggled,
} from '../../src/player/query-edit.ts';
import { begunWith, partsOf, withoutPart } from '../../src/search/nearest-query.ts';
import { parseSaved, withSearch } from '../../src/player/saved-searches.ts';
import type { SavedSearch } from '../../src/wire/recorder-api/saved-search.ts';
import { snippetParts } from '../../src/player/snippet.ts';
import { leadTo } from '../../src/search/recording-link.ts';
import { parseQuery, printQuery, type Query } from '../../src/search/query.ts';

const NOW = Date.UTC(2026, 0, 31);
const read = (text: string): Query => parseQuery(text, NOW);

describe('a query on the page', () => {
  it('is read by the one parser, and what was meant is offered', () => {
    expect(readQuery('user:alice deploy', NOW).query).toEqual(read('user:alice deploy'));
    expect(readQuery('deploy usr:alice x', NOW)).toMatchObject({
      problem: expect.stringMatching(/^There is no key usr:.*did you mean user:/),
      meant: 'deploy user:alice x',
    });
    expect(readQuery('a -usr:$&', NOW).meant).toBe('a -user:$&');
    const unknown = readQuery('zebra:x', NOW);
    expect(unknown.problem).toContain('known are user, ns');
    expect(unknown.meant).toBeUndefined();
  });

  it('has parts that can be taken out one by one', () => {
    const query = read('user:alice a OR "b c" NOT d');
    expect(partsOf(query)).toEqual(['user:alice*', 'a OR "b c"', 'NOT d']);
    expect(withoutPart(query, 1)).toBe('user:alice* NOT d');
    expect(withoutPart(read('a'), 0)).toBe('');
  });

  it('is narrowed to a value and widened again, whatever the value is', () => {
    fc.assert(
      fc.property(fc.string({ minLength: 1, maxLength: 40, unit: 'grapheme' }), (value) => {
        const narrowed = toggled(read('a OR b'), 'ns', value, NOW);
        const query = read(narrowed);
        expect(findPart(query, 'ns', value)).toBe(1);
        expect(toggled(query, 'ns', value, NOW)).toBe('a OR b');
      }),
    );
    expect(toggled(read('-ns:prod'), 'ns', 'prod', NOW)).toBe('-ns:prod ns:prod');
    expect(toggled(read('after:1h x'), 'after', '7d', NOW)).toBe('x after:7d');
    expect(toggled(read('after:7d x'), 'after', '7d', NOW)).toBe('x');
  });

  it('says the same as the filter of a recorder without an index', () => {
    expect(queryOfFilter(EMPTY_FILTER)).toBe('');
    const filter = {
      ...EMPTY_FILTER,
      text: 'a "b',
      user: 'alice',
      cluster: 'eu',
      namespace: 'prod',
      state: 'running',
    };
    const text = queryOfFilter({ ...filter, from: '2026-01-02', to: '2026-01-02' });
    expect(read(text).clauses.map(([term]) => term)).toMatchObject([
      { field: 'user', value: 'alice' },
      { field: 'cluster', value: 'eu' },
      { field: 'ns', value: 'prod' },
      { field: 'state', value: 'running' },
      { field: 'after' },
      { field: 'before' },
      { field: 'any', value: 'a "b' },
    ]);
  });

  it('is plain text when it is nothing else, and may be begun instead of whole', () => {
    expect(['needle', 'user:a', 'a b', 'a OR b'].map((text) => plainText(read(text)))).toEqual([
      'needle',
      '',
      '',
      '',
    ]);
    expect(begunWith(read('ns:prod depl'), NOW)).toBe('ns:prod depl*');
    expect(['depl*', 'de', 'NOT depl', 'user:al', ''].map((text) => begunWith(read(text), NOW))).toEqual(
      Array.from({ length: 5 }),
    );
  });
});

describe('what is offered', () => {
  const known = {
    user: new Set(['alice@example.com', 'bob']),
    cluster: new Set(['eu']),
    ns: new Set(['my space']),
    pod: new Set<string>(),
  };
  it.each([
    ['us', ['user:']],
    ['deploy -us', ['deploy -user:']],
    ['user:', ['user:alice@example.com', 'user:bob']],
    ['x user:AL', ['x user:alice@example.com']],
    ['cluster:e', ['cluster:eu']],
    ['ns:m', ['ns:"my space"']],
    ['state:r', ['state:running']],
    ['state:running', []],
    ['nope:x', []],
    ['', []],
    ['user:bob ', []],
  ])('for %s', (typed, offered) => {
    expect(queryOffers(typed, known)).toEqual(offered);
  });
});

describe('a hit as text', () => {
  it('has every character once, whatever is marked', () => {
    const marks = fc.array(fc.tuple(fc.nat(200), fc.nat(200)));
    fc.assert(
      fc.property(fc.string({ maxLength: 120, unit: 'binary-ascii' }), marks, (text, given) => {
        const sorted = given.toSorted(([left], [right]) => left - right);
        expect(
          snippetParts({ text, marks: sorted })
            .map((part) => part.text)
            .join(''),
        ).toBe(text);
      }),
    );
  });

  it('shows what matched, however far it stands', () => {
    const text = `${'x'.repeat(500)} needle ${'y'.repeat(500)}`;
    const parts = snippetParts({ text, marks: [[501, 507]] });
    expect(parts.find(({ isMatch }) => isMatch)?.text).toBe('needle');
    expect([parts[0]?.text, parts.at(-1)?.text]).toEqual(['…', '…']);
    expect(parts.map((part) => part.text).join('').length).toBeLessThan(170);
  });

  it('is led to two seconds before', () => {
    expect([leadTo(12.5), leadTo(1)]).toEqual([10.5, 0]);
  });
});

describe('saved searches', () => {
  const one: SavedSearch = { name: 'one', query: 'a' };
  it('are kept by name, in order, and read back', () => {
    const kept = withSearch(withSearch([], { name: 'two', query: 'b' }), one);
    expect(kept.map(({ name }) => name)).toEqual(['one', 'two']);
    expect(withSearch(kept, { name: 'two', query: 'c' })).toEqual([one, { name: 'two', query: 'c' }]);
    expect(parseSaved(JSON.stringify(kept))).toEqual(kept);
  });

  it('are not there when they cannot be read, and not without end', () => {
    expect(['', '{', '{}', 'null', undefined].map(parseSaved)).toEqual([[], [], [], [], []]);
    expect(parseSaved(JSON.stringify([one, { name: 1 }, null]))).toEqual([one]);
    let many: readonly SavedSearch[] = [];
    for (let count = 0; count < 60; count += 1) many = withSearch(many, { name: `n${count}`, query: 'a' });
    expect(many).toHaveLength(50);
    expect(printQuery(read(many[0]?.query ?? ''))).toBe('a');
  });
});
