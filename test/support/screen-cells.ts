/** Cells of a screen in one form for every emulator: `[text, columns]`, without trailing blanks. */
import { readScreen } from '../../src/screen/cells.ts';
import type { Emulator } from '../../src/screen/terminal.ts';
import type { Screen } from '../../src/search/terminal/screen.ts';

export type CellRows = readonly (readonly (readonly [text: string, columns: number])[])[];

/** Returns the cells of the player's emulator. */
export function emulatorCells(emulator: Emulator): CellRows {
  return readScreen(emulator).map(({ cells }) => trimmed(cells.map(({ text, width }) => [text, width])));
}

/** Returns the cells of the emulator for transcript and search. */
export function journalCells(screen: Screen): CellRows {
  return Array.from({ length: screen.rows }, (_, y) => {
    const row = screen.row(y);
    const cells: [string, number][] = [];
    for (let x = 0; x < screen.columns; x += 1) {
      const width = row.width(x) === 2 ? 2 : 1;
      cells.push([row.characterAt(x) || ' ', width]);
      x += width - 1;
    }
    return trimmed(cells);
  });
}

function trimmed(cells: readonly (readonly [string, number])[]): readonly (readonly [string, number])[] {
  return cells.slice(0, cells.findLastIndex(([text]) => text !== ' ') + 1);
}

/** Returns the rows as readable text: `日` in two columns becomes `日‹2›`. */
export function cellsText(rows: CellRows): readonly string[] {
  const lines = rows.map((cells) =>
    cells.map(([text, columns]) => (columns === 1 ? text : `${text}‹2›`)).join(''),
  );
  return lines.slice(0, lines.findLastIndex((line) => line !== '') + 1);
}
