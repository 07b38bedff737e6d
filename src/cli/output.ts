/**
 * The only module of `src/cli` that writes to stdout and stderr. Text from recorders, stores, tailscaled and
 * kubeconfigs is untrusted. Without filtering, such text could move the cursor, set the clipboard, or imitate other
 * lines.
 */
import type { Writable } from 'node:stream';
import type { CommandContext } from '../config/command-context.ts';
import { safeLine, safeLines, UNSAFE_CHARACTERS } from '../safe-text.ts';
import { cellWidth } from '../terminal/cell-width.ts';

/**
 * Writes text. Line feeds and tabs are kept; other control characters are replaced by `�`. Pass each field of a record
 * through {@link plain} first, so that a field cannot start a new line.
 */
export function print(stream: Writable, text: string): Promise<void> {
  return printRaw(stream, safeLines(text));
}

/**
 * Writes one JSON value and a line feed. Control characters are written as JSON escapes, which does not change the
 * value.
 */
export function printJson(stream: Writable, value: unknown, indent?: number): Promise<void> {
  const json = JSON.stringify(value, undefined, indent) ?? 'null';
  return printRaw(
    stream,
    `${json.replaceAll(UNSAFE_CHARACTERS, (found) => (found === '\n' ? found : escaped(found)))}\n`,
  );
}

function escaped(text: string): string {
  return Array.from(
    { length: text.length },
    (_, at) => `\\u${text.charCodeAt(at).toString(16).padStart(4, '0')}`,
  ).join('');
}

/** Replaces the last line of a terminal, for example to show progress. */
export function printOver(stream: Writable, text: string): Promise<void> {
  return printRaw(stream, `\r${plain(text)}\x1b[K`);
}

/**
 * Writes bytes unchanged: exported data, or control sequences that passed `createTerminalFilter`. Waits until a slow
 * reader has read them. A reader that closes the pipe (`| head`) is not an error.
 */
export async function printRaw(stream: Writable, data: string | Uint8Array): Promise<void> {
  if (stream.write(data) || stream.destroyed) return;
  await new Promise<void>((resolve) => {
    stream.once('drain', resolve);
    stream.once('close', resolve);
  });
}

export interface Table {
  readonly header: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** Returns the SGR code for the colour of a cell, for example 31, or undefined. Default: no colours. */
  readonly colour?: ((cell: string, column: number) => number | undefined) | undefined;
  /**
   * Width of the terminal, in columns. If the table is wider, the last column is truncated first, down to 30 % of the
   * width. Then the widest other columns are truncated down to their minimum. If the table is still too wide, the last
   * column is truncated further. Default: no limit.
   */
  readonly width?: number | undefined;
  /** Indexes of the columns that may be truncated. */
  readonly cut?: ReadonlySet<number>;
}

/**
 * Writes columns as wide as their widest cell, separated by two spaces. The last column is not padded. Cells may
 * contain any text.
 */
export function printTable(stream: Writable, table: Table): Promise<void> {
  return printRaw(stream, formatTable(table));
}

/** Writes a table through a pager if the output is a terminal and a pager is configured. */
export async function printPagedTable({ stdout, page }: CommandContext, table: Table): Promise<void> {
  const text = formatTable(table);
  if (stdout.isTTY !== true || page === undefined || !(await page(text))) await printRaw(stdout, text);
}

function formatTable({ header, rows, colour, width, cut = new Set() }: Table): string {
  const clean = [header, ...rows].map((row) => row.map(plain));
  const widths = header.map((_, column) => Math.max(...clean.map((row) => textWidth(row[column] ?? ''))));
  if (width !== undefined) shrink(widths, width, cut);
  const lines = clean.map((row) => row.map((cell, column) => cutText(cell, widths[column] ?? 0)));
  const format = (row: readonly string[], at: number): string => {
    const isHeader = at === 0;
    const last = row.findLastIndex((cell) => cell !== '');
    const cells = row.slice(0, last + 1).map((cell, column) => {
      const gap = column === last ? 0 : (widths[column] ?? 0) - textWidth(cell);
      const sgr = isHeader ? undefined : colour?.(clean[at]?.[column] ?? '', column);
      return `${sgr === undefined ? cell : `\x1b[${sgr}m${cell}\x1b[0m`}${' '.repeat(gap)}`;
    });
    return `${cells.join('  ')}\n`;
  };
  return lines.map(format).join('');
}

/** Minimum width of a truncated column. */
const LEAST_WIDTH = 6;
/** Share of the terminal's width that the last column keeps while other columns can be truncated. */
const LAST_SHARE = 0.3;

/**
 * Reduces the widths of the columns in `cut` until the table fits: first the width of the last column, down to
 * {@link LAST_SHARE}; then, in each step, the width of the widest other column.
 */
function shrink(widths: number[], width: number, cut: ReadonlySet<number>): void {
  const gaps = 2 * (widths.length - 1);
  const last = widths.length - 1;
  for (let over = widths.reduce((sum, each) => sum + each, gaps) - width; over > 0; over -= 1) {
    const candidates = widths
      .map((each, column) => ({ each, column }))
      .filter(({ each, column }) => cut.has(column) && each > LEAST_WIDTH)
      .toSorted((left, right) => right.each - left.each);
    const others = candidates.filter(({ column }) => column !== last);
    const isLong = cut.has(last) && (widths[last] ?? 0) > width * LAST_SHARE;
    const widest = isLong ? candidates.find(({ column }) => column === last) : (others[0] ?? candidates[0]);
    if (widest === undefined) return;
    widths[widest.column] = widest.each - 1;
  }
}

/** Width of a text in a terminal, in columns. */
function textWidth(text: string): number {
  let width = 0;
  for (const character of text) width += cellWidth(character.codePointAt(0) ?? 0);
  return width;
}

/** Truncates a text to `columns`. The last character of a truncated text is `…`. */
function cutText(text: string, columns: number): string {
  if (textWidth(text) <= columns) return text;
  let shown = '';
  let width = 1;
  for (const character of text) {
    width += cellWidth(character.codePointAt(0) ?? 0);
    if (width > columns) break;
    shown += character;
  }
  return `${shown}…`;
}

/** `95.2` → `1m35s`: the largest unit and the next smaller unit. */
export function formatDuration(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${whole % 60}s`;
  return `${Math.floor(whole / 3600)}h${Math.floor((whole % 3600) / 60)}m`;
}

/** `12m ago` for a time in the last 30 days, otherwise the date. @param text RFC 3339 */
export function formatAge(text: string, nowMs: number): string {
  const seconds = Math.floor((nowMs - Date.parse(text)) / 1000);
  if (!(seconds >= 0) || seconds >= 30 * 86_400) return text.slice(0, 10);
  if (seconds < 60) return 'now';
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h ago`;
  return `${Math.floor(seconds / 86_400)}d ago`;
}

/** `1536` → `1.5 KiB`. */
export function formatBytes(bytes: number): string {
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  const unit = bytes < 1024 ? 0 : Math.min(units.length - 1, Math.floor(Math.log2(bytes) / 10));
  return `${unit === 0 ? bytes : (bytes / 1024 ** unit).toFixed(1)} ${units[unit] ?? ''}`;
}

/** Returns text as one line, without invisible characters and without characters that control a terminal. */
export function plain(text: string): string {
  return safeLine(text);
}
