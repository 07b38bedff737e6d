import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { DEMONSTRATIONS } from './demonstrations.ts';
import { FIRST_SUITES, MUTATIONS } from './mutations.ts';

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

describe('the mutations', () => {
  it('fit their files, each in one place', () => {
    const stale = MUTATIONS.filter(({ file, find }) => read(file).split(find).length !== 2);
    expect(stale.map(({ file, name }) => `${file}: ${name}`)).toEqual([]);
  });

  it('change something, and have names of their own', () => {
    expect(MUTATIONS.filter(({ find, replace }) => find === replace)).toEqual([]);
    const names = MUTATIONS.map(({ file, name }) => `${file}: ${name}`);
    expect(names).toHaveLength(new Set(names).size);
  });

  it('are first tried on suites that exist', () => {
    for (const suite of Object.values(FIRST_SUITES).flat()) expect(read(suite)).toContain('vitest');
    const files = new Set(MUTATIONS.map(({ file }) => file));
    expect(Object.keys(FIRST_SUITES).filter((file) => !files.has(file))).toEqual([]);
  });
});

describe('the demonstrations', () => {
  it('are seventeen, and each has a check that fits its file in one place', () => {
    expect(DEMONSTRATIONS.map(({ number }) => number)).toEqual(
      Array.from({ length: 17 }, (_, index) => index + 1),
    );
    const checks = DEMONSTRATIONS.flatMap((demonstration) => demonstration.checks);
    expect(DEMONSTRATIONS.filter((demonstration) => demonstration.checks.length === 0)).toEqual([]);
    expect(checks.filter(({ file, find }) => read(file).split(find).length !== 2)).toEqual([]);
  });

  it('name tests that are there', () => {
    const named = DEMONSTRATIONS.flatMap(({ checks, also = [] }) => [
      ...checks.map(({ testFile, test }) => [testFile, test] as const),
      ...also,
    ]);
    for (const [file, test] of named) {
      const text = read(file);
      // one part, because tables contain parts of the name
      expect([
        file,
        test,
        test.split(' > ').some((part) => text.includes(part.split(' %')[0] ?? '')),
      ]).toEqual([file, test, true]);
    }
  });
});
