/** One row of a screen: its characters, and which of them nobody has written down yet. */

import { MAX_SIZE } from '../../terminal/size.ts';

/** Characters from here on are places in {@link ScreenRow.clusters}: a base with what joins it. */
const CLUSTER = 0x80000000;
const SPACE = 0x20;
/** A text is kept for its row when it is at most so many times as long. */
const MAX_KEPT = 16;
/** Longest cluster in UTF-16 code units: more marks than that on one character say nothing. */
const MAX_CLUSTER = 32;

interface Cells {
  readonly characters: Uint32Array;
  readonly widths: Uint8Array;
}

function createCells(count: number): Cells {
  return { characters: new Uint32Array(count), widths: new Uint8Array(count).fill(1) };
}

/** Empty rows. They are parts of one piece of memory: a session has two screens full of them, and may be over at once. */
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
  /** Code points, or places of clusters; 0 for nothing. */
  readonly #characters: Uint32Array;
  /** 2 before the second half of a wide character, 0 for that half. */
  readonly #widths: Uint8Array;
  #clusters: string[] = [];
  /** The text that all cells that hold anything were written from at once, and where in it: most rows are that. */
  #source = '';
  #sourceStart = 0;
  /** Cells from here on hold nothing. */
  #end = 0;
  /** It goes on from the row above. */
  wrapped = false;
  /** Cells that have changed since the row was last written down: `[from, to)`. */
  #freshFrom = 0;
  #freshTo = 0;
  /** Seconds of the first and of the last change since it was blank. */
  firstAt = 0;
  changedAt = 0;
  /** How often characters were written that were not there before. */
  changes = 0;
  /** Another one each time that it becomes a new row. */
  serial = 0;

  /** `cells`: arrays of as many cells, all of them nothing. */
  constructor(columns: number, cells: Cells = createCells(columns)) {
    this.columns = columns;
    this.#characters = cells.characters;
    this.#widths = cells.widths;
  }

  get isFresh(): boolean {
    return this.#freshTo > this.#freshFrom;
  }

  /** Cells that hold anything are before this. */
  get end(): number {
    return this.#end;
  }

  /** It has been written down. */
  settle(): void {
    this.#freshFrom = 0;
    this.#freshTo = 0;
  }

  /** Makes it a new, empty row. */
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

  /** Whether writing `code` there changes what is seen. */
  differs(column: number, code: number, width: number): boolean {
    return this.#characters[column] !== code || this.#widths[column] !== width;
  }

  /** Whether a character that was not written down is among the cells `[from, to)`. */
  hasFresh(from: number, to: number): boolean {
    const last = Math.min(to, this.#freshTo);
    for (let column = Math.max(from, this.#freshFrom); column < last; column += 1)
      if (!this.isBlank(column)) return true;
    return false;
  }

  hasText(from: number, to: number): boolean {
    const last = Math.min(to, this.#end);
    for (let column = from; column < last; column += 1) if (!this.isBlank(column)) return true;
    return false;
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
   * Writes characters `[start, end)` of a text into cells from `column` on, each as {@link set} would: up to the end of the row, one that
   * is not {@link isPlain}, or a cell whose character nobody has written down.
   *
   * @returns how many were written
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
    // NOTE: what is cut out of a text keeps all of it in memory
    if (isWhole && text.length <= count * MAX_KEPT) {
      this.#source = text;
      this.#sourceStart = start;
    }
    return count;
  }

  /** Cells `[from, to)` hold something else. */
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

  /** Sets the cells `[from, to)` to nothing. Halves of wide characters at the edges go too. */
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

  /** Puts `count` empty cells in at `column`; what leaves the row on the right is gone. */
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

  /** Takes `count` cells out at `column`. */
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

  /** Adds a mark to the character in a cell. */
  join(column: number, text: string, seconds: number): void {
    const joined = this.characterAt(column) + text;
    if (joined.length > MAX_CLUSTER) return;
    this.#clusters.push(joined);
    this.set(column, CLUSTER + this.#clusters.length - 1, this.width(column), seconds);
  }

  /** The character of a cell with its marks; empty for nothing. */
  characterAt(column: number): string {
    return this.isEmpty(column) ? '' : this.#text(column);
  }

  /** Copies what fits of another row. */
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

  /** Characters of the cells `[from, end)`, empty ones as spaces; trailing spaces stay. */
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

/** Room for the widest row. */
const units = new Uint16Array(MAX_SIZE.columns);
const bytes = new Uint8Array(MAX_SIZE.columns);
const decoder = new TextDecoder('utf-16le', { ignoreBOM: true });
const asciiDecoder = new TextDecoder('utf-8', { ignoreBOM: true });

/** What is in `units`. ASCII becomes a text of bytes: half the memory, and quicker for whoever reads it. */
function decodeUnits(length: number, isAscii: boolean): string {
  if (length <= 0) return '';
  if (!isAscii) return decoder.decode(units.subarray(0, length));
  for (let index = 0; index < length; index += 1) bytes[index] = units[index] ?? SPACE;
  return asciiDecoder.decode(bytes.subarray(0, length));
}

/** A character of one cell that no mark belongs to, and no charset changes. */
function isPlain(code: number): boolean {
  return code < 0x300 && code !== 0x7f;
}
