/**
 * The final screen of each recording of a real program equals the screens that tmux and libvterm show for the same
 * output. In the files of test/fixtures/programs, `rows` and `cursor` describe the screen of tmux. `vterm.py` adds the
 * screen of libvterm.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createCastReader, readCastStart } from '../../src/screen/cast-reader.ts';
import { createTerminal } from '../../src/screen/terminal.ts';
import { RowJournal } from '../../src/search/row-journal.ts';
import { cellsText, emulatorCells, journalCells, type CellRows } from '../support/screen-cells.ts';

const FOLDER = join(import.meta.dirname, '../fixtures/programs');
const NAMES = readdirSync(FOLDER).flatMap((name) => (name.endsWith('.json') ? [name.slice(0, -5)] : []));

interface Shown {
  /** Rows of tmux's screen. */
  readonly rows: readonly string[];
  readonly cursor: readonly [column: number, row: number];
  /** Rows of libvterm's screen; each row contains its cells and their widths. */
  readonly vterm: readonly string[];
}

function rowsOf(cells: CellRows): readonly string[] {
  const rows = cells.map((row) =>
    row
      .map(([text]) => text)
      .join('')
      .trimEnd(),
  );
  return rows.slice(0, rows.findLastIndex((row) => row !== '') + 1);
}

/** Empties rows that contain flag emoji or joined emoji, because libvterm splits these into several characters. */
function withoutClusters(rows: readonly string[]): readonly string[] {
  return rows.map((row) => (/\u200d|\p{RI}/u.test(row) ? '' : row));
}

describe('a recording of a real program', () => {
  it('is one of at least 20', () => {
    expect(NAMES.length).toBeGreaterThanOrEqual(20);
  });

  it.each(NAMES)('ends on the screens of tmux and libvterm: %s', async (name) => {
    const lines = readFileSync(join(FOLDER, `${name}.cast`), 'utf8')
      .trimEnd()
      .split('\n');
    const expected: Shown = JSON.parse(readFileSync(join(FOLDER, `${name}.json`), 'utf8'));
    const start = readCastStart(lines[0] ?? '');
    const read = createCastReader(start);
    const terminal = createTerminal({ ...start.size, withoutTerminal: false });
    const journal = new RowJournal({ ...start.size, onRow: () => undefined });
    for (const line of lines.slice(1)) {
      const action = read(line);
      if (action?.kind !== 'output') continue;
      await terminal.write(action.text);
      journal.write(action.seconds, action.text);
    }
    expect(rowsOf(emulatorCells(terminal.emulator))).toEqual(expected.rows);
    expect(rowsOf(journalCells(journal.screen))).toEqual(expected.rows);
    const vterm = withoutClusters(expected.vterm);
    expect(withoutClusters(cellsText(emulatorCells(terminal.emulator)))).toEqual(vterm);
    expect(withoutClusters(cellsText(journalCells(journal.screen)))).toEqual(vterm);
    const { cursorX, cursorY } = terminal.emulator.buffer.active;
    const column = Math.min(cursorX, start.size.columns - 1);
    expect([column, cursorY]).toEqual([
      Math.min(expected.cursor[0], start.size.columns - 1),
      expected.cursor[1],
    ]);
    expect([Math.min(journal.screen.x, start.size.columns - 1), journal.screen.y]).toEqual([column, cursorY]);
    terminal.dispose();
  });
});
