/** The two emulators, of the player and of transcript and search, show the same cells. */
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
    let journal = new RowJournal({ ...start.size, onRow: () => undefined });
    let events = 0;
    for (const line of lines.slice(1)) {
      const action = line === '' ? undefined : read(line);
      if (action?.kind === 'resize') {
        // after a resize the player wraps lines again, and the reader does not
        if (events > 0) break;
        terminal.resize(action.size);
        journal = new RowJournal({ ...action.size, onRow: () => undefined });
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
    const control = fc.constantFrom(...CONTROLS);
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 2, max: 30 }),
        fc.integer({ min: 2, max: 10 }),
        fc.array(fc.oneof({ weight: 4, arbitrary: text }, sequence, one, control), { maxLength: 60 }),
        async (columns, rows, pieces) => {
          const terminal = createTerminal({ columns, rows, withoutTerminal: false });
          const journal = new RowJournal({ columns, rows, onRow: () => undefined });
          try {
            await terminal.write(pieces.join(''));
            journal.write(0, pieces.join(''));
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
