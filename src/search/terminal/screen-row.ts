/** One row of a screen: its characters, and the positions of characters that are not emitted yet. */

import { MAX_SIZE } from '../../terminal/size.ts';

/** Added to the index of a cluster (a base character with its combining marks), to distinguish it from code points. */
const CLUSTER = 0x80000000;
const SPACE = 0x20;
/** Maximum length of a source text (`#source`), as a multiple of the length of the row that references this text. */
const MAX_KEPT = 16;
/**
 * Time in seconds after which text counts as seen. A row that contains seen text is emitted even if it loses only a
 * part of its text.
 */
const SEEN_SECONDS = 0.1;
/** Maximum length of a cluster, in UTF-16 code units. */
const MAX_CLUSTER = 32;

interface Cells {
  readonly characters: Uint32Array;
  readonly widths: Uint8Array;
}

function createCells(count: number): Cells {
  return { characters: new Uint32Array(count), widths: new Uint8Array(count).fill(1) };
}

/** Creates empty rows in one block of memory. Separate allocations would be slow for many short sessions. */
export function createRows(count: number, columns: number): ScreenRow[] {
  const { characters, widths } = createCells(count * columns);
  return Array.from({ length: count }, (_, y) => {
    const [from, to] = [y * columns, (y + 1) * columns];
    return new ScreenRow(columns, {
      characters: characters.subarray(from, to),
      widths: widths.subarray(from, to),
    });
  });
}

export class ScreenRow {
  readonly columns: number;
  /** Code points, or indexes of clusters; 0 for an empty cell. */
  readonly #characters: Uint32Array;
  /** Width of each cell: 2 for the first half of a wide character, 0 for its second half, and 1 otherwise. */
  readonly #widths: Uint8Array;
  #clusters: string[] = [];
  /**
   * Text from which all cells of the row were written in one step, and the row's position in this text. Most rows have
   * such a text.
   */
  #source = '';
  #sourceStart = 0;
  /** Index after the last non-empty cell. */
  #end = 0;
  /** True if the row continues the row above. */
  wrapped = false;
  /** Cells that changed since the row was last emitted: `[from, to)`. */
  #freshFrom = 0;
  #freshTo = 0;
  /** Times of the first and the last change since the row was blank, in seconds. */
  firstAt = 0;
  changedAt = 0;
  /** Number of changes. */
  changes = 0;
  /** Serial number of the content. The number changes each time the row is cleared for reuse. */
  serial = 0;

  /** @param cells empty cells, one per column */
  constructor(columns: number, cells: Cells = createCells(columns)) {
    this.columns = columns;
    this.#characters = cells.characters;
    this.#widths = cells.widths;
  }

  get isFresh(): boolean {
    return this.#freshTo > this.#freshFrom;
  }

  /** True if the row contains text that was visible but not emitted. */
  isSeen(seconds: number): boolean {
    return this.isFresh && seconds - this.changedAt >= SEEN_SECONDS;
  }

  /** First cell that was not emitted. */
  get freshFrom(): number {
    return this.#freshFrom;
  }

  /** Index after the last cell that was not emitted. */
  get freshTo(): number {
    return this.#freshTo;
  }

  /** Index after the last non-empty cell. */
  get end(): number {
    return this.#end;
  }

  /** Marks the row as emitted. */
  settle(): void {
    this.#freshFrom = 0;
    this.#freshTo = 0;
  }

  /** Clears the row and sets a new serial number. */
  clear(serial: number): void {
    if (this.#end > 0) {
      this.#characters.fill(0, 0, this.#end);
      this.#widths.fill(1, 0, this.#end);
      this.#end = 0;
    }
    if (this.#clusters.length > 0) this.#clusters = [];
    this.#source = '';
    this.wrapped = false;
    this.serial = serial;
    this.settle();
  }

  width(column: number): number {
    return this.#widths[column] ?? 1;
  }

  isBlank(column: number): boolean {
    const character = this.#characters[column] ?? 0;
    return character === 0 || character === SPACE;
  }

  isEmpty(column: number): boolean {
    return (this.#characters[column] ?? 0) === 0;
  }

  /** Returns true if writing `code` changes the cell. */
  differs(column: number, code: number, width: number): boolean {
    return this.#characters[column] !== code || this.#widths[column] !== width;
  }

  /** Returns true if cells `[from, to)` contain a character that was not emitted. */
  hasFresh(from: number, to: number): boolean {
    const last = Math.min(to, this.#freshTo);
    for (let column = Math.max(this.#beginOf(from), this.#freshFrom); column < last; column += 1)
      if (!this.isBlank(column)) return true;
    return false;
  }

  hasText(from: number, to: number): boolean {
    const last = Math.min(to, this.#end);
    for (let column = this.#beginOf(from); column < last; column += 1) if (!this.isBlank(column)) return true;
    return false;
  }

  /** Returns the first cell of the character in a cell, because a wide character is lost with its second half. */
  #beginOf(column: number): number {
    return column > 0 && this.width(column - 1) === 2 ? column - 1 : column;
  }

  set(column: number, code: number, width: number, seconds: number): void {
    if (column >= this.columns) return;
    this.#characters[column] = code;
    this.#widths[column] = width;
    this.#changed(column, column + 1, seconds);
  }

  /** Fills the row with one character. */
  fill(code: number, seconds: number): void {
    this.#characters.fill(code);
    this.#widths.fill(1);
    this.#changed(0, this.columns, seconds);
  }

  /**
   * Writes characters `[start, end)` of a text into cells, starting at `column`, like {@link set}. Stops at the end of
   * the row, at a character that is not {@link isPlain}, and at a cell whose character was not emitted.
   *
   * @returns number of written characters
   */
  write(column: number, text: string, start: number, end: number, seconds: number): number {
    const characters = this.#characters;
    const widths = this.#widths;
    const last = Math.min(end - start, this.columns - column);
    const { isFresh } = this;
    const isWhole = column === 0 && this.#end === 0;
    let first = -1;
    let after = 0;
    let count = 0;
    for (; count < last; count += 1) {
      const code = text.charCodeAt(start + count);
      if (!isPlain(code)) break;
      const at = column + count;
      const before = characters[at] ?? 0;
      if (before === code && widths[at] === 1) continue;
      if (isFresh && before !== 0 && before !== SPACE) break;
      characters[at] = code;
      widths[at] = 1;
      if (first < 0) first = at;
      after = at + 1;
    }
    if (first < 0) return count;
    this.#changed(first, after, seconds);
    // NOTE: skip a long source text, because even a short substring would keep the complete text in memory.
    if (isWhole && text.length <= count * MAX_KEPT) {
      this.#source = text;
      this.#sourceStart = start;
    }
    return count;
  }

  /** Marks cells `[from, to)` as changed. */
  #changed(from: number, to: number, seconds: number): void {
    this.changes += 1;
    this.#source = '';
    if (this.#end === 0) this.firstAt = seconds;
    if (to > this.#end) this.#end = to;
    this.changedAt = seconds;
    if (this.#freshTo === this.#freshFrom) {
      this.#freshFrom = from;
      this.#freshTo = to;
      return;
    }
    if (from < this.#freshFrom) this.#freshFrom = from;
    if (to > this.#freshTo) this.#freshTo = to;
  }

  /** Empties cells `[from, to)`, and wide characters that are only half inside this range. */
  erase(from: number, to: number): void {
    const last = Math.min(to, this.columns);
    if (from > 0 && this.width(from - 1) === 2) this.#empty(from - 1);
    if (last < this.columns && this.width(last - 1) === 2) this.#empty(last);
    if (from >= this.#end) return;
    this.#source = '';
    this.#characters.fill(0, from, last);
    this.#widths.fill(1, from, last);
    if (last >= this.#end) this.#end = from;
  }

  /** Inserts `count` empty cells at `column`. Cells that leave the row on the right are lost. */
  insert(column: number, count: number, seconds: number): void {
    const at = column % this.columns;
    if (at > 0 && this.width(at - 1) === 2) this.#empty(at - 1);
    const moved = Math.min(count, this.columns - at);
    this.#characters.copyWithin(at + moved, at, this.columns - moved);
    this.#widths.copyWithin(at + moved, at, this.columns - moved);
    this.#characters.fill(0, at, at + moved);
    this.#widths.fill(1, at, at + moved);
    if (this.width(this.columns - 1) === 2) this.#empty(this.columns - 1);
    this.#moved(at, seconds);
  }

  /** Deletes `count` cells at `column`. */
  delete(column: number, count: number, seconds: number): void {
    const at = column % this.columns;
    const moved = Math.min(count, this.columns - at);
    this.#characters.copyWithin(at, at + moved);
    this.#widths.copyWithin(at, at + moved);
    this.#characters.fill(0, this.columns - moved);
    this.#widths.fill(1, this.columns - moved);
    if (at > 0 && this.width(at - 1) === 2) this.#empty(at - 1);
    if (this.width(at) === 0 && this.isEmpty(at)) this.#empty(at);
    this.#moved(at, seconds);
  }

  /** Adds a combining mark to the character in a cell. */
  join(column: number, text: string, seconds: number): void {
    const joined = this.characterAt(column) + text;
    if (joined.length > MAX_CLUSTER) return;
    this.#clusters.push(joined);
    this.set(column, CLUSTER + this.#clusters.length - 1, this.width(column), seconds);
  }

  /** Returns the character of a cell with its combining marks; empty for an empty cell. */
  characterAt(column: number): string {
    return this.isEmpty(column) ? '' : this.#text(column);
  }

  /** Copies the cells of another row, up to the width of this row. */
  copyFrom(other: ScreenRow): void {
    const columns = Math.min(this.columns, other.columns);
    this.#characters.set(other.#characters.subarray(0, columns));
    this.#widths.set(other.#widths.subarray(0, columns));
    this.#clusters = other.#clusters;
    this.#source = '';
    this.#end = Math.min(other.#end, columns);
    this.wrapped = other.wrapped;
    this.serial = other.serial;
    this.firstAt = other.firstAt;
    this.changedAt = other.changedAt;
    if (this.width(columns - 1) === 2) this.#empty(columns - 1);
  }

  /** Empties one cell. */
  blank(column: number): void {
    this.#empty(column);
  }

  /** Returns the text of cells `[from, end)`, with spaces for empty cells. */
  text(from: number, end: number): string {
    if (this.#source !== '' && end <= this.#end)
      return this.#source.slice(this.#sourceStart + from, this.#sourceStart + end);
    const characters = this.#characters;
    const widths = this.#widths;
    const length = Math.min(end, this.columns) - from;
    let all = 0;
    let column = from;
    for (; column < from + length; column += 1) {
      const character = characters[column] ?? 0;
      if (character > 0xffff || widths[column] !== 1) break;
      all |= character;
      units[column - from] = character === 0 ? SPACE : character;
    }
    if (column === from + length) return decodeUnits(length, all <= 0x7f);
    let text = '';
    for (column = from; column < end; column += this.width(column) || 1) text += this.#text(column);
    return text;
  }

  #text(column: number): string {
    const character = this.#characters[column] ?? 0;
    if (character >= CLUSTER) return this.#clusters[character - CLUSTER] ?? '';
    return character === 0 ? ' ' : String.fromCodePoint(character);
  }

  #empty(column: number): void {
    this.#source = '';
    this.#characters[column] = 0;
    this.#widths[column] = 1;
  }

  #moved(from: number, seconds: number): void {
    this.#source = '';
    this.#end = this.columns;
    while (this.#end > 0 && this.isEmpty(this.#end - 1)) this.#end -= 1;
    this.changedAt = seconds;
    this.#freshFrom = this.isFresh ? Math.min(from, this.#freshFrom) : from;
    this.#freshTo = Math.max(this.#end, this.#freshFrom);
  }
}

/** Buffer for the widest row. */
const units = new Uint16Array(MAX_SIZE.columns);
const bytes = new Uint8Array(MAX_SIZE.columns);
const decoder = new TextDecoder('utf-16le', { ignoreBOM: true });
const asciiDecoder = new TextDecoder('utf-8', { ignoreBOM: true });

/** Decodes `units`. ASCII is decoded to a string with one byte per character, which needs half as much memory. */
function decodeUnits(length: number, isAscii: boolean): string {
  if (length <= 0) return '';
  if (!isAscii) return decoder.decode(units.subarray(0, length));
  for (let index = 0; index < length; index += 1) bytes[index] = units[index] ?? SPACE;
  return asciiDecoder.decode(bytes.subarray(0, length));
}

/** Returns true for a character that always occupies exactly one cell and joins no other character. */
function isPlain(code: number): boolean {
  return code < 0x300 && code !== 0x7f;
}
