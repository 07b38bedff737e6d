import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
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
