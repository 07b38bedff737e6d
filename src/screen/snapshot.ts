/**
 * Converts the complete state of a terminal to text (a keyframe). Writing this text to a new terminal of the same size
 * restores the state, so later output has the same effect.
 *
 * Each snapshot is verified by writing it to a second terminal and comparing the two terminals. Some states have no
 * snapshot, for example an incomplete escape sequence or a rare charset. A seek then starts at an earlier keyframe.
 *
 * NOTE: margins, saved cursor, character sets and tab stops are internal values of the emulator. Their types are
 * checked. With a version of the emulator that uses other names, no snapshots are created.
 */
import { readScreen, type CellStyle } from './cells.ts';
import { innerValue } from './inner-value.ts';
import { createTerminal, type Emulator, type IBufferCell, type PlayTerminal } from './terminal.ts';

/** Text attributes of a cell, or of the emulator's pen. */
type Attributes = Omit<IBufferCell, 'getChars' | 'getCode' | 'getWidth'>;

interface InnerLine {
  readonly isWrapped: boolean;
  loadCell(column: number, cell: IBufferCell): IBufferCell;
}

interface InnerBuffer {
  readonly lines: { get(row: number): InnerLine | undefined };
  readonly ybase: number;
  readonly x: number;
  readonly y: number;
  readonly scrollTop: number;
  readonly scrollBottom: number;
  readonly savedX: number;
  readonly savedY: number;
  readonly savedCurAttrData: Attributes;
  readonly savedCharset: Charset;
  readonly tabs: Readonly<Record<number, boolean | undefined>>;
}

type Charset = Readonly<Record<string, string>> | undefined;

interface Inner {
  readonly buffers: { readonly active: InnerBuffer; readonly normal: InnerBuffer; readonly alt: InnerBuffer };
  readonly coreService: {
    readonly isCursorHidden: boolean;
    readonly modes: { readonly insertMode: boolean };
    readonly decPrivateModes: { readonly origin: boolean; readonly wraparound: boolean };
  };
  readonly _charsetService: {
    /**
     * The active charset. After a program restored the cursor, the active charset may differ from the charset of
     * `glevel`.
     */
    readonly charset: Charset;
    readonly glevel: number;
    readonly _charsets: readonly Charset[];
  };
  readonly _inputHandler: {
    readonly _curAttrData: Attributes;
  };
}

/** Work units per cell of {@link takeSnapshot}. */
export const SNAPSHOT_WORK = 250;
const PALETTE_16 = 0x1000000;

/**
 * @param scratch a terminal with the same options; its content is overwritten.
 * @returns undefined if the state cannot be expressed exactly.
 */
export async function takeSnapshot(
  terminal: PlayTerminal,
  scratch: PlayTerminal,
): Promise<string | undefined> {
  const { emulator, size } = terminal;
  const inner = innerOf(emulator);
  if (inner === undefined || !terminal.isComplete) return undefined;
  const text = encode(inner, emulator);
  if (text === undefined) return undefined;
  await scratch.reset(size, text);
  return describeState(scratch.emulator) === describeState(emulator) ? text : undefined;
}

/** Creates a terminal for {@link takeSnapshot}. */
export function createScratch(): PlayTerminal {
  return createTerminal({ columns: 80, rows: 24, withoutTerminal: false });
}

/** Describes the complete state of a terminal as text, for comparison: equal states have equal descriptions. */
export function describeState(emulator: Emulator): string {
  const inner = innerOf(emulator);
  if (inner === undefined) return 'unknown';
  const { buffers, coreService, _charsetService: charsets, _inputHandler: input } = inner;
  const isAlternate = buffers.active === buffers.alt;
  return JSON.stringify([
    emulator.cols,
    emulator.rows,
    describeRows(emulator, 'active'),
    describeBuffer(buffers.active, emulator),
    // after a program has left the alternate screen, the emulator keeps only the saved cursor of that screen
    isAlternate
      ? [describeRows(emulator, 'normal'), describeBuffer(buffers.normal, emulator)]
      : describeSavedCursor(buffers.alt, emulator),
    coreService.isCursorHidden,
    coreService.modes.insertMode,
    coreService.decPrivateModes.origin,
    coreService.decPrivateModes.wraparound,
    emulator.options.convertEol,
    charsets.glevel,
    isGraphics(charsets.charset),
    [0, 1, 2, 3].map((level) => isGraphics(charsets._charsets[level])),
    sgr(input._curAttrData),
  ]);
}

/** NOTE: the description includes the wrap flag of the first row, because the row may scroll down again. */
function describeRows(emulator: Emulator, which: 'active' | 'normal'): unknown {
  return readScreen(emulator, which).map(({ cells, wrapped }) => [
    wrapped,
    cells.map(({ text, style, styleKey }) => text + (text === ' ' ? blankKey(style) : styleKey)),
  ]);
}

/** Returns the visible attributes of a blank. */
function blankKey({ background, foreground, inverse, underline, strike, overline }: CellStyle): string {
  const isDrawn = inverse || underline || strike || overline;
  return `${background}${isDrawn ? JSON.stringify([foreground, inverse, underline, strike, overline]) : ''}`;
}

function describeBuffer(buffer: InnerBuffer, emulator: Emulator): unknown {
  const { x, y, scrollTop, scrollBottom } = buffer;
  return [
    x,
    y,
    scrollTop,
    scrollBottom,
    describeSavedCursor(buffer, emulator),
    tabStops(buffer, emulator.cols),
  ];
}

function describeSavedCursor(buffer: InnerBuffer, emulator: Emulator): unknown {
  const { column, row } = savedCursor(buffer, emulator);
  return [column, row, sgr(buffer.savedCurAttrData), isGraphics(buffer.savedCharset)];
}

function savedCursor(
  { savedX, savedY, ybase }: InnerBuffer,
  { cols: columns }: Emulator,
): { readonly column: number; readonly row: number } {
  return { column: Math.min(savedX, columns - 1), row: Math.max(0, savedY - ybase) };
}

function encode(inner: Inner, emulator: Emulator): string | undefined {
  const { cols: columns } = emulator;
  const { buffers, coreService, _charsetService: charsets, _inputHandler: input } = inner;
  const levels = [0, 1, 2, 3].map((level) => isGraphics(charsets._charsets[level]));
  const saved = [buffers.normal, buffers.alt].map(({ savedCharset }) => isGraphics(savedCharset));
  if (levels.includes(undefined) || saved.includes(undefined)) return undefined;
  const { origin, wraparound } = coreService.decPrivateModes;
  const parts =
    buffers.active === buffers.alt
      ? []
      : ['\x1b[?47h', encodeSavedCursor(buffers.alt, emulator), '\x1b[0m\x1b[?47l'];
  parts.push(encodeBuffer(buffers.normal, emulator));
  if (buffers.active === buffers.alt) parts.push('\x1b[0m\x1b[?47h', encodeBuffer(buffers.alt, emulator));
  const { active } = buffers;
  if (coreService.modes.insertMode) parts.push('\x1b[4h');
  if (emulator.options.convertEol === true) parts.push('\x1b[20h');
  if (coreService.isCursorHidden) parts.push('\x1b[?25l');
  if (origin) parts.push('\x1b[?6h', encodeCursor(active, emulator, columns, origin));
  if (!wraparound) parts.push('\x1b[?7l');
  for (const [level, graphics] of levels.entries())
    if (graphics === true) parts.push(`\x1b${'()*+'[level]}0`);
  parts.push(['', '\x0e', '\x1bn', '\x1bo'][charsets.glevel] ?? '');
  parts.push(sgr(input._curAttrData));
  return parts.join('');
}

function encodeBuffer(buffer: InnerBuffer, emulator: Emulator): string {
  const { cols: columns, rows } = emulator;
  const { scrollTop, scrollBottom } = buffer;
  const parts = [encodeRows(buffer, emulator)];
  const stops = tabStops(buffer, columns);
  if (stops !== undefined) parts.push('\x1b[3g', ...stops.map((column) => `${at(0, column)}\x1bH`));
  if (scrollTop !== 0 || scrollBottom !== rows - 1) parts.push(`\x1b[${scrollTop + 1};${scrollBottom + 1}r`);
  parts.push(encodeSavedCursor(buffer, emulator), encodeCursor(buffer, emulator, columns, false));
  return parts.join('');
}

function encodeSavedCursor(buffer: InnerBuffer, emulator: Emulator): string {
  const { column, row } = savedCursor(buffer, emulator);
  const save = isGraphics(buffer.savedCharset) === true ? '\x1b(0\x1b7\x1b(B' : '\x1b7';
  return `${at(row, column)}${sgr(buffer.savedCurAttrData)}${save}`;
}

/**
 * Moves the cursor to its position. After the last column of a row is written, the cursor stays after that column until
 * the next character. Only writing the last character again produces this state.
 */
function encodeCursor(buffer: InnerBuffer, emulator: Emulator, columns: number, origin: boolean): string {
  const row = origin ? buffer.y - buffer.scrollTop : buffer.y;
  if (buffer.x < columns) return at(row, buffer.x);
  const line = buffer.lines.get(buffer.ybase + buffer.y);
  const cell = newCell(emulator);
  const last = line?.loadCell(columns - 1, cell);
  const start = last?.getWidth() === 0 ? columns - 2 : columns - 1;
  const shown = line?.loadCell(start, cell);
  return shown === undefined ? at(row, start) : `${at(row, start)}${sgr(shown)}${shown.getChars() || ' '}`;
}

function encodeRows(buffer: InnerBuffer, emulator: Emulator): string {
  const { cols: columns, rows } = emulator;
  const parts: string[] = [];
  const cell = newCell(emulator);
  // The wrap flags are set first. A row gets the flag only if a character is written when the row above is full. To set
  // the flag of the first row, a wrapped row is written at the bottom and scrolled to the top.
  if (buffer.lines.get(buffer.ybase)?.isWrapped === true)
    parts.push(`\x1b[0m${at(rows - 1, columns - 1)}xx`, '\n'.repeat(rows - 1));
  for (let row = 1; row < rows; row += 1)
    if (buffer.lines.get(buffer.ybase + row)?.isWrapped === true)
      parts.push(`\x1b[0m${at(row - 1, columns - 1)}xx`);
  for (let row = 0; row < rows; row += 1) {
    const line = buffer.lines.get(buffer.ybase + row);
    if (line === undefined) continue;
    const isWritten = parts.length > 0;
    const text = encodeRow(line, cell, columns, isWritten);
    if (text !== '') parts.push(at(row, 0), text);
  }
  return parts.join('');
}

/** Erasing sets only the background colour, so a blank with other visible attributes must be written. */
function drawnBlank(cell: IBufferCell): string {
  const isDrawn =
    cell.isInverse() !== 0 ||
    cell.isUnderline() !== 0 ||
    cell.isStrikethrough() !== 0 ||
    cell.isOverline() !== 0;
  return isDrawn ? ' ' : '';
}

/** NOTE: returns a new cell, because the emulator reuses the cell of the buffer. */
function newCell({ buffer }: Emulator): IBufferCell {
  return buffer.active.getNullCell();
}

/** @param isWritten true if the row may already have content, so that blanks must be written too. */
function encodeRow(line: InnerLine, cell: IBufferCell, columns: number, isWritten: boolean): string {
  let text = '';
  let pen = '';
  /** Number of pending blank cells. */
  let blanks = 0;
  let hasContent = false;
  let isHalf = false;
  const flush = (): void => {
    if (blanks > 0) text += `\x1b[${blanks}X\x1b[${blanks}C`;
    blanks = 0;
  };
  for (let column = 0; column < columns; column += 1) {
    const wasWide: boolean = cell.getWidth() === 2 && column > 0 && !isHalf;
    line.loadCell(column, cell);
    // a cell of width 0 is the second half of a wide character; if it follows no first half, it is a blank
    isHalf = cell.getWidth() === 0 && wasWide;
    if (isHalf) continue;
    const next = sgr(cell);
    if (next !== pen) {
      flush();
      text += next;
      pen = next;
    }
    const chars = cell.getWidth() === 0 ? '' : cell.getChars() || drawnBlank(cell);
    if (chars === '') blanks += 1;
    else {
      flush();
      text += chars;
    }
    hasContent ||= chars !== '' || next !== PLAIN;
  }
  flush();
  return hasContent || isWritten ? text : '';
}

const PLAIN = '\x1b[0m';

/** Returns the sequence that sets all attributes of the pen, whatever its previous state. */
function sgr(attributes: Attributes): string {
  const codes = ['0'];
  if (attributes.isBold() !== 0) codes.push('1');
  if (attributes.isDim() !== 0) codes.push('2');
  if (attributes.isItalic() !== 0) codes.push('3');
  if (attributes.isUnderline() !== 0) codes.push('4');
  if (attributes.isBlink() !== 0) codes.push('5');
  if (attributes.isInverse() !== 0) codes.push('7');
  if (attributes.isInvisible() !== 0) codes.push('8');
  if (attributes.isStrikethrough() !== 0) codes.push('9');
  if (attributes.isOverline() !== 0) codes.push('53');
  if (!attributes.isFgDefault())
    codes.push(
      colour(attributes.getFgColor(), attributes.isFgRGB(), attributes.getFgColorMode() === PALETTE_16, 0),
    );
  if (!attributes.isBgDefault())
    codes.push(
      colour(attributes.getBgColor(), attributes.isBgRGB(), attributes.getBgColorMode() === PALETTE_16, 10),
    );
  return `\x1b[${codes.join(';')}m`;
}

function colour(value: number, isRgb: boolean, isOf16: boolean, shift: 0 | 10): string {
  if (isRgb) return `${38 + shift};2;${value >> 16};${(value >> 8) & 255};${value & 255}`;
  if (!isOf16) return `${38 + shift};5;${value}`;
  return String(value < 8 ? 30 + shift + value : 82 + shift + value);
}

/** Returns the sequence that moves the cursor to a zero-based position. */
function at(row: number, column: number): string {
  return `\x1b[${row + 1};${column + 1}H`;
}

/** Returns the columns of the tab stops; undefined for the default tab stops, one every eight columns. */
function tabStops({ tabs }: InnerBuffer, columns: number): readonly number[] | undefined {
  const stops = Array.from({ length: columns }, (_, column) => column).filter(
    (column) => tabs[column] === true,
  );
  const isUsual = stops.every((column, index) => column === index * 8);
  return isUsual && stops.length === Math.ceil(columns / 8) ? undefined : stops;
}

/**
 * Returns true for the line-drawing charset, and undefined for an unknown charset. Returns false if no charset is set.
 */
function isGraphics(charset: Charset): boolean | undefined {
  if (charset === undefined) return false;
  return charset['`'] === '◆' && charset['q'] === '─' ? true : undefined;
}

/** Internal values and their expected types. */
const INSIDE: readonly (readonly [path: string, type: string])[] = [
  ['buffers.active.scrollTop', 'number'],
  ['buffers.active.scrollBottom', 'number'],
  ['buffers.active.savedX', 'number'],
  ['buffers.active.savedY', 'number'],
  ['buffers.active.x', 'number'],
  ['buffers.active.ybase', 'number'],
  ['buffers.active.tabs', 'object'],
  ['buffers.active.lines.get', 'function'],
  ['buffers.active.savedCurAttrData.isBold', 'function'],
  ['buffers.normal', 'object'],
  ['buffers.alt', 'object'],
  ['coreService.isCursorHidden', 'boolean'],
  ['coreService.modes.insertMode', 'boolean'],
  ['coreService.decPrivateModes.origin', 'boolean'],
  ['coreService.decPrivateModes.wraparound', 'boolean'],
  ['_charsetService.glevel', 'number'],
  ['_charsetService._charsets.length', 'number'],
  ['_inputHandler._curAttrData.isBold', 'function'],
];

/** @returns undefined if the internal values of this emulator version are not the values in {@link INSIDE}. */
function innerOf(emulator: Emulator): Inner | undefined {
  const core = innerValue(emulator, ['_core']);
  return isInner(core, emulator) ? core : undefined;
}

function isInner(core: unknown, emulator: Emulator): core is Inner {
  return (
    core !== undefined &&
    INSIDE.every(([path, type]) => typeof innerValue(emulator, ['_core', ...path.split('.')]) === type)
  );
}
