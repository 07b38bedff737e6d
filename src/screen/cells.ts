/** The content of a terminal as data: rows of cells. Pure. */
import { innerValue } from './inner-value.ts';
import type { Emulator, IBufferCell } from './terminal.ts';

/** A colour: `undefined` for the default, an index of the 256-colour palette, or `#rrggbb`. */
export type CellColour = number | string | undefined;

/** Style of cells. */
export interface CellStyle {
  readonly foreground: CellColour;
  readonly background: CellColour;
  readonly bold: boolean;
  readonly dim: boolean;
  readonly italic: boolean;
  readonly underline: boolean;
  readonly strike: boolean;
  readonly overline: boolean;
  readonly inverse: boolean;
  readonly hidden: boolean;
  readonly blink: boolean;
}

/** One cell. A wide character is one cell with two columns. */
export interface Cell {
  /** The character with its combining marks; a blank for an empty cell. */
  readonly text: string;
  readonly width: 1 | 2;
  readonly style: CellStyle;
  /** Key of the style; equal styles have equal keys. */
  readonly styleKey: string;
}

export interface CellRow {
  readonly cells: readonly Cell[];
  /** True if the row continues the previous row. Copied text then has no line break between the two rows. */
  readonly wrapped: boolean;
}

export interface ScreenCursor {
  readonly column: number;
  readonly row: number;
  readonly visible: boolean;
}

const MAX_CELL_TEXT = 32;
const styles = new Map<string, CellStyle>();
const MAX_STYLES = 4096;

/** Returns the visible rows, or the rows of the normal screen while the alternate screen is visible. */
export function readScreen(emulator: Emulator, which: 'active' | 'normal' = 'active'): readonly CellRow[] {
  const buffer = emulator.buffer[which];
  const rows: CellRow[] = [];
  let cell: IBufferCell | undefined;
  for (let row = 0; row < emulator.rows; row += 1) {
    const line = buffer.getLine(buffer.baseY + row);
    const cells: Cell[] = [];
    let isHalf = false;
    for (let column = 0; column < emulator.cols; column += 1) {
      cell = line?.getCell(column, cell);
      if (cell === undefined) break;
      const width = cell.getWidth();
      // a cell of width 0 is the second half of a wide character; if it follows no first half, it is a combining mark
      // in its own column
      if (width === 0 && cells.at(-1)?.width === 2 && !isHalf) {
        isHalf = true;
        continue;
      }
      if (!isHalf) blankCutCharacter(cells);
      isHalf = false;
      const styleKey = styleKeyOf(cell);
      cells.push({
        text: textOf(cell),
        width: width === 2 ? 2 : 1,
        style: styleOf(cell, styleKey),
        styleKey,
      });
    }
    if (!isHalf) blankCutCharacter(cells);
    rows.push({ cells, wrapped: line?.isWrapped === true });
  }
  return rows;
}

function textOf(cell: IBufferCell): string {
  const text = cell.getWidth() === 0 ? '' : cell.getChars().slice(0, MAX_CELL_TEXT);
  return text === '' ? ' ' : text;
}

/**
 * Replaces the last cell with a blank if it is the first half of a wide character. A resize can remove the second half.
 */
function blankCutCharacter(cells: Cell[]): void {
  const last = cells.at(-1);
  if (last?.width === 2) cells[cells.length - 1] = { ...last, text: ' ', width: 1 };
}

/** Returns the position of the cursor. */
export function readCursor(emulator: Emulator): ScreenCursor {
  const { active } = emulator.buffer;
  return {
    column: Math.min(active.cursorX, emulator.cols - 1),
    row: active.cursorY,
    visible: !isCursorHidden(emulator),
  };
}

/** NOTE: this reads an internal value, because the emulator has no public API for it. */
function isCursorHidden(emulator: Emulator): boolean {
  return innerValue(emulator, ['_core', 'coreService', 'isCursorHidden']) === true;
}

/** Returns the rows as text, without trailing blanks. */
export function screenText(emulator: Emulator): string {
  return readScreen(emulator)
    .map(({ cells }) =>
      cells
        .map(({ text }) => text)
        .join('')
        .trimEnd(),
    )
    .join('\n')
    .trimEnd();
}

function styleKeyOf(cell: IBufferCell): string {
  const flags =
    (cell.isBold() === 0 ? 0 : 1) |
    (cell.isDim() === 0 ? 0 : 2) |
    (cell.isItalic() === 0 ? 0 : 4) |
    (cell.isUnderline() === 0 ? 0 : 8) |
    (cell.isStrikethrough() === 0 ? 0 : 16) |
    (cell.isInverse() === 0 ? 0 : 32) |
    (cell.isInvisible() === 0 ? 0 : 64) |
    (cell.isBlink() === 0 ? 0 : 128) |
    (cell.isOverline() === 0 ? 0 : 256);
  return `${flags};${cell.getFgColorMode()};${cell.getFgColor()};${cell.getBgColorMode()};${cell.getBgColor()}`;
}

function styleOf(cell: IBufferCell, key: string): CellStyle {
  const known = styles.get(key);
  if (known !== undefined) return known;
  const style: CellStyle = {
    foreground: colourOf(cell.isFgDefault(), cell.isFgRGB(), cell.getFgColor()),
    background: colourOf(cell.isBgDefault(), cell.isBgRGB(), cell.getBgColor()),
    bold: cell.isBold() !== 0,
    dim: cell.isDim() !== 0,
    italic: cell.isItalic() !== 0,
    underline: cell.isUnderline() !== 0,
    strike: cell.isStrikethrough() !== 0,
    overline: cell.isOverline() !== 0,
    inverse: cell.isInverse() !== 0,
    hidden: cell.isInvisible() !== 0,
    blink: cell.isBlink() !== 0,
  };
  if (styles.size >= MAX_STYLES) styles.clear();
  styles.set(key, style);
  return style;
}

function colourOf(isDefault: boolean, isRgb: boolean, value: number): CellColour {
  if (isDefault) return undefined;
  return isRgb ? `#${value.toString(16).padStart(6, '0')}` : value;
}
