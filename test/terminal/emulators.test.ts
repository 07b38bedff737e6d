/**
 * tailcast has two terminal emulators: one for the player, and one for transcripts and search. Both emulators must show
 * the same cells.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createCastReader, readCastStart } from '../../src/screen/cast-reader.ts';
import { createTerminal } from '../../src/screen/terminal.ts';
import { RowJournal } from '../../src/search/row-journal.ts';
import { cellsText, emulatorCells, journalCells } from '../support/screen-cells.ts';

const FIXTURES = join(import.meta.dirname, '../fixtures');

function recordings(): readonly string[] {
  return ['casts', 'golden', 'field', 'programs'].flatMap((folder) =>
    readdirSync(join(FIXTURES, folder))
      .filter((name) => name.endsWith('.cast') && name !== 'v1.cast')
      .map((name) => `${folder}/${name}`),
  );
}

const TEXTS = [
  'a',
  'word ',
  '日本',
  '🎉',
  '✅',
  '❤\ufe0f',
  '👍🏽',
  '👨‍👩‍👧',
  '🇩🇪',
  'e\u0301',
  'x\u200by',
  '각',
  '\u0301',
  '\u200d',
  '\u05d0\u05d1\u05d2',
  '\u0627\u0644',
  'क्ष',
  '\r\n',
  '\r',
  '\n',
  '\b',
  '\t',
  '\x0e',
  '\x0f',
  '\x7f',
  '\x00',
];
const CONTROLS = [
  '\x1b7',
  '\x1b8',
  '\x1bD',
  '\x1bE',
  '\x1bM',
  '\x1bH',
  '\x1bc',
  '\x1b(0',
  '\x1b(B',
  '\x1b)0',
  '\x1b#8',
  '\x1b[?1049h',
  '\x1b[?1049l',
  '\x1b[4h',
  '\x1b[4l',
  '\x1b[?6h',
  '\x1b[?6l',
  '\x1b[!p',
  '\x84',
  '\x85',
  '\x1b]0;title\x07',
  '\x1bktitle\x1b\\',
  '\x1bP',
  '\x1b]',
  '\x1b\\',
  '\x1b',
  '\x1b[',
  '\x18',
  '\u0090',
  '\u009c',
];

describe('both emulators', () => {
  it.each(recordings())('show the same cells of %s after each event', async (name) => {
    const lines = readFileSync(join(FIXTURES, name), 'utf8').split('\n');
    const start = readCastStart(lines[0] ?? '');
    const read = createCastReader(start);
    const terminal = createTerminal({ ...start.size, withoutTerminal: false });
    const journal = new RowJournal({ ...start.size, onRow: () => undefined });
    let events = 0;
    for (const line of lines.slice(1)) {
      const action = line === '' ? undefined : read(line);
      if (action?.kind === 'resize') {
        terminal.resize(action.size);
        journal.resize(action.seconds, action.size.columns, action.size.rows);
      }
      if (action?.kind !== 'output') continue;
      await terminal.write(action.text);
      journal.write(action.seconds, action.text);
      events += 1;
      expect(cellsText(journalCells(journal.screen)), `${events} events`).toEqual(
        cellsText(emulatorCells(terminal.emulator)),
      );
    }
    terminal.dispose();
  });

  it('show the same cells when a window of full rows becomes narrow and then larger', async () => {
    const terminal = createTerminal({ columns: 80, rows: 24, withoutTerminal: false });
    const journal = new RowJournal({ columns: 80, rows: 24, onRow: () => undefined });
    const write = async (text: string): Promise<void> => {
      await terminal.write(text);
      journal.write(0, text);
      expect(cellsText(journalCells(journal.screen))).toEqual(cellsText(emulatorCells(terminal.emulator)));
    };
    await write('\x1b#8');
    for (const size of [
      { columns: 40, rows: 24 },
      { columns: 80, rows: 48 },
    ]) {
      terminal.resize(size);
      journal.resize(0, size.columns, size.rows);
    }
    await write('\x1b[ A');
    await write('\x1b[48Hlast');
    terminal.dispose();
  });

  it('show the same cells of random sequences', async () => {
    const number = fc.oneof(
      fc.constant(''),
      fc.integer({ min: 0, max: 12 }),
      fc.constantFrom(99, 2 ** 31, 1e12),
    );
    const sequence = fc
      .tuple(number, number, fc.constantFrom(...Array.from('@ABCDEFGHIJKLMPSTXZ`abdefgmrsu')))
      .map(([first, second, final]) => `\x1b[${first};${second}${final}`);
    const one = fc
      .tuple(number, fc.constantFrom(...Array.from('@ABCDEFGIJKLMPSTXZ`abde')))
      .map(([count, final]) => `\x1b[${count}${final}`);
    const text = fc.constantFrom(...TEXTS);
    const size = fc.record({
      columns: fc.integer({ min: 2, max: 30 }),
      rows: fc.integer({ min: 1, max: 10 }),
    });
    const control = fc.constantFrom(...CONTROLS);
    await fc.assert(
      fc.asyncProperty(
        size,
        fc.array(
          fc.oneof(
            { weight: 8, arbitrary: text },
            { weight: 2, arbitrary: sequence },
            { weight: 2, arbitrary: one },
            { weight: 2, arbitrary: control },
            size,
          ),
          { maxLength: 60 },
        ),
        async ({ columns, rows }, pieces) => {
          const terminal = createTerminal({ columns, rows, withoutTerminal: false });
          const journal = new RowJournal({ columns, rows, onRow: () => undefined });
          try {
            for (const piece of pieces) {
              if (typeof piece === 'string') {
                await terminal.write(piece);
                journal.write(0, piece);
              } else {
                terminal.resize(piece);
                journal.resize(0, piece.columns, piece.rows);
                // writes a character first: the emulators differ if a combining mark is the first output after a resize
                await terminal.write('a');
                journal.write(0, 'a');
              }
            }
            expect(cellsText(journalCells(journal.screen))).toEqual(
              cellsText(emulatorCells(terminal.emulator)),
            );
          } finally {
            terminal.dispose();
          }
        },
      ),
      { numRuns: 600 },
    );
  });
});
