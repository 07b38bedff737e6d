/** Groups of suites that `npm run test:real` runs in one process. */
import { readdirSync } from 'node:fs';
import { expect, it } from 'vitest';
import { runsOf, SUITES } from '../real/suites.ts';

it('knows each test file with real peers', () => {
  const known = Object.values(SUITES)
    .flat()
    .map(({ file }) => file);
  const files = readdirSync(new URL('../real/suites', import.meta.url)).map((file) => `suites/${file}`);
  // The set removes duplicates, because a file may belong to several suites.
  expect([...new Set(known)].toSorted()).toEqual(files.toSorted());
});

it('gives each suite that lays a network a process of its own, and the others one together', () => {
  const all = Object.values(SUITES).flat();
  const runs = runsOf(all);
  expect(runs.flat().toSorted(byFile)).toEqual(all.toSorted(byFile));
  expect(runs.filter((run) => run.some(({ ownNetwork }) => ownNetwork === true) && run.length > 1)).toEqual(
    [],
  );
  expect(runs.filter((run) => run.some(({ ownNetwork }) => ownNetwork !== true))).toHaveLength(1);
});

const byFile = (left: { readonly file: string }, right: { readonly file: string }): number =>
  left.file.localeCompare(right.file);
