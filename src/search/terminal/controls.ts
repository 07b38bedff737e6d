/** Effects of control sequences and escapes on a screen. This module omits sequences without an effect on text. */
import type { Rendition, Screen } from './screen.ts';

/** State that control sequences change. */
export interface Controlled {
  readonly screen: Screen;
  readonly written: { draw(seconds: number, row: number, text: string): void };
  readonly rendition: Rendition;
  /** Restores the charset and the colours; undefined restores the default. */
  restore(rendition: Rendition | undefined): void;
  designate(level: number, charset: ReadonlyMap<number, number> | undefined): void;
  shift(level: number): void;
  resetCharsets(): void;
}

type Sequence = (terminal: Controlled, parameters: readonly number[]) => void;

/** Returns a parameter with the default 1; the value 0 also means 1. */
export function parameter(parameters: readonly number[], index: number): number {
  return Math.max(1, parameters[index] ?? 1);
}

/** DEC line drawing and symbols. */
const LINE_DRAWING: ReadonlyMap<number, number> = new Map(
  Array.from('◆▒␉␌␍␊°±␤␋┘┐┌└┼⎺⎻─⎼⎽├┤┴┬│≤≥π≠£·', (symbol, index) => [
    0x60 + index,
    symbol.codePointAt(0) ?? 0,
  ]),
);
const BRITISH: ReadonlyMap<number, number> = new Map([[0x23, 0xa3]]);

/** Returns whether the screen shows characters in a charset as written, as other characters, or not at all. */
export function howShown(
  charset: ReadonlyMap<number, number> | undefined,
  text: string,
  start: number,
  end: number,
): 'plain' | 'altered' | 'invisible' {
  if (charset === undefined) return 'plain';
  // A drawing consists of lines and corners. It contains no control symbol (`b` to `e`, `h`, `i`), and of three
  // consecutive letters, one is a shade or a straight line (`a`, `q`, `x`).
  const isDrawing = charset !== LINE_DRAWING || !/[b-ehi]|[fgj-pr-wyz]{3}/.test(text.slice(start, end));
  return isDrawing ? 'altered' : 'invisible';
}

const count: (act: (screen: Screen, count: number) => void) => Sequence = (act) => (terminal, parameters) =>
  act(terminal.screen, parameter(parameters, 0));

const toColumn = count((screen, column) => screen.place(column - 1, screen.y));
const moveRight = count((screen, columns) => screen.moveBy(columns, 0));
const toPosition: Sequence = ({ screen }, parameters) =>
  screen.place(parameter(parameters, 1) - 1, parameter(parameters, 0) - 1);
const eraseDisplay: Sequence = ({ screen }, parameters) => screen.eraseInDisplay(parameters[0] ?? 0);

const eraseLine: Sequence = ({ screen }, parameters) => {
  screen.restrict(screen.columns);
  const { x, y, columns } = screen;
  const how = parameters[0] ?? 0;
  if (how === 0) screen.eraseInLine(y, x, columns, x === 0);
  else if (how === 1) screen.eraseInLine(y, 0, x + 1, false);
  else if (how === 2) screen.eraseInLine(y, 0, columns, true);
};

function setMode(isOn: boolean): Sequence {
  return ({ screen }, parameters) => {
    for (const mode of parameters) {
      if (mode === 4) screen.insertMode = isOn;
      else if (mode === 20) screen.newLineMode = isOn;
    }
  };
}

function setPrivateMode(isOn: boolean): Sequence {
  return (terminal, parameters) => {
    for (const mode of parameters) PRIVATE_MODES.get(mode)?.(terminal, isOn);
  };
}

const PRIVATE_MODES: ReadonlyMap<number, (terminal: Controlled, isOn: boolean) => void> = new Map([
  [
    2,
    (terminal, isOn) => {
      if (isOn) for (let level = 0; level < 4; level += 1) terminal.designate(level, undefined);
    },
  ],
  [
    6,
    ({ screen }, isOn) => {
      screen.origin = isOn;
      screen.place(0, 0);
    },
  ],
  [
    7,
    ({ screen }, isOn) => {
      screen.wrapAround = isOn;
    },
  ],
  [47, switchScreen],
  [1047, switchScreen],
  [1048, keepCursor],
  [
    1049,
    (terminal, isOn) => {
      if (isOn) keepCursor(terminal, true);
      switchScreen(terminal, isOn);
      if (!isOn) keepCursor(terminal, false);
    },
  ],
]);

function switchScreen({ screen }: Controlled, toAlternate: boolean): void {
  if (toAlternate) screen.showAlternate();
  else screen.showNormal();
}

function keepCursor(terminal: Controlled, save: boolean): void {
  if (save) terminal.screen.save(terminal.rendition);
  else terminal.restore(terminal.screen.restore());
}

/** Maximum number of cells in a copied rectangle that counts as text. */
const MAX_COPIED = 128;

/**
 * DECCRA copies a rectangle of the screen. Neither the player nor the transcript executes it. A program may write a
 * text with small copies, so small copies are read as text. Large copies are ignored, because programs use them to
 * scroll.
 */
const copyRectangle: Sequence = ({ screen, written }, parameters) => {
  const last = (index: number, most: number): number => Math.min(parameters[index] ?? most, most) || most;
  const top = parameter(parameters, 0);
  const left = parameter(parameters, 1);
  const bottom = last(2, screen.rows);
  const right = last(3, screen.columns);
  if (bottom < top || right < left || (bottom + 1 - top) * (right + 1 - left) > MAX_COPIED) return;
  for (let y = top; y <= bottom; y += 1)
    written.draw(screen.seconds, parameter(parameters, 5) + y - top, screen.row(y - 1).text(left - 1, right));
};

/** Control sequences, keyed by private prefix, intermediates and final byte. */
export const CONTROL_SEQUENCES: ReadonlyMap<string, Sequence> = new Map<string, Sequence>([
  ['@', count((screen, cells) => screen.insertCells(cells))],
  [' @', count((screen, cells) => screen.shiftColumns(0, cells, 'delete'))],
  [' A', count((screen, cells) => screen.shiftColumns(0, cells, 'insert'))],
  ["'}", count((screen, cells) => screen.shiftColumns(screen.x, cells, 'insert'))],
  ["'~", count((screen, cells) => screen.shiftColumns(screen.x, cells, 'delete'))],
  ['A', count((screen, rows) => screen.up(rows))],
  ['B', count((screen, rows) => screen.down(rows))],
  ['C', moveRight],
  ['a', moveRight],
  ['D', count((screen, columns) => screen.moveBy(-columns, 0))],
  [
    'E',
    count((screen, rows) => {
      screen.down(rows);
      screen.x = 0;
    }),
  ],
  [
    'F',
    count((screen, rows) => {
      screen.up(rows);
      screen.x = 0;
    }),
  ],
  ['G', toColumn],
  ['`', toColumn],
  ['H', toPosition],
  ['f', toPosition],
  ['I', count((screen, stops) => screen.tab(stops, 1))],
  ['Z', count((screen, stops) => screen.tab(stops, -1))],
  ['J', eraseDisplay],
  ['?J', eraseDisplay],
  ['K', eraseLine],
  ['?K', eraseLine],
  ['L', count((screen, rows) => screen.insertLines(rows))],
  ['M', count((screen, rows) => screen.deleteLines(rows))],
  ['P', count((screen, cells) => screen.deleteCells(cells))],
  ['S', count((screen, rows) => screen.scrollUp(rows))],
  ['T', count((screen, rows) => screen.scrollDown(rows))],
  ['X', count((screen, cells) => screen.eraseCells(cells))],
  ['d', count((screen, row) => screen.place(screen.x, row - 1))],
  ['e', count((screen, rows) => screen.moveBy(0, rows))],
  [
    'g',
    ({ screen }, [what = 0]) => {
      if (what === 0 || what === 3) screen.clearTab(what === 3);
    },
  ],
  ['$v', copyRectangle],
  ['h', setMode(true)],
  ['l', setMode(false)],
  ['?h', setPrivateMode(true)],
  ['?l', setPrivateMode(false)],
  ['r', ({ screen }, parameters) => screen.setRegion(parameter(parameters, 0), parameters[1] ?? 0)],
  ['s', (terminal) => keepCursor(terminal, true)],
  ['u', (terminal) => keepCursor(terminal, false)],
  [
    '!p',
    (terminal) => {
      terminal.screen.softReset();
      terminal.resetCharsets();
      terminal.restore(undefined);
    },
  ],
]);

const ESCAPE_LIST: [string, (terminal: Controlled) => void][] = [
  ['7', (terminal) => keepCursor(terminal, true)],
  ['8', (terminal) => keepCursor(terminal, false)],
  ['D', ({ screen }) => screen.index()],
  [
    'E',
    ({ screen }) => {
      screen.x = 0;
      screen.index();
    },
  ],
  ['H', ({ screen }) => screen.setTab()],
  ['M', ({ screen }) => screen.reverseIndex()],
  ['n', (terminal) => terminal.shift(2)],
  ['o', (terminal) => terminal.shift(3)],
  ['|', (terminal) => terminal.shift(3)],
  ['}', (terminal) => terminal.shift(2)],
  ['~', (terminal) => terminal.shift(1)],
  ['#8', ({ screen }) => screen.fill(0x45)],
  ...['%@', '%G'].map((name): [string, (terminal: Controlled) => void] => [
    name,
    (terminal) => {
      terminal.shift(0);
      terminal.designate(0, undefined);
    },
  ]),
];
for (const [level, names] of ['(', ')-', '*.', '+'].entries()) {
  for (const name of names) {
    ESCAPE_LIST.push([`${name}0`, (terminal) => terminal.designate(level, LINE_DRAWING)]);
    ESCAPE_LIST.push([`${name}A`, (terminal) => terminal.designate(level, BRITISH)]);
    // Characters of all other charsets are read as ASCII.
    for (const final of 'B1245679<=>CEHKQRYZf`')
      ESCAPE_LIST.push([name + final, (terminal) => terminal.designate(level, undefined)]);
  }
}

/** Escapes, keyed by intermediates and final byte. */
export const ESCAPES: ReadonlyMap<string, (terminal: Controlled) => void> = new Map(ESCAPE_LIST);

const OTHER_SEQUENCES =
  /^(?:[<=>?]?[bchilmnpqrstu]|\??\$[pw]|[!"]p|[ "]q| [tu]|\$[rtuvxz{|}~]|\*[xyz]|#[pqPQ{}])$/;
const OTHER_ESCAPES = /^(?:[=>6-9VWXZNOFlmc\\]|#[3-6]| [FGLMN]|%8)$/;

/** Returns true if normal programs send the control sequence. */
export function isKnownSequence(name: string): boolean {
  return CONTROL_SEQUENCES.has(name) || OTHER_SEQUENCES.test(name);
}

/** Returns true if normal programs send the escape. */
export function isKnownEscape(name: string): boolean {
  return ESCAPES.has(name) || OTHER_ESCAPES.test(name);
}
