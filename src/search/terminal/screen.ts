/**
 * The two screens of a terminal: characters and their positions, without colours and scrollback. The screen calls its
 * `ScreenKeeper` before text on it is lost. Where terminals differ, the screen behaves like xterm.
 */
import { MAX_SIZE } from '../../terminal/size.ts';
import type { WorkBudget } from '../../work-budget.ts';
import type { PenState } from '../pen.ts';
import { createRows, ScreenRow } from './screen-row.ts';

/** Callbacks before rows lose text. */
export interface ScreenKeeper {
  /** Called before cells `[from, to)` of row `y` change. */
  losing(y: number, from: number, to: number): void;
  /** Called before row `y` leaves the screen, or is separated from its wrapped line. */
  leaving(y: number): void;
}

/** Work units of an operation on a row, in addition to the units for its cells. */
export const ROW_WORK = 16;

/** Appearance of characters, which is saved and restored with the cursor. */
export interface Rendition {
  readonly charset: ReadonlyMap<number, number> | undefined;
  readonly pen: PenState;
}

interface Saved {
  readonly x: number;
  readonly y: number;
  /** Saved rendition; undefined for the default. */
  readonly rendition: Rendition | undefined;
}

/** One of the two screen buffers. */
interface Buffer {
  rows: ScreenRow[];
  top: number;
  bottom: number;
  tabs: Set<number>;
  saved: Saved;
}

export class Screen {
  columns: number;
  rows: number;
  x = 0;
  y = 0;
  insertMode = false;
  wrapAround = true;
  origin = false;
  newLineMode = false;
  /** Budget that pays for cells that are written, moved or cleared. */
  readonly budget: WorkBudget;
  /** Time of the current output, in seconds. */
  seconds = 0;
  readonly #keeper: ScreenKeeper;
  #serial = 0;
  #normal: Buffer;
  #alternate: Buffer;
  #buffer: Buffer;

  constructor(columns: number, rows: number, keeper: ScreenKeeper, budget: WorkBudget) {
    this.budget = budget;
    this.columns = clamp(columns, 2, MAX_SIZE.columns);
    this.rows = clamp(rows, 1, MAX_SIZE.rows);
    this.#keeper = keeper;
    this.#normal = this.#createBuffer();
    this.#alternate = this.#createBuffer([]);
    this.#buffer = this.#normal;
  }

  get isAlternate(): boolean {
    return this.#buffer === this.#alternate;
  }

  get top(): number {
    return this.#buffer.top;
  }

  get bottom(): number {
    return this.#buffer.bottom;
  }

  row(y: number): ScreenRow {
    const row = this.#buffer.rows[y];
    if (row === undefined) throw new RangeError(`no row ${y}`);
    return row;
  }

  // ---- cursor

  restrict(last = this.columns - 1): void {
    const { top, bottom } = this.#buffer;
    this.x = clamp(this.x, 0, last);
    this.y = this.origin ? clamp(this.y, top, bottom) : clamp(this.y, 0, this.rows - 1);
  }

  place(x: number, y: number): void {
    this.x = x;
    this.y = this.origin ? this.#buffer.top + y : y;
    this.restrict();
  }

  moveBy(columns: number, rows: number): void {
    this.restrict();
    this.place(this.x + columns, this.y + rows);
  }

  up(count: number): void {
    const room = this.y - this.#buffer.top;
    this.moveBy(0, -(room >= 0 ? Math.min(room, count) : count));
  }

  down(count: number): void {
    const room = this.#buffer.bottom - this.y;
    this.moveBy(0, room >= 0 ? Math.min(room, count) : count);
  }

  save(rendition: Rendition): void {
    this.#buffer.saved = { x: this.x, y: this.y, rendition };
  }

  restore(): Rendition | undefined {
    const { x, y, rendition } = this.#buffer.saved;
    this.x = x;
    this.y = Math.max(0, y);
    this.restrict();
    return rendition;
  }

  // ---- tabs

  tab(count: number, direction: 1 | -1): void {
    if (this.x >= this.columns) return;
    for (let left = Math.min(count, this.columns); left > 0; left -= 1) {
      let x = this.x + direction;
      while (x > 0 && x < this.columns && !this.#buffer.tabs.has(x)) x += direction;
      this.budget.spent += 1 + Math.abs(x - this.x);
      this.x = clamp(x, 0, this.columns - 1);
    }
  }

  setTab(): void {
    if (this.x < this.columns) this.#buffer.tabs.add(this.x);
  }

  clearTab(all: boolean): void {
    if (all) this.#buffer.tabs.clear();
    else this.#buffer.tabs.delete(this.x);
  }

  // ---- lines

  lineFeed(): void {
    if (this.newLineMode) this.x = 0;
    this.#nextRow(false);
    if (this.x >= this.columns) this.x -= 1;
  }

  index(): void {
    this.restrict();
    this.y += 1;
    if (this.y === this.#buffer.bottom + 1) {
      this.y -= 1;
      this.scrollUp(1);
    } else if (this.y >= this.rows) this.y = this.rows - 1;
    this.restrict();
  }

  reverseIndex(): void {
    this.restrict();
    if (this.y === this.#buffer.top) this.scrollDown(1);
    else {
      this.y -= 1;
      this.restrict();
    }
  }

  /** Moves the cursor to the row below, which continues the line. */
  wrap(): void {
    this.#nextRow(true);
  }

  #nextRow(wrapped: boolean): void {
    this.y += 1;
    if (this.y === this.#buffer.bottom + 1) {
      this.y -= 1;
      this.scrollUp(1);
      this.row(this.y).wrapped = wrapped;
      return;
    }
    if (this.y >= this.rows) {
      this.y = this.rows - 1;
      if (!wrapped) return;
    }
    const row = this.row(this.y);
    if (row.wrapped !== wrapped) this.#keeper.leaving(this.y);
    row.wrapped = wrapped;
  }

  scrollUp(count: number): void {
    this.#moveRows(this.#buffer.top, this.#buffer.bottom, count, 'up');
  }

  scrollDown(count: number): void {
    this.#moveRows(this.#buffer.top, this.#buffer.bottom, count, 'down');
  }

  insertLines(count: number): void {
    this.#editLines(count, 'down');
  }

  deleteLines(count: number): void {
    this.#editLines(count, 'up');
  }

  #editLines(count: number, direction: 'up' | 'down'): void {
    this.restrict();
    const { top, bottom } = this.#buffer;
    if (this.y < top || this.y > bottom) return;
    this.#moveRows(this.y, bottom, count, direction);
    this.x = 0;
  }

  /** Moves rows `[top, bottom]` and inserts empty rows. */
  #moveRows(top: number, bottom: number, count: number, direction: 'up' | 'down'): void {
    const { rows } = this.#buffer;
    const moved = Math.min(count, bottom - top + 1);
    this.budget.spent += rows.length;
    // A line that wraps across the edge of the scroll region is divided at the edge.
    if (top > 0) this.#cut(top);
    if (bottom + 1 < rows.length) this.#cut(bottom + 1);
    const first = direction === 'up' ? top : bottom + 1 - moved;
    for (let y = first; y < first + moved; y += 1) this.#keeper.leaving(y);
    if (moved === 1 && direction === 'up') {
      // This is a fast path, because rows are moved mostly by a line feed at the bottom.
      const row = this.row(top);
      this.#clear(row);
      // NOTE: this is a loop, because `splice` and `copyWithin` of an array take five times as long
      for (let y = top; y < bottom; y += 1) rows[y] = rows[y + 1] ?? row;
      rows[bottom] = row;
      return;
    }
    const gone = rows.splice(first, moved);
    for (const row of gone) this.#clear(row);
    rows.splice(direction === 'up' ? bottom + 1 - moved : top, 0, ...gone);
    if (direction === 'down' && top + moved <= bottom) this.#cut(top + moved);
  }

  /** Marks row `y` as the start of a line. */
  #cut(y: number): void {
    const row = this.row(y);
    if (!row.wrapped) return;
    this.#keeper.leaving(y);
    row.wrapped = false;
  }

  // ---- erasing

  eraseInLine(y: number, from: number, to: number, unwrap: boolean): void {
    const row = this.row(y);
    this.#keeper.losing(y, from, to);
    this.budget.spent += row.end + 1;
    row.erase(from, to);
    if (unwrap) this.#cut(y);
  }

  eraseInDisplay(how: number): void {
    this.restrict(this.columns);
    if (how === 0) {
      this.eraseInLine(this.y, this.x, this.columns, this.x === 0);
      for (let y = this.y + 1; y < this.rows; y += 1) this.#eraseRow(y);
    } else if (how === 1) {
      this.eraseInLine(this.y, 0, this.x + 1, true);
      if (this.x + 1 >= this.columns && this.y + 1 < this.rows) this.#cut(this.y + 1);
      for (let y = 0; y < this.y; y += 1) this.#eraseRow(y);
    } else if (how === 2) for (let y = 0; y < this.rows; y += 1) this.#eraseRow(y);
  }

  #eraseRow(y: number): void {
    this.#keeper.leaving(y);
    this.#clear(this.row(y));
  }

  #clear(row: ScreenRow): void {
    this.budget.spent += row.end + ROW_WORK;
    this.#serial += 1;
    row.clear(this.#serial);
  }

  insertCells(count: number): void {
    this.restrict();
    this.#shift(this.y, this.x, count, 'insert');
  }

  deleteCells(count: number): void {
    this.restrict();
    this.#shift(this.y, this.x, count, 'delete');
  }

  eraseCells(count: number): void {
    this.restrict();
    this.eraseInLine(this.y, this.x, Math.min(this.x + count, this.columns), false);
  }

  /** Shifts the cells of every row of the scroll region. */
  shiftColumns(x: number, count: number, how: 'insert' | 'delete'): void {
    const { top, bottom } = this.#buffer;
    if (this.y < top || this.y > bottom) return;
    for (let y = top; y <= bottom; y += 1) {
      this.#cut(y);
      this.#shift(y, x, count, how);
    }
  }

  #shift(y: number, x: number, count: number, how: 'insert' | 'delete'): void {
    this.#keeper.losing(y, x % this.columns, this.columns);
    this.budget.spent += this.columns;
    this.row(y)[how](x, count, this.seconds);
  }

  /** Fills the screen with one letter. */
  fill(code: number): void {
    this.place(0, 0);
    this.budget.spent += this.rows * this.columns;
    for (let y = 0; y < this.rows; y += 1) {
      const row = this.row(y);
      this.#keeper.leaving(y);
      this.#clear(row);
      row.fill(code, this.seconds);
    }
    this.place(0, 0);
  }

  // ---- the complete screen

  setRegion(top: number, bottom: number): void {
    const last = bottom > this.rows || bottom === 0 ? this.rows : bottom;
    if (last <= top) return;
    this.#buffer.top = top - 1;
    this.#buffer.bottom = last - 1;
    this.place(0, 0);
  }

  showAlternate(): void {
    if (this.isAlternate) return;
    this.#leaveAll();
    this.#buffer = this.#alternate;
    if (this.#buffer.rows.length > 0) return;
    this.budget.spent += this.rows * this.columns;
    this.#buffer.rows = createRows(this.rows, this.columns);
  }

  showNormal(): void {
    if (!this.isAlternate) return;
    this.#leaveAll();
    const { saved } = this.#alternate;
    this.#alternate = { ...this.#createBuffer([]), saved };
    this.#buffer = this.#normal;
  }

  softReset(): void {
    this.#buffer.top = 0;
    this.#buffer.bottom = this.rows - 1;
    this.insertMode = false;
    this.wrapAround = true;
    this.origin = false;
    this.#buffer.saved = { x: 0, y: 0, rendition: undefined };
  }

  reset(): void {
    this.#leaveAll();
    this.#normal = this.#createBuffer();
    this.#alternate = this.#createBuffer([]);
    this.#buffer = this.#normal;
    this.softReset();
    this.x = 0;
    this.y = 0;
  }

  /** Changes the size. Rows are truncated or extended; lines are not wrapped again. */
  resize(columns: number, rows: number): void {
    const width = clamp(columns, 2, MAX_SIZE.columns);
    const height = clamp(rows, 1, MAX_SIZE.rows);
    if (width === this.columns && height === this.rows) return;
    this.#leaveAll();
    const above = Math.max(0, this.y + 1 - height);
    for (const buffer of [this.#normal, this.#alternate]) {
      const kept = buffer.rows.slice(above, above + height);
      if (buffer.rows.length === 0) this.budget.spent += height * width;
      else buffer.rows = Array.from({ length: height }, (_, y) => this.#resizeRow(kept[y], width));
      buffer.top = 0;
      buffer.bottom = height - 1;
      for (let x = this.columns - (this.columns % 8); x < width; x += 8) buffer.tabs.add(x);
    }
    this.columns = width;
    this.rows = height;
    this.x = clamp(this.x, 0, width - 1);
    this.y = clamp(this.y - above, 0, height - 1);
  }

  #resizeRow(old: ScreenRow | undefined, columns: number): ScreenRow {
    this.budget.spent += columns;
    if (old?.columns === columns) return old;
    const row = new ScreenRow(columns);
    if (old === undefined) this.#clear(row);
    else row.copyFrom(old);
    return row;
  }

  #leaveAll(): void {
    this.budget.spent += this.rows;
    for (let y = 0; y < this.rows; y += 1) this.#keeper.leaving(y);
  }

  /**
   * Creates a buffer. The rows of the alternate buffer are created on first use, because most sessions never need them.
   */
  #createBuffer(made?: ScreenRow[]): Buffer {
    const { columns, rows } = this;
    this.budget.spent += made === undefined ? rows * columns : columns;
    const tabs = new Set<number>();
    for (let x = 0; x < columns; x += 8) tabs.add(x);
    return {
      rows: made ?? createRows(rows, columns),
      top: 0,
      bottom: rows - 1,
      tabs,
      saved: { x: 0, y: 0, rendition: undefined },
    };
  }
}

function clamp(value: number, low: number, high: number): number {
  return Math.min(high, Math.max(low, value));
}
