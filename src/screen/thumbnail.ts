/**
 * Thumbnails of screens. One symbol per cell represents the colour of the cell. The thumbnail does not contain the
 * text. `a` to `p` are the 16 colours of a terminal, `x` is the default colour, capital letters are filled cells, and a
 * blank is an empty cell. Pure.
 */
import { paletteColour } from '../terminal/palette.ts';
import { readScreen, type Cell, type CellColour } from './cells.ts';
import type { Emulator } from './terminal.ts';

/** Rows from top to bottom, without trailing blanks. */
export type ThumbnailRows = readonly string[];

/** Maximum size, so that a thumbnail has less than 4 KiB. */
const MAX_COLUMNS = 100;
const MAX_ROWS = 36;

/**
 * Returns the thumbnail of the visible screen. The thumbnail of a larger screen shows the left columns and the last
 * rows.
 */
export function thumbnailOf(emulator: Emulator): ThumbnailRows {
  const rows = readScreen(emulator).map(({ cells }) => cells.map(symbolsOf).join('').slice(0, MAX_COLUMNS));
  const last = rows.findLastIndex((row) => row.trim() !== '') + 1;
  return rows.slice(Math.max(0, last - MAX_ROWS), last).map((row) => row.trimEnd());
}

/** Returns the number of cells with content. */
export function thumbnailInk(rows: ThumbnailRows): number {
  return rows.reduce((sum, row) => sum + row.replaceAll(' ', '').length, 0);
}

function symbolsOf({ text, width, style }: Cell): string {
  const background = style.inverse ? style.foreground : style.background;
  const isFilled = style.inverse || background !== undefined;
  if (text === ' ' && !isFilled) return ' '.repeat(width);
  if (isFilled) return symbolOf(background).toUpperCase().repeat(width);
  return style.hidden ? ' '.repeat(width) : symbolOf(style.foreground).repeat(width);
}

/** Returns the symbol of the terminal colour that is most similar to `colour`. */
function symbolOf(colour: CellColour): string {
  if (colour === undefined) return 'x';
  if (typeof colour === 'number' && colour < 16) return letter(colour);
  const shown = typeof colour === 'number' ? paletteColour(colour) : Number.parseInt(colour.slice(1), 16);
  const parts = [shown >> 16, (shown >> 8) & 0xff, shown & 0xff];
  const most = Math.max(...parts);
  const [red, green, blue] = parts.map((part) => part > most * 0.6);
  if (most < 48) return letter(8);
  return letter((most > 190 ? 8 : 0) + (red ? 1 : 0) + (green ? 2 : 0) + (blue ? 4 : 0));
}

function letter(index: number): string {
  return String.fromCharCode(97 + index);
}
