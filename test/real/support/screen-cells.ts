/** Compares the page cell by cell with the expected screen, using the layout and paint of the browser. */
import xterm, { type IBufferCell } from '@xterm/headless';
import type { Page } from 'playwright-core';
import { CLUSTER_WIDTHS } from '../../../src/screen/cluster-widths.ts';
import { resizeWithoutWrapping } from '../../support/terminal-oracle.ts';
import type { CastSpec } from './casts.ts';

/** Each cell as text: the character, and all attributes that differ from plain text. */
export type Cells = readonly (readonly string[])[];

export interface ShownScreen {
  readonly size: string;
  readonly cells: Cells;
  /** Cells that are shifted from their column by more than a tenth of a cell. */
  readonly misplaced: readonly string[];
}

/** A function that runs in the browser. Its argument is the selector of an element. */
const READ = `((selector) => {
  const terminal = document.querySelector(selector);
  if (terminal === null) return undefined;
  const style = getComputedStyle(terminal);
  const cell = parseFloat(style.getPropertyValue('--cell'));
  const [columns] = (terminal.dataset.size ?? '0x0').split('x').map(Number);
  const ink = style.color, paper = style.backgroundColor;
  const misplaced = [];
  const cells = [...terminal.querySelectorAll('.row')].map((row, number) => {
    const left = row.getBoundingClientRect().left;
    const found = new Array(columns).fill(' ');
    for (const span of row.children) {
      const box = span.getBoundingClientRect();
      const at = (box.left - left) / cell;
      const column = Math.round(at);
      const width = Math.round(box.width / cell);
      if (Math.abs(at - column) > 0.1) misplaced.push(number + ':' + at + ' ' + span.textContent);
      const look = getComputedStyle(span);
      const marks = [
        look.color === ink ? '' : 'ink ' + look.color,
        look.backgroundColor === 'rgba(0, 0, 0, 0)' || look.backgroundColor === paper ? '' : 'paper ' + look.backgroundColor,
        Number(look.fontWeight) >= 600 ? 'bold' : '',
        look.fontStyle === 'italic' ? 'italic' : '',
        look.visibility === 'hidden' ? 'hidden' : '',
        look.opacity === '1' ? '' : 'dim',
        look.textDecorationLine === 'none' ? '' : look.textDecorationLine,
      ].filter(Boolean).join(', ');
      const letters = [...span.textContent];
      const plain = letters.length === width && width > 0 && !letters.some((letter) => letter.codePointAt(0) >= 0x250);
      if (plain && width > 1) {
        const range = document.createRange();
        range.selectNodeContents(span);
        const real = range.getBoundingClientRect().width;
        if (Math.abs(real - width * cell) > cell / 10) misplaced.push(number + ':' + column + ' is ' + real + ' wide: ' + span.textContent);
      }
      const add = (where, text) => { found[where] = text + (marks === '' ? '' : ' [' + marks + ']'); };
      if (plain) letters.forEach((letter, offset) => add(column + offset, letter));
      else {
        add(column, span.textContent);
        for (let rest = 1; rest < width; rest += 1) found[column + rest] = '';
      }
    }
    return found;
  });
  return { size: terminal.dataset.size ?? '', cells, misplaced };
})`;

export async function readShown(page: Page, selector = '.terminal'): Promise<ShownScreen | undefined> {
  return page.evaluate<ShownScreen | undefined>(`${READ}(${JSON.stringify(selector)})`);
}

/** Returns the colours of the page's theme, in the browser's format. */
async function themeOf(
  page: Page,
): Promise<{ readonly ink: string; readonly paper: string; readonly palette: readonly string[] }> {
  return page.evaluate(`(() => {
    const terminal = document.querySelector('.terminal');
    const probe = document.createElement('b');
    terminal.append(probe);
    const named = (value) => { probe.style.color = value; return getComputedStyle(probe).color; };
    const theme = {
      ink: named('var(--terminal-ink)'),
      paper: named('var(--terminal-paper)'),
      palette: Array.from({ length: 16 }, (_, n) => named('var(--terminal-' + n + ')')),
    };
    probe.remove();
    return theme;
  })()`);
}

/**
 * Returns the screen of the oracle after all events up to `seconds`. Characters have the widths of the page, because
 * the widths depend on the version of Unicode. Links are plain text, because the page renders no links.
 */
export async function oracleAt(
  spec: CastSpec,
  seconds: number,
): Promise<InstanceType<typeof xterm.Terminal>> {
  const oracle = new xterm.Terminal({
    cols: spec.columns,
    rows: spec.rows,
    scrollback: 0,
    allowProposedApi: true,
  });
  oracle.unicode.register(CLUSTER_WIDTHS);
  oracle.unicode.activeVersion = CLUSTER_WIDTHS.version;
  oracle.parser.registerOscHandler(8, () => true);
  for (const [at, code, data] of spec.events) {
    if (at > seconds) break;
    if (code === 'o') await new Promise<void>((resolve) => oracle.write(data, resolve));
    const [columns = 80, rows = 24] = data.split('x').map(Number);
    if (code === 'r') resizeWithoutWrapping(oracle, columns, rows);
  }
  return oracle;
}

/** Returns the cells that the page must show for the screen of `oracle`. */
export async function expectedScreen(
  page: Page,
  oracle: InstanceType<typeof xterm.Terminal>,
): Promise<ShownScreen> {
  const theme = await themeOf(page);
  const { active } = oracle.buffer;
  const hidden = (oracle as unknown as { _core: { coreService: { isCursorHidden: boolean } } })._core
    .coreService.isCursorHidden;
  const cells = Array.from({ length: oracle.rows }, (_, row) => {
    const line = active.getLine(active.baseY + row)!;
    return Array.from({ length: oracle.cols }, (__, column) => {
      const cell = line.getCell(column)!;
      // a combining mark without a letter occupies a column, and is invisible
      if (cell.getWidth() === 0) return column > 0 && line.getCell(column - 1)!.getWidth() === 2 ? '' : ' ';
      const cursorColumn = Math.min(active.cursorX, oracle.cols - 1);
      const covers = cursorColumn >= column && cursorColumn < column + cell.getWidth();
      return describe(cell, !hidden && active.cursorY === row && covers, theme);
    });
  });
  return { size: `${oracle.cols}x${oracle.rows}`, cells, misplaced: [] };
}

function colour(
  palette: readonly string[],
  isDefault: boolean,
  isRgb: boolean,
  value: number,
): string | undefined {
  if (isDefault) return undefined;
  if (isRgb) return `rgb(${value >> 16}, ${(value >> 8) & 255}, ${value & 255})`;
  if (value < 16) return palette[value];
  if (value >= 232)
    return `rgb(${[8 + (value - 232) * 10, 8 + (value - 232) * 10, 8 + (value - 232) * 10].join(', ')})`;
  const levels = [0, 95, 135, 175, 215, 255];
  const cube = value - 16;
  return `rgb(${levels[Math.floor(cube / 36)]}, ${levels[Math.floor(cube / 6) % 6]}, ${levels[cube % 6]})`;
}

function named(all: readonly (readonly [name: string, set: number])[]): readonly string[] {
  return all.filter(([, set]) => set !== 0).map(([name]) => name);
}

function describe(
  cell: IBufferCell,
  isCursor: boolean,
  theme: { readonly ink: string; readonly paper: string; readonly palette: readonly string[] },
): string {
  const front = colour(theme.palette, cell.isFgDefault(), cell.isFgRGB(), cell.getFgColor()) ?? theme.ink;
  const back = colour(theme.palette, cell.isBgDefault(), cell.isBgRGB(), cell.getBgColor()) ?? theme.paper;
  const inverse = (cell.isInverse() !== 0) !== isCursor;
  const [ink, paper] = inverse ? [back, front] : [front, back];
  const lines = named([
    ['underline', cell.isUnderline()],
    ['overline', cell.isOverline()],
    ['line-through', cell.isStrikethrough()],
  ]);
  const text = cell.getChars() === '' ? ' ' : cell.getChars();
  const isPlainBlank = text === ' ' && !inverse && paper === theme.paper && lines.length === 0;
  if (isPlainBlank) return ' ';
  const marks = [
    ...(ink === theme.ink ? [] : [`ink ${ink}`]),
    ...(paper === theme.paper ? [] : [`paper ${paper}`]),
    ...named([
      ['bold', cell.isBold()],
      ['italic', cell.isItalic()],
      ['hidden', cell.isInvisible()],
      ['dim', cell.isDim()],
    ]),
    ...(lines.length === 0 ? [] : [lines.join(' ')]),
  ];
  return text + (marks.length === 0 ? '' : ` [${marks.join(', ')}]`);
}

/** Describes the first differences of two screens. */
export function differences(shown: ShownScreen | undefined, wanted: ShownScreen): readonly string[] {
  if (shown === undefined) return ['there is no screen'];
  if (shown.size !== wanted.size) return [`size ${shown.size} instead of ${wanted.size}`];
  const found = [...shown.misplaced];
  for (const [row, cells] of wanted.cells.entries()) {
    for (const [column, cell] of cells.entries()) {
      const is = blankless(shown.cells[row]?.[column]);
      if (is !== blankless(cell))
        found.push(`${row}:${column} ${JSON.stringify(is)} instead of ${JSON.stringify(blankless(cell))}`);
    }
  }
  return found.slice(0, 10);
}

/** Removes the attributes that do not change how a blank looks. */
function blankless(cell = ' '): string {
  if (!cell.startsWith(' ')) return cell;
  return cell.replace(/ \[(.*)\]$/, (_, marks: string) => {
    const seen = marks
      .split(/, (?=[a-z])/)
      .filter((mark) => /^(?:paper|underline|overline|line-through)/.test(mark));
    return seen.length === 0 ? '' : ` [${seen.join(', ')}]`;
  });
}
