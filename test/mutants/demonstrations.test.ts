import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { DEMONSTRATIONS, NOTICED_LINES } from './demonstrations.ts';

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');
const CHECKS = [...DEMONSTRATIONS.flatMap(({ checks }) => checks), ...NOTICED_LINES];

describe('the demonstrations', () => {
  it('are seventeen, each with a check', () => {
    expect(DEMONSTRATIONS.map(({ number }) => number)).toEqual(
      Array.from({ length: 17 }, (_, index) => index + 1),
    );
    expect(DEMONSTRATIONS.filter(({ checks }) => checks.length === 0)).toEqual([]);
  });

  it('have checks that change something, each in one place of its file', () => {
    expect(CHECKS.filter(({ file, find }) => read(file).split(find).length !== 2)).toEqual([]);
    expect(CHECKS.filter(({ find, replace }) => find === replace)).toEqual([]);
  });

  it('name tests that are there', () => {
    const also = DEMONSTRATIONS.flatMap((demonstration) => demonstration.also ?? []);
    const named = [...CHECKS.map(({ testFile, test }) => [testFile, test] as const), ...also];
    for (const [file, test] of named) {
      const text = read(file);
      // the file must contain one part of the test's name: `it.each` composes a name from texts in different lines
      expect([
        file,
        test,
        test.split(' > ').some((part) => text.includes(part.split(' %')[0] ?? '')),
      ]).toEqual([file, test, true]);
    }
  });
});
