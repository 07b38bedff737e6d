/** Patterns of rules: matches, and a costly pattern that is disabled while the others continue. */
import { describe, expect, it } from 'vitest';
import {
  patternProblem,
  PatternSet,
  type NamedPattern,
  type SessionPatterns,
} from '../../src/search/patterns.ts';

const line = (text: string, at = 1): { readonly at: number; readonly text: string } => ({ at, text });

/** Returns the patterns of one session. */
const patternsFor = (patterns: readonly NamedPattern[], cpuMs: () => number): SessionPatterns =>
  new PatternSet(patterns, cpuMs).forSession();

describe('the patterns of a session', () => {
  it('returns the first matching line of each pattern', () => {
    const set = patternsFor(
      [
        { id: 'key', source: 'AKIA[0-9A-Z]{4}' },
        { id: 'root', source: String.raw`^root:\w*:0:` },
        { id: 'word', source: String.raw`(?i)\bdrop table\b` },
        { id: 'none', source: 'never' },
      ],
      () => 0,
    );
    const found = set.match([
      line('x AKIA12AB y', 1),
      line('root:x:0:0', 2),
      line('; DROP TABLE a', 3),
      line('AKIAAAAA', 4),
    ]);
    expect(Object.fromEntries(Array.from(found, ([id, { at }]) => [id, at]))).toEqual({
      key: 1,
      root: 2,
      word: 3,
    });
  });

  it('takes linear time for patterns that take exponential time elsewhere', () => {
    const sources = ['(a+)+$', '(a|aa)+$', '(.*)*x$', '^(([a-z])+.)+[A-Z]([a-z])+$'];
    const set = patternsFor(
      sources.map((source) => ({ id: source, source })),
      () => 0,
    );
    const started = performance.now();
    set.match(Array.from({ length: 20 }, () => line(`${'a'.repeat(16_000)}!`)));
    expect(performance.now() - started).toBeLessThan(5_000);
  });

  it('is divided and switched off if each part is too slow', () => {
    let now = 0;
    const sources = ['one', 'two', 'three', 'four', 'five'];
    const set = patternsFor(
      sources.map((source) => ({ id: source, source })),
      () => (now += 150),
    );
    for (let round = 0; round < 20; round += 1) set.match([line('one two')]);
    expect(set.isEmpty).toBe(true);
    expect(set.slow.toSorted()).toEqual(sources.toSorted());
  });

  it('keeps fast patterns for ever', () => {
    let now = 0;
    const set = patternsFor([{ id: 'a', source: 'needle' }], () => (now += 0.5));
    for (let round = 0; round < 1000; round += 1) set.match([line('x'.repeat(20_000))]);
    expect(set.slow).toEqual([]);
    expect(set.match([line('a needle')]).has('a')).toBe(true);
  });

  it('are not switched off by the output of another session', () => {
    let now = 0;
    let costMs = 0;
    const set = new PatternSet(
      ['needle', 'other', 'third'].map((source) => ({ id: source, source })),
      () => (now += costMs),
    );
    const running = set.forSession();
    const hostile = set.forSession();
    costMs = 250;
    for (let round = 0; round < 10; round += 1) hostile.match([line('hay')]);
    expect(hostile.isEmpty).toBe(true);
    costMs = 0;
    for (const session of [running, set.forSession()]) {
      expect(session.match([line('a needle')]).has('needle')).toBe(true);
      expect(session.slow).toEqual([]);
    }
  });

  it('finds the costly pattern among 200 in real time, and goes on with the others', () => {
    const patterns = Array.from({ length: 200 }, (_, at) => ({
      id: String(at),
      source: `needle${at}[0-9]+x`,
    }));
    const slow = { id: 'slow', source: 'a.{1,450}b.{1,450}c' };
    expect(patternProblem(slow.source)).toBeUndefined();
    const set = patternsFor([...patterns, slow], () => {
      const { user, system } = process.threadCpuUsage();
      return (user + system) / 1000;
    });
    let seed = 1;
    const text = (): string =>
      Array.from(
        { length: 2000 },
        () => 'abcd '[(seed = (seed * 1_103_515_245 + 12_345) % 2_147_483_648) % 5],
      ).join('');
    for (let round = 0; round < 400 && set.slow.length === 0; round += 1) set.match([line(text())]);
    expect(set.slow).toEqual(['slow']);
    expect(set.match([line('needle7123x')]).has('7')).toBe(true);
  });
});

describe('a pattern', () => {
  it.each([
    ['(', /missing/i],
    [String.raw`(a)\1`, /invalid escape/i],
    ['(?=a)', /invalid/i],
    ['a*', /matches an empty line/],
    ['', /matches an empty line/],
    ['(?:a{1,900}){1,900}', /too large/],
    ['a{1000}b{1000}', /costly/],
    ['a'.repeat(1001), /characters/],
  ])('%j is refused', (source, problem) => {
    expect(patternProblem(source)).toMatch(problem);
  });

  it.each(['a', String.raw`(?i)\bpassword\b`, '[0-9]{16}', 'a.{0,300}b'])('%j is allowed', (source) => {
    expect(patternProblem(source)).toBeUndefined();
  });
});
