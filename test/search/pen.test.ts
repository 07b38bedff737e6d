import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { INK, PAPER, THEME } from '../../src/search/pen.ts';

it('the pen compares the colours of the player', () => {
  const css = readFileSync(join(import.meta.dirname, '../../src/player/style.css'), 'utf8');
  const colour = (name: string): number =>
    Number.parseInt(new RegExp(`--terminal-${name}: #([0-9a-f]{6});`).exec(css)?.[1] ?? '', 16);
  expect([PAPER, INK]).toEqual([colour('paper'), colour('ink')]);
  expect(THEME).toEqual(Array.from({ length: 16 }, (_, index) => colour(String(index))));
});
