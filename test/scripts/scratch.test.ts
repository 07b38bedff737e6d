import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { namesThatTestsMayNotMake } from '../support/scratch.ts';

it('sees what a test made at home, beside the scratch folder, in the repository and at the top', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tailcast-scratch-'));
  try {
    const [home, temporary, root] = ['home', 'tmp', 'root'].map((name) => join(folder, name)) as [
      string,
      string,
      string,
    ];
    for (const path of [join(home, '.local', 'state'), join(home, '.cache'), temporary, root])
      mkdirSync(path, { recursive: true });
    const before = namesThatTestsMayNotMake(home, temporary, root);
    expect(before).toContain('/usr');
    const ours = [
      join(home, '.kube'),
      join(home, '.local', 'state', 'tailcast'),
      join(temporary, 'tsrecorder-x'),
      join(root, 'recordings'),
    ];
    const others = [join(home, '.cache', 'npm'), join(temporary, 'go-build'), join(temporary, 'tctest-x')];
    for (const path of [...ours, ...others]) writeFileSync(path, '');
    const made = [...namesThatTestsMayNotMake(home, temporary, root)].filter((name) => !before.has(name));
    expect(made.toSorted()).toEqual(ours.toSorted());
  } finally {
    rmSync(folder, { recursive: true });
  }
});

it('is where the tests of this run are', () => {
  expect(tmpdir()).toMatch(/tctest-\w+$/);
});
