import { describe, expect, it } from 'vitest';
import { overBudget, parseFile, reachOf } from '../../scripts/structure.ts';

describe('npm run structure', () => {
  it('counts lines of code, not comments or blank lines', () => {
    const text = [
      '/** A comment',
      ' * of two lines. */',
      '',
      "const url = 'https://example.com'; // a comment",
      'const pattern = /\\/\\*/;',
      'const text = `',
      '  // not a comment',
      '',
      '`;',
    ].join('\n');
    expect(parseFile('src/a.ts', text).codeLines).toBe(5);
  });

  it('counts text in JSX, and rules of a style sheet', () => {
    const page = 'const a = (\n  <p>\n    {/* a comment */}\n    // text\n  </p>\n);\n';
    expect(parseFile('src/a.tsx', page).codeLines).toBe(6);
    expect(parseFile('src/a.css', '/* a\ncomment */\na {\n  color: red; /* b */\n}\n').codeLines).toBe(3);
  });

  it('follows imports of values, not of types', () => {
    const files = [
      parseFile('src/a.ts', "import { b } from './b.ts';\nimport type { C } from './c.ts';\nb as C;\n"),
      parseFile('src/b.ts', "export { d as b } from './d.ts';\nimport 'node:fs';\n"),
      parseFile('src/c.ts', 'export type C = 1;\n'),
      parseFile('src/d.ts', 'export const d = 1;\n'),
    ];
    expect(reachOf('src/a.ts', files).map(({ path }) => path)).toEqual(['src/a.ts', 'src/b.ts', 'src/d.ts']);
    expect(files.map(({ imports }) => imports)).toEqual([2, 2, 0, 0]);
  });

  it('fails above a budget, and without one', () => {
    const rows = [
      { name: 'equal', now: 50, budget: 50 },
      { name: 'above', now: 51, budget: 50 },
      { name: 'new', now: 1, budget: undefined },
    ];
    expect(overBudget(rows)).toEqual([
      expect.stringMatching(/^above: 51 is above its budget of 50/),
      'new has no budget in scripts/structure.json',
    ]);
  });
});
