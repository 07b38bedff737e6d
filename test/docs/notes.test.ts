/** Compares the fields of notes in docs/file-formats.md with the codec. */
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), 'utf8');

it('has the fields of every note', () => {
  const page = read('docs/file-formats.md');
  const rows = [...page.slice(page.indexOf('## Notes')).matchAll(/^- `(\w+)`: .+; fields: (.+)$/gm)].map(
    ([, kind = '', fields = '']) => [
      kind,
      [...fields.matchAll(/`(\w+)`(\??)/g)].map(([, name, optional]) => `${name}${optional}`),
    ],
  );
  const codec = read('src/wire/recorder-api/annotation.ts');
  const [, table = ''] = /const FIELDS[^=]*= \{\n([\s\S]*?)\n\};/.exec(codec) ?? [];
  const kinds = [...table.matchAll(/^ {2}(\w+): \{([\s\S]*?)\},$/gm)].map(([, kind = '', fields = '']) => [
    kind,
    [...fields.matchAll(/(\w+): (required|optional)\(/g)].map(
      ([, name, need]) => `${name}${need === 'optional' ? '?' : ''}`,
    ),
  ]);
  expect(kinds).toHaveLength(7);
  expect(Object.fromEntries(rows)).toMatchObject(Object.fromEntries(kinds));
});
