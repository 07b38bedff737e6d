import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { readScreen, type CellColour } from '../../src/screen/cells.ts';
import { createTerminal } from '../../src/screen/terminal.ts';
import { DIM_OPACITY, Pen } from '../../src/search/pen.ts';
import { INK, PAPER, THEME } from '../../src/terminal/palette.ts';
import { RowJournal } from '../../src/search/row-journal.ts';
import { createRandom, runSeed } from '../support/random.ts';

it('the pen compares the colours of the player', () => {
  const css = readFileSync(join(import.meta.dirname, '../../src/player/style.css'), 'utf8');
  const colour = (name: string): number =>
    Number.parseInt(new RegExp(`--terminal-${name}: #([0-9a-f]{6});`).exec(css)?.[1] ?? '', 16);
  expect([PAPER, INK]).toEqual([colour('paper'), colour('ink')]);
  expect(css).toMatch(new RegExp(String.raw`\.dim \{\s+opacity: ${DIM_OPACITY};`));
  expect(THEME).toEqual(Array.from({ length: 16 }, (_, index) => colour(String(index))));
});

const hiddenIn = (output: string): number => {
  const journal = new RowJournal({ columns: 80, rows: 24, onRow: () => undefined });
  journal.write(0, output);
  journal.end();
  return journal.hidden;
};

it.each([
  ['the colour of underlines does not reveal', '\x1b[8m\x1b[58;5;28m'],
  ['the colour of underlines does not reset', '\x1b[8;58;5;0m'],
  ['the colour of underlines does not change the text', '\x1b[30;40m\x1b[58;2;37;39;49m'],
  ['dim text in nearly the colour of the paper', '\x1b[2;38;2;48;52;56m'],
  ['an index as subparameter of a parameter', '\x1b[38;5:0m'],
  ['red, green and blue as subparameters of a parameter', '\x1b[38;2:16:20:24m'],
])('%s: the text is hidden', (_what, pen) => {
  expect(hiddenIn(`${pen}topsecret\x1b[0m\r\n`)).toBe(9);
});

/** Returns a colour of a cell as `0xRRGGBB`. If the cell has no colour of its own, returns `preset`. */
function rgbOf(colour: CellColour, preset: number): number {
  if (colour === undefined) return preset;
  if (typeof colour === 'string') return Number.parseInt(colour.slice(1), 16);
  if (colour < 16) return THEME[colour] ?? -1;
  if (colour >= 232) return (8 + (colour - 232) * 10) * 0x010101;
  const levels = [0, 95, 135, 175, 215, 255];
  const cube = colour - 16;
  const level = (index: number): number => levels[index % 6] ?? -1;
  return (level(Math.floor(cube / 36)) << 16) | (level(Math.floor(cube / 6)) << 8) | level(cube);
}

it('the pen reads parameters as the emulator does', async () => {
  const random = createRandom(runSeed());
  const terminal = createTerminal({ columns: 8, rows: 1, withoutTerminal: false });
  for (let round = 0; round < 1500; round += 1) {
    const codes = [
      '0',
      '',
      '1',
      '2',
      '5',
      '8',
      '16',
      '22',
      '28',
      '31',
      '38',
      '38',
      '48',
      '58',
      '39',
      '49',
      '97',
      '100',
      '105',
      '240',
      '256',
      '300',
    ];
    let parameters = random.pick(codes);
    for (const code of random.list(10, () => random.pick(codes)))
      parameters += random.pick([';', ';', ':', '::']) + code;
    const pen = new Pen();
    pen.take(parameters);
    const text = `\x1b[0m\x1b[H\x1b[${parameters}mx`;
    terminal.budget.allow(text.length);
    await terminal.write(text);
    const { style } = readScreen(terminal.emulator)[0]!.cells[0]!;
    const { isConcealed, isDim, foreground, background } = pen.state;
    expect({ isConcealed, isDim, foreground, background }, parameters).toEqual({
      isConcealed: style.hidden,
      isDim: style.dim,
      foreground: rgbOf(style.foreground, INK),
      background: rgbOf(style.background, PAPER),
    });
  }
  terminal.dispose();
});
