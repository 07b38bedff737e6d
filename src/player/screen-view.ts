/**
 * Draws the screen of a terminal as rows of text, so that screen readers, search and copying work. Each run of text
 * gets the exact width of its cells, so columns stay aligned with any font.
 *
 * The content is untrusted, so it is inserted only as text, never as markup or links.
 */
import { readCursor, readScreen, type Cell, type CellColour, type CellStyle } from '../screen/cells.ts';
import type { Emulator } from '../screen/terminal.ts';
import type { ScreenSize } from '../terminal/size.ts';

/**
 * Size of the text, in pixels or as a sizing rule. `whole`: the complete screen fits. `auto`: like `whole`, but never
 * smaller than a readable size. `width` and `height`: the screen fills the available width or height.
 */
export type ScreenFit = 'whole' | 'auto' | 'width' | 'height' | number;

export interface ScreenView {
  /** Draws an empty screen of the expected size, so that the layout does not shift when the content arrives. */
  reserve(size: ScreenSize): void;
  /** Draws the changes since the last call. */
  paint(emulator: Emulator): void;
  /** Sets the available size in pixels. */
  fit(width: number, height: number): void;
  /** Sets the size of the text. Default: `whole`. */
  setFit(fit: ScreenFit): void;
  /** Highlights texts, which must be in lower case. */
  highlight(texts: readonly string[]): void;
  dispose(): void;
}

const MAX_FONT_PX = 20;
const MIN_READABLE_PX = 6;
const MAX_ZOOM_PX = 64;
/** Maximum number of highlighted texts in one row. */
const MAX_HIGHLIGHTS = 50;
const MIN_FONT_PX = 2;
const LINE_HEIGHT = 1.2;
const PROBE_LENGTH = 200;

/** @param element an empty block element */
export function createScreenView(element: HTMLElement): ScreenView {
  const rows: HTMLElement[] = [];
  let keys: string[] = [];
  let size: ScreenSize = { columns: 80, rows: 24 };
  let room = { width: 0, height: 0 };
  let fit: ScreenFit = 'whole';
  let sought: readonly string[] = [];
  const mark = createMarker();
  let wraps: readonly boolean[] = [];
  const perPixel = measureCell(element, 100) / 100;
  const onCopy = (event: ClipboardEvent): void => {
    const text = selectedText(rows, wraps);
    if (text === undefined) return;
    event.clipboardData?.setData('text/plain', text);
    event.preventDefault();
  };
  element.addEventListener('copy', onCopy);

  function layOut(): void {
    const { width, height } = room;
    if (width <= 0) return;
    const wide = width / (size.columns * perPixel);
    const high = height / (size.rows * LINE_HEIGHT);
    setSizes(element, fontFor(fit, wide, high), size.columns);
  }

  function useSize({ columns, rows: count }: ScreenSize): void {
    if (columns === size.columns && count === size.rows && rows.length === count) return;
    size = { columns, rows: count };
    while (rows.length < count) {
      const row = document.createElement('div');
      row.className = 'row';
      rows.push(row);
      element.append(row);
    }
    for (const row of rows.splice(count)) {
      mark(row, []);
      row.remove();
    }
    keys = [];
    layOut();
  }

  return {
    reserve: useSize,
    paint(emulator) {
      useSize({ columns: emulator.cols, rows: emulator.rows });
      element.dataset['size'] = `${emulator.cols}x${emulator.rows}`;
      const cursor = readCursor(emulator);
      const screen = readScreen(emulator);
      wraps = screen.map(({ wrapped }) => wrapped);
      for (const [index, { cells }] of screen.entries()) {
        const cursorAt = cursor.visible && cursor.row === index ? cursor.column : -1;
        const key = `${cursorAt}|${cells.map(({ text, styleKey }) => `${styleKey}${text}`).join('')}`;
        if (keys[index] === key) continue;
        keys[index] = key;
        const row = rows[index];
        row?.replaceChildren(...drawRow(cells, cursorAt));
        if (row !== undefined && sought.length > 0) mark(row, rangesOf(row, sought));
      }
    },
    fit(width, height) {
      if (room.width === width && room.height === height) return;
      room = { width, height };
      layOut();
    },
    setFit(chosen) {
      fit = chosen;
      element.dataset['fit'] = String(chosen);
      layOut();
    },
    highlight(texts) {
      sought = texts;
      for (const row of rows) mark(row, rangesOf(row, texts));
    },
    dispose() {
      for (const row of rows) mark(row, []);
      element.removeEventListener('copy', onCopy);
      element.replaceChildren();
    },
  };
}

/** Returns a function that replaces the highlighted ranges of a row. */
function createMarker(): (row: HTMLElement, ranges: readonly Range[]) => void {
  const found = new Map<HTMLElement, readonly Range[]>();
  return (row, ranges) => {
    for (const range of found.get(row) ?? []) highlights?.delete(range);
    for (const range of ranges) highlights?.add(range);
    if (ranges.length > 0) found.set(row, ranges);
    else found.delete(row);
  };
}

function setSizes(element: HTMLElement, font: number, columns: number): void {
  const shown = Math.floor(font * 20) / 20;
  element.style.setProperty('--font', `${shown}px`);
  const natural = measureCell(element, shown);
  // browsers round the width of each element down to a multiple of 1/64 pixel, and these errors would add up in a row
  // in which each character is an element
  const cell = Math.floor(natural * 64) / 64;
  element.style.setProperty('--cell', `${cell}px`);
  element.style.setProperty('--spacing', `${cell - natural}px`);
  element.style.setProperty('--row', `${LINE_HEIGHT * shown}px`);
  element.style.setProperty('--columns', String(columns));
}

function fontFor(fit: ScreenFit, wide: number, high: number): number {
  if (typeof fit === 'number') return fit;
  if (fit === 'width') return Math.max(MIN_FONT_PX, Math.min(MAX_ZOOM_PX, wide));
  if (fit === 'height') return Math.max(MIN_FONT_PX, Math.min(MAX_ZOOM_PX, high));
  return Math.max(fit === 'auto' ? MIN_READABLE_PX : MIN_FONT_PX, Math.min(MAX_FONT_PX, wide, high));
}

/** Highlighted ranges of all screens; undefined in browsers that do not support custom highlights. */
const highlights = createHighlights();

function createHighlights(): Highlight | undefined {
  if (typeof Highlight === 'undefined') return undefined;
  const created = new Highlight();
  CSS.highlights.set('search-hit', created);
  return created;
}

/** Returns the ranges of a screen row that contain one of the texts. A range may cover several elements. */
function rangesOf(row: HTMLElement, texts: readonly string[]): readonly Range[] {
  const content = row.textContent.toLowerCase();
  if (texts.length === 0 || content.length !== row.textContent.length) return [];
  const ranges: Range[] = [];
  for (const text of texts)
    for (
      let at = content.indexOf(text);
      at >= 0 && ranges.length < MAX_HIGHLIGHTS;
      at = content.indexOf(text, at + text.length)
    ) {
      const range = document.createRange();
      const [start, startOffset] = placeAt(row, at);
      const [end, endOffset] = placeAt(row, at + text.length - 1);
      if (start === undefined || end === undefined) break;
      range.setStart(start, startOffset);
      range.setEnd(end, endOffset + 1);
      ranges.push(range);
    }
  return ranges;
}

/** Returns the text node and the offset of a character in a screen row. */
function placeAt(row: HTMLElement, at: number): readonly [node: Text | undefined, offset: number] {
  let before = 0;
  for (const run of row.children) {
    const { firstChild } = run;
    if (!(firstChild instanceof Text)) continue;
    if (at < before + firstChild.length) return [firstChild, at - before];
    before += firstChild.length;
  }
  return [undefined, 0];
}

/**
 * Returns the width of a cell in pixels. The width is measured for each font size, because browsers round the sizes of
 * glyphs. A width that is scaled from another font size is wrong by up to 3 pixels in 140 columns.
 *
 * @param font size of the font, in pixels
 */
function measureCell(element: HTMLElement, font: number): number {
  const probe = document.createElement('span');
  probe.className = 'probe';
  probe.style.fontSize = `${font}px`;
  probe.style.letterSpacing = '0';
  probe.textContent = 'M'.repeat(PROBE_LENGTH);
  element.append(probe);
  const { width } = probe.getBoundingClientRect();
  probe.remove();
  return width > 0 ? width / PROBE_LENGTH : font * 0.6;
}

function drawRow(cells: readonly Cell[], cursorAt: number): readonly HTMLElement[] {
  const runs: HTMLElement[] = [];
  let column = 0;
  let text = '';
  let columns = 0;
  let last: Cell | undefined;
  const flush = (): void => {
    if (last !== undefined && columns > 0) runs.push(drawRun(text, columns, last.style, false));
    text = '';
    columns = 0;
  };
  for (const cell of cells.slice(0, shownLength(cells, cursorAt))) {
    const isCursor = cursorAt >= column && cursorAt < column + cell.width;
    const isAlone = isCursor || cell.width === 2 || !isPlain(cell.text);
    if (isAlone || cell.styleKey !== last?.styleKey) flush();
    last = cell;
    if (isAlone) runs.push(drawRun(cell.text, cell.width, cell.style, isCursor));
    else {
      text += cell.text;
      columns += 1;
    }
    column += cell.width;
  }
  flush();
  return runs;
}

/** Number of cells up to and including the last visible cell. */
function shownLength(cells: readonly Cell[], cursorAt: number): number {
  let column = cells.reduce((sum, { width }) => sum + width, 0);
  for (let length = cells.length; length > 0; length -= 1) {
    const cell = cells[length - 1];
    if (cell === undefined) continue;
    column -= cell.width;
    const { text, style } = cell;
    const isBlank =
      text === ' ' &&
      style.background === undefined &&
      !style.inverse &&
      !style.underline &&
      !style.strike &&
      !style.overline;
    if (!isBlank || column === cursorAt) return length;
  }
  return 0;
}

/** True if every monospace font draws this letter in the normal width of a cell. */
function isPlain(text: string): boolean {
  const code = text.charCodeAt(0);
  return text.length === 1 && code >= 0x20 && code < 0x250 && code !== 0xad;
}

const CLASSES = { bold: 'bold', dim: 'dim', italic: 'italic', hidden: 'hidden', cursor: 'cursor' } as const;
const LINES = { underline: 'underline', strike: 'line-through', overline: 'overline' } as const;

/** Returns the name of each property of `set` that is true. */
function namesOf(set: object, names: Readonly<Record<string, string>>): string {
  return Object.entries(names)
    .filter(([key]) => Reflect.get(set, key) === true)
    .map(([, name]) => name)
    .join(' ');
}

function drawRun(text: string, columns: number, style: CellStyle, isCursor: boolean): HTMLElement {
  const run = document.createElement('span');
  run.textContent = text;
  run.style.width = `calc(var(--cell) * ${columns})`;
  const names = namesOf({ ...style, cursor: isCursor }, CLASSES);
  if (names !== '') run.className = names;
  const lines = namesOf(style, LINES);
  if (lines !== '') run.style.textDecorationLine = lines;
  const inverse = style.inverse !== isCursor;
  const ink = colourText(inverse ? style.background : style.foreground);
  const paper = colourText(inverse ? style.foreground : style.background);
  if (ink !== undefined || inverse) run.style.color = ink ?? 'var(--terminal-paper)';
  if (paper !== undefined || inverse) run.style.backgroundColor = paper ?? 'var(--terminal-ink)';
  return run;
}

/**
 * Returns a colour as CSS. In the 256-colour palette, the theme defines the first 16 colours; the other colours are a
 * cube of 6 by 6 by 6 colours, and 24 greys.
 */
function colourText(colour: CellColour): string | undefined {
  if (colour === undefined || typeof colour === 'string') return colour;
  if (colour < 16) return `var(--terminal-${colour})`;
  if (colour >= 232) {
    const grey = 8 + (colour - 232) * 10;
    return `rgb(${grey}, ${grey}, ${grey})`;
  }
  const level = (value: number): number => (value === 0 ? 0 : 55 + value * 40);
  const cube = colour - 16;
  return `rgb(${level(Math.floor(cube / 36))}, ${level(Math.floor(cube / 6) % 6)}, ${level(cube % 6)})`;
}

/**
 * Returns the selected text, without line breaks inside a wrapped line; undefined if the selection is outside of the
 * screen.
 */
function selectedText(rows: readonly HTMLElement[], wraps: readonly boolean[]): string | undefined {
  const selection = getSelection();
  const range =
    selection === null || selection.rangeCount === 0 || selection.isCollapsed
      ? undefined
      : selection.getRangeAt(0);
  if (range === undefined) return undefined;
  let text: string | undefined;
  for (const [index, row] of rows.entries()) {
    if (!range.intersectsNode(row)) continue;
    const part = document.createRange();
    part.selectNodeContents(row);
    if (row.contains(range.startContainer)) part.setStart(range.startContainer, range.startOffset);
    if (row.contains(range.endContainer)) part.setEnd(range.endContainer, range.endOffset);
    const line = part.toString();
    text = text === undefined ? line : `${text}${wraps[index] === true ? '' : '\n'}${line}`;
  }
  return text;
}
