/** One row of a screen: its characters, and which of them nobody has written down yet. */

/** Characters from here on are places in {@link ScreenRow.clusters}: a base with what joins it. */
const CLUSTER = 0x80000000;
const SPACE = 0x20;
/** Longest cluster in UTF-16 code units: more marks than that on one character say nothing. */
const MAX_CLUSTER = 32;

export class ScreenRow {
  readonly columns: number;
  /** Code points, or places of clusters; 0 for nothing. */
  readonly #characters: Uint32Array;
  /** 2 before the second half of a wide character, 0 for that half. */
  readonly #widths: Uint8Array;
  #clusters: string[] = [];
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
  /** Another one each time that it becomes a new row. */
  serial = 0;

  constructor(columns: number) {
    this.columns = columns;
    this.#characters = new Uint32Array(columns);
    this.#widths = new Uint8Array(columns).fill(1);
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
    this.#characters.fill(0, 0, this.#end);
    this.#widths.fill(1, 0, this.#end);
    this.#clusters = [];
    this.#end = 0;
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
    if (this.#end === 0) this.firstAt = seconds;
    if (column >= this.#end) this.#end = column + 1;
    this.changedAt = seconds;
    if (this.#freshTo === this.#freshFrom) {
      this.#freshFrom = column;
      this.#freshTo = column + 1;
    } else if (column < this.#freshFrom) this.#freshFrom = column;
    else if (column >= this.#freshTo) this.#freshTo = column + 1;
  }

  /** Sets the cells `[from, to)` to nothing. Halves of wide characters at the edges go too. */
  erase(from: number, to: number): void {
    const last = Math.min(to, this.columns);
    if (from > 0 && this.width(from - 1) === 2) this.#empty(from - 1);
    if (last < this.columns && this.width(last - 1) === 2) this.#empty(last);
    if (from >= this.#end) return;
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
    let plain = true;
    for (let column = from; column < end && plain; column += 1) {
      const character = this.#characters[column] ?? 0;
      plain = character < 0x10000 && (this.#widths[column] ?? 1) === 1;
    }
    if (plain) return decodePlain(this.#characters, from, end);
    let text = '';
    for (let column = from; column < end; column += this.width(column) || 1) text += this.#text(column);
    return text;
  }

  #text(column: number): string {
    const character = this.#characters[column] ?? 0;
    if (character >= CLUSTER) return this.#clusters[character - CLUSTER] ?? '';
    return character === 0 ? ' ' : String.fromCodePoint(character);
  }

  #empty(column: number): void {
    this.#characters[column] = 0;
    this.#widths[column] = 1;
  }

  #moved(from: number, seconds: number): void {
    this.#end = this.columns;
    while (this.#end > 0 && this.isEmpty(this.#end - 1)) this.#end -= 1;
    this.changedAt = seconds;
    this.#freshFrom = this.isFresh ? Math.min(from, this.#freshFrom) : from;
    this.#freshTo = Math.max(this.#end, this.#freshFrom);
  }
}

const units = new Uint16Array(1024);
const decoder = new TextDecoder('utf-16le', { ignoreBOM: true });

function decodePlain(characters: Uint32Array, from: number, end: number): string {
  const length = Math.min(end - from, units.length);
  for (let index = 0; index < length; index += 1) {
    const character = characters[from + index] ?? 0;
    units[index] = character === 0 ? SPACE : character;
  }
  return decoder.decode(units.subarray(0, length));
}
