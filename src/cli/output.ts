/**
 * The only module of `src/cli` that writes to stdout and stderr. Text from recorders, stores, tailscaled and kubeconfigs is
 * data: written as it is, it could move the cursor, set the clipboard, or show another line than it is.
 */
import type { Writable } from 'node:stream';
import type { CommandContext } from '../config/command-context.ts';
import { safeLine, safeLines, UNSAFE_CHARACTERS } from '../safe-text.ts';
import { cellWidth } from '../terminal/cell-width.ts';

/**
 * Writes text, of which only line feeds and tabs control the terminal; every other control becomes `�`.
 * A field of a record goes through {@link plain} first, so that it cannot begin a line.
 */
export function print(stream: Writable, text: string): Promise<void> {
  return write(stream, safeLines(text));
}

/** Writes one JSON value and a line feed. What a terminal would obey is escaped, so that the value stays the same. */
export function printJson(stream: Writable, value: unknown, indent?: number): Promise<void> {
  const json = JSON.stringify(value, undefined, indent) ?? 'null';
  return write(
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

/** Writes text over the last line of a terminal, e.g. progress. */
export function printOver(stream: Writable, text: string): Promise<void> {
  return write(stream, `\r${plain(text)}\x1b[K`);
}

/** Writes bytes, or control sequences that `createTerminalFilter` let through, as they are. */
export function printRaw(stream: Writable, data: string | Uint8Array): Promise<void> {
  return write(stream, data);
}

/** Writes and waits for the reader when it is slow; a reader that went away (`| head`) is not an error. */
async function write(stream: Writable, data: string | Uint8Array): Promise<void> {
  if (stream.write(data) || stream.destroyed) return;
  await new Promise<void>((resolve) => {
    stream.once('drain', resolve);
    stream.once('close', resolve);
  });
}

export interface Table {
  readonly header: readonly string[];
  readonly rows: readonly (readonly string[])[];
  /** The SGR colour of a cell, e.g. 31; undefined: none. Default: no colours. */
  readonly colour?: ((cell: string, column: number) => number | undefined) | undefined;
  /** Columns of the terminal; the widest cells are cut until the table fits. Default: nothing is cut. */
  readonly width?: number | undefined;
  /** Columns of the table that may be cut, by number. */
  readonly cut?: ReadonlySet<number>;
}

/** Writes columns as wide as their widest cell, two spaces apart; the last column is not padded. Cells may hold any text. */
export function printTable(stream: Writable, table: Table): Promise<void> {
  return write(stream, formatTable(table));
}

/** Writes a table through the pager of a person at a terminal, if there is one. */
export async function printPagedTable({ stdout, page }: CommandContext, table: Table): Promise<void> {
  const text = formatTable(table);
  if (stdout.isTTY !== true || page === undefined || !(await page(text))) await write(stdout, text);
}

function formatTable({ header, rows, colour, width, cut = new Set() }: Table): string {
  const clean = [header, ...rows].map((row) => row.map(plain));
  const widths = header.map((_, column) => Math.max(...clean.map((row) => textWidth(row[column] ?? ''))));
  if (width !== undefined) shrink(widths, width, cut);
  const lines = clean.map((row) => row.map((cell, column) => cutText(cell, widths[column] ?? 0)));
  const format = (row: readonly string[], isHeader: boolean): string => {
    const last = row.findLastIndex((cell) => cell !== '');
    const cells = row.slice(0, last + 1).map((cell, column) => {
      const gap = column === last ? 0 : (widths[column] ?? 0) - textWidth(cell);
      const sgr = isHeader ? undefined : colour?.(cell, column);
      return `${sgr === undefined ? cell : `\x1b[${sgr}m${cell}\x1b[0m`}${' '.repeat(gap)}`;
    });
    return `${cells.join('  ')}\n`;
  };
  return lines.map((row, at) => format(row, at === 0)).join('');
}

/** A column is not cut below this width. */
const LEAST_WIDTH = 6;

/** Makes the widest of the columns that may be cut narrower until all of them fit. */
function shrink(widths: number[], width: number, cut: ReadonlySet<number>): void {
  const gaps = 2 * (widths.length - 1);
  for (let over = widths.reduce((sum, each) => sum + each, gaps) - width; over > 0; over -= 1) {
    const widest = widths
      .map((each, column) => ({ each, column }))
      .filter(({ each, column }) => cut.has(column) && each > LEAST_WIDTH)
      .toSorted((left, right) => right.each - left.each)[0];
    if (widest === undefined) return;
    widths[widest.column] = widest.each - 1;
  }
}

/** Columns that a text takes in a terminal. */
function textWidth(text: string): number {
  let width = 0;
  for (const character of text) width += cellWidth(character.codePointAt(0) ?? 0);
  return width;
}

/** The text, cut at `columns` with `…` as its last character when it is wider. */
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

/** `95.2` → `1m35s`; one unit below the largest. */
export function formatDuration(seconds: number): string {
  if (seconds < 10) return `${seconds.toFixed(1)}s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m${whole % 60}s`;
  return `${Math.floor(whole / 3600)}h${Math.floor((whole % 3600) / 60)}m`;
}

/** `12m ago` for a time of the last 30 days, else the date. @param text RFC 3339 */
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

/** One line of text without anything that a terminal obeys or hides. */
export function plain(text: string): string {
  return safeLine(text);
}
