/**
 * The row journal: the readable rows of a terminal session. A row is emitted before its text is lost: before the row is
 * overwritten, erased, scrolled away, or hidden by a switch to the other screen. A row is also emitted after half a
 * second without a change. Search therefore finds text that an editor or a pager showed, with its time.
 *
 * Pure: the time is an argument. Memory and work per character are bounded.
 */
import { cellWidth, CLUSTER, joinCluster, type Cluster } from '../terminal/cell-width.ts';
import { TextAllowance, WorkBudget } from '../work-budget.ts';
import { changedPart } from './terminal/changed-part.ts';
import { CONTROL_SEQUENCES, ESCAPES, howShown, parameter } from './terminal/controls.ts';
import { EscapeParser, type StringKind, type TerminalActions } from '../terminal/escape-parser.ts';
import { Pen } from './pen.ts';
import { MAX_LINE, SETTLE_SECONDS, type RowJournalOptions, type TextJournal } from './text-journal.ts';
import { WrittenText } from './written-text.ts';
import { ROW_WORK, Screen, type Rendition, type ScreenKeeper } from './terminal/screen.ts';
import type { ScreenRow } from './terminal/screen-row.ts';
import { createShellMarks, guessCommand } from './shell-marks.ts';

/** Work units per control sequence or run of characters, in addition to the units per cell. */
const SEQUENCE_WORK = 8;
const CONTROL_WORK = 4;
/** Work units per printed character, for the screen and the written text together. */
const CHARACTER_WORK = 2;
/** Work units per character of an emitted row. Secret filters and the index read each row several times. */
const ROW_CHARACTER_WORK = 4;
/** Controls after which a combining mark does not join the previous character. */
const ENDS_CLUSTER = new Set([0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x84, 0x85, 0x88]);
/** Journal of one session with a terminal. */
export class RowJournal implements TerminalActions, ScreenKeeper, TextJournal {
  readonly #options: RowJournalOptions;
  readonly parser: EscapeParser;
  readonly #marks;
  readonly #budget: WorkBudget;
  readonly #allowance: TextAllowance;
  readonly screen: Screen;
  #seconds = 0;
  /** Earliest time at which a row is emitted because it did not change for {@link SETTLE_SECONDS}. */
  #settledAt = Infinity;
  /** Width of the previous character if a combining mark can join that character; otherwise 0. */
  #lastWidth = 0;
  #cluster: Cluster = CLUSTER.none;
  readonly #pen = new Pen();
  readonly #written: WrittenText;
  /** Current charset, and the charsets designated as G0 to G3. */
  #charset: ReadonlyMap<number, number> | undefined;
  readonly #charsets = Array<ReadonlyMap<number, number> | undefined>(4).fill(undefined);
  #level = 0;
  /** True directly after a carriage return. */
  #returned = false;
  /** True if the cursor was moved, so that the next character may overwrite the second half of a wide character. */
  #mayHalve = false;
  /** Text of a row that scrolled away, and the row that continues it. */
  #above: { readonly row: ScreenRow; readonly serial: number; readonly text: string } | undefined;

  constructor(options: RowJournalOptions) {
    this.#options = options;
    this.#budget = options.budget ?? new WorkBudget();
    this.#allowance = new TextAllowance(this.#budget);
    this.#written = new WrittenText(options.onWritten, this.#budget);
    this.screen = new Screen(options.columns, options.rows, this, this.#budget);
    this.parser = new EscapeParser(this, this.screen.columns, this.screen.rows);
    this.#marks = createShellMarks(
      this.screen,
      (command) => options.onCommand?.(command),
      (end) => options.onCommandEnd?.(end),
    );
  }

  /** True if the screen is not rendered any more. Output is then read as lines of written text. */
  get isStopped(): boolean {
    return this.#budget.isExhausted;
  }

  get isExhausted(): boolean {
    return this.#allowance.isExhausted;
  }

  /** Number of printable characters that never became visible. */
  get hidden(): number {
    return this.#written.hidden;
  }

  /** Reads output. `seconds` is the output's time in the session, which must not decrease. */
  write(seconds: number, text: string): void {
    if (!this.#allowance.take(text.length)) return;
    this.tick(seconds);
    this.parser.push(text);
  }

  /** Changes the size of the terminal. */
  resize(seconds: number, columns: number, rows: number): void {
    this.#budget.spent += SEQUENCE_WORK;
    if (this.isStopped) return;
    this.tick(seconds);
    this.screen.resize(columns, rows);
    this.parser.columns = this.screen.columns;
    this.parser.rows = this.screen.rows;
  }

  /**
   * Advances the time, and emits rows that did not change for {@link SETTLE_SECONDS}. The frequency of calls does not
   * affect which rows are emitted.
   */
  tick(seconds: number): void {
    if (seconds > this.#seconds) {
      this.#seconds = seconds;
      this.screen.seconds = seconds;
    }
    if (this.#settledAt <= this.#seconds) this.#emitSettled(this.#seconds - SETTLE_SECONDS);
  }

  /** Emits the rows on the screen. */
  flush(): void {
    this.#written.flush(this.#seconds);
    this.#emitSettled(Infinity);
  }

  /** Ends the session. An unterminated control string becomes text. */
  end(): void {
    this.parser.end();
    this.flush();
  }

  // ---- parser events

  print(text: string, start: number, end: number): void {
    this.#returned = false;
    if (!this.#budget.spend(SEQUENCE_WORK + (end - start) * CHARACTER_WORK))
      return this.#written.print(
        this.#seconds,
        text,
        start,
        end,
        this.#pen.isInvisible ? 'invisible' : 'plain',
      );
    this.#written.continueAt(this.#seconds, this.screen);
    const how = this.#pen.isInvisible ? 'invisible' : howShown(this.#charset, text, start, end);
    this.#written.print(this.#seconds, text, start, end, how);
    this.#print(text, start, end);
    this.#written.endAt(this.screen);
  }

  #print(text: string, start: number, end: number): void {
    const { screen } = this;
    this.#mayHalve = true;
    for (let at = start; at < end; at += 1) {
      if (this.#charset === undefined && !screen.insertMode) {
        at += this.#putRun(text, at, end);
        if (at === end) break;
      }
      let code = text.charCodeAt(at);
      if (code < 0x7f) code = this.#charset?.get(code) ?? code;
      else if (code >= 0xd800 && code < 0xe000) {
        const whole = at + 1 < end ? (text.codePointAt(at) ?? 0) : 0;
        if (whole > 0xffff) at += 1;
        code = whole > 0xffff ? whole : 0xfffd;
      } else if (code === 0xfeff) continue;
      this.#put(code);
    }
    this.#emptyHalf();
  }

  control(code: number): void {
    if (ENDS_CLUSTER.has(code)) this.#lastWidth = 0;
    this.#written.control(this.#seconds, code, this.isStopped ? 0 : this.screen.x);
    const returned = this.#returned;
    this.#returned = false;
    if (this.#budget.spend(CONTROL_WORK)) this.#control(code, returned);
  }

  #control(code: number, returned: boolean): void {
    const { screen } = this;
    switch (code) {
      case 0x0a:
      case 0x0b:
      case 0x0c:
        if (returned) this.#guess();
        return screen.lineFeed();
      case 0x0d:
        screen.x = 0;
        this.#returned = true;
        return;
      case 0x08:
        screen.restrict();
        if (screen.x > 0) screen.x -= 1;
        return;
      case 0x09:
        screen.tab(1, 1);
        this.#written.endAt(screen);
        return;
      case 0x0e:
        return this.shift(1);
      case 0x0f:
        return this.shift(0);
      case 0x84:
        screen.index();
        return;
      case 0x85:
        screen.x = 0;
        screen.index();
        return;
      case 0x88:
        screen.setTab();
    }
  }

  csi(name: string, parameters: readonly number[], text: string): void {
    this.#returned = false;
    if (name === 'm') this.#pen.take(text);
    else this.#written.sequence(this.#seconds, name, parameters, this.screen.columns);
    if (!this.#budget.spend(SEQUENCE_WORK)) return;
    if (name === 'b') this.#repeat(parameter(parameters, 0));
    else CONTROL_SEQUENCES.get(name)?.(this, parameters);
    this.#lastWidth = 0;
  }

  escape(name: string): void {
    this.#returned = false;
    this.#written.escape(this.#seconds, name);
    if (!this.#budget.spend(SEQUENCE_WORK)) return;
    if (name === 'c') this.#reset();
    else ESCAPES.get(name)?.(this);
    this.#lastWidth = 0;
  }

  string(kind: StringKind, text: string): void {
    this.#written.string(this.#seconds, kind, text);
    if (!this.#budget.spend(SEQUENCE_WORK + text.length)) return;
    if (kind === 'osc' && text.startsWith('133;')) this.#marks.take(text.slice(4), this.#seconds);
  }

  // ---- control sequences that do not change the screen

  get written(): WrittenText {
    return this.#written;
  }

  get rendition(): Rendition {
    return { charset: this.#charset, pen: this.#pen.state };
  }

  restore(rendition: Rendition | undefined): void {
    this.#charset = rendition?.charset;
    this.#pen.restore(rendition?.pen);
  }

  /** Designates a charset as G0 to G3. */
  designate(level: number, charset: ReadonlyMap<number, number> | undefined): void {
    this.#charsets[level] = charset;
    if (level === this.#level) this.#charset = charset;
  }

  /** Selects G0 to G3 as the current charset (SI, SO). */
  shift(level: number): void {
    this.#level = level;
    this.#charset = this.#charsets[level];
  }

  resetCharsets(): void {
    this.#charsets.fill(undefined);
    this.#charset = undefined;
    this.#level = 0;
  }

  // ---- callbacks before rows lose text

  losing(y: number, from: number, to: number): void {
    const row = this.screen.row(y);
    if (!row.isFresh) return;
    this.#budget.spent += Math.min(to, row.end) - Math.min(from, row.end);
    const wasSeen = row.isSeen(this.#seconds) && row.hasText(from, to);
    if (!wasSeen && !row.hasFresh(from, to)) return;
    const changed = changedPart(this.screen, y);
    if (changed === undefined) this.#keepLine(y);
    else this.#give(row.changedAt, changed);
  }

  leaving(y: number): void {
    this.#budget.spent += ROW_WORK;
    const row = this.screen.row(y);
    const below = y + 1 < this.screen.rows ? this.screen.row(y + 1) : undefined;
    if (row.isFresh) this.#keepLine(y);
    if (below?.wrapped !== true) return;
    this.#budget.spent += row.columns;
    this.#above = { row: below, serial: below.serial, text: row.text(0, row.columns) };
  }

  /** Emits the complete line that contains row `y`. */
  #keepLine(y: number): void {
    const { screen } = this;
    let first = y;
    while (first > 0 && screen.row(first).wrapped) first -= 1;
    let last = y;
    while (last + 1 < screen.rows && screen.row(last + 1).wrapped) last += 1;
    let text = this.#textAbove(first);
    let at = 0;
    for (let row = first; row <= last; row += 1) {
      const part = screen.row(row);
      at = Math.max(at, part.changedAt);
      part.settle();
      const isLast = row === last;
      text += part.text(0, isLast ? part.end : part.columns);
      this.#budget.spent += part.columns;
      if (isLast || text.length < MAX_LINE) continue;
      this.#give(at, text);
      text = part.text(0, part.columns);
    }
    this.#give(at, text);
  }

  #textAbove(first: number): string {
    const row = this.screen.row(first);
    if (first > 0 || !row.wrapped) return '';
    return this.#above?.row === row && this.#above.serial === row.serial ? this.#above.text : '';
  }

  #give(at: number, text: string): void {
    const trimmed = text.trimEnd();
    this.#budget.spent += trimmed.length * ROW_CHARACTER_WORK;
    if (trimmed !== '') this.#options.onRow({ at, text: trimmed, isAlternate: this.screen.isAlternate });
  }

  /** Emits the rows that last changed at `until` or earlier, in the order of these changes. */
  #emitSettled(until: number): void {
    const { screen } = this;
    this.#settledAt = Infinity;
    this.#budget.spent += screen.rows;
    const settled: { readonly y: number; readonly at: number }[] = [];
    for (let y = 0; y < screen.rows; y += 1) {
      const row = screen.row(y);
      if (!row.isFresh) continue;
      if (row.changedAt <= until) settled.push({ y, at: row.changedAt });
      else this.#settledAt = Math.min(this.#settledAt, row.changedAt + SETTLE_SECONDS);
    }
    for (const { y } of settled.toSorted((left, right) => left.at - right.at || left.y - right.y))
      if (screen.row(y).isFresh) this.#keepLine(y);
  }

  // ---- printing

  /**
   * Prints plain characters up to the margin. This is a fast path, because most output is plain. @returns number of
   * printed characters
   */
  #putRun(text: string, start: number, end: number): number {
    const { screen } = this;
    const { x } = screen;
    if (x >= screen.columns) return 0;
    if (this.#mayHalve) {
      this.#mayHalve = false;
      this.#overwriteHalf(x - 1);
    }
    const row = screen.row(screen.y);
    const { changes } = row;
    const count = row.write(x, text, start, end, this.#seconds);
    if (count === 0) return 0;
    this.#lastWidth = 1;
    this.#cluster = CLUSTER.character;
    screen.x = x + count;
    if (row.changes > changes && this.#settledAt === Infinity)
      this.#settledAt = this.#seconds + SETTLE_SECONDS;
    return count;
  }

  #put(code: number): void {
    // Check the budget before each character, because a single character can cause a line of many rows to be emitted.
    if (this.isStopped) return;
    const { screen } = this;
    if (this.#mayHalve) {
      this.#mayHalve = false;
      this.#overwriteHalf(screen.x - 1);
    }
    const { isJoined, cluster } = joinCluster(this.#lastWidth === 0 ? CLUSTER.none : this.#cluster, code);
    this.#cluster = cluster;
    if (isJoined && screen.x > 0) return this.#join(code);
    // A combining mark without a base character gets its own cell.
    const width = code < 0x300 ? 1 : Math.max(1, cellWidth(code));
    this.#lastWidth = width;
    if (screen.x + width > screen.columns) {
      if (screen.wrapAround) {
        this.#clearLastColumn();
        screen.x = 0;
        screen.wrap();
      } else {
        screen.x = screen.columns - 1;
        this.#clip(code, width);
        if (width === 2) {
          // The cursor stays at the last cell, because the wide character does not fit into this cell.
          this.#lastWidth = 0;
          this.#mayHalve = true;
          return;
        }
      }
    }
    const row = screen.row(screen.y);
    if (screen.insertMode) this.#shiftRight(row, width);
    // NOTE: the first half changes the time of the row, so check the cell of the second half before.
    if (width === 2 && !row.isBlank(screen.x + 1)) {
      this.losing(screen.y, screen.x, screen.x + 2);
      row.blank(screen.x + 1);
    }
    this.#set(row, screen.x, code, width);
    screen.x += 1;
    if (width === 2) {
      this.#set(row, screen.x, 0, 0);
      screen.x += 1;
    }
  }

  /** Handles a character beyond the end of the row if wrap-around is off: the character overwrites the last cell. */
  #clip(code: number, width: number): void {
    const { x, y } = this.screen;
    const row = this.screen.row(y);
    if (code !== 0x20) this.#written.hide(1);
    else if (!row.isBlank(x)) this.#written.alter();
    if (width === 2) return;
    // Without this condition, each character of a long line would emit the row. The written text (`#written`) contains
    // characters that are overwritten at once.
    if (row.isSeen(this.#seconds)) this.losing(y, x, x + 1);
    if (row.width(x) === 1) row.blank(x);
  }

  #set(row: ScreenRow, x: number, code: number, width: number): void {
    if (!row.differs(x, code, width)) return;
    if (row.isFresh && !row.isBlank(x)) this.losing(this.screen.y, x, x + 1);
    row.set(x, code, width, this.#seconds);
    if (this.#settledAt === Infinity) this.#settledAt = this.#seconds + SETTLE_SECONDS;
  }

  #join(code: number): void {
    const { screen } = this;
    const row = screen.row(screen.y);
    const column = screen.x - (row.width(screen.x - 1) > 0 ? 1 : 2);
    row.join(column, String.fromCodePoint(code), this.#seconds);
  }

  #shiftRight(row: ScreenRow, width: number): void {
    const { screen } = this;
    this.losing(screen.y, screen.x, screen.columns);
    this.#budget.spent += screen.columns;
    row.insert(screen.x, width, this.#seconds);
  }

  /** Empties the last column if a wide character does not fit into it. */
  #clearLastColumn(): void {
    const { screen } = this;
    if (screen.x < screen.columns) this.#set(screen.row(screen.y), screen.x, 0, 1);
  }

  /** Empties a wide character before its second half is overwritten. */
  #overwriteHalf(x: number): void {
    const { screen } = this;
    if (x < 0) return;
    const row = screen.row(screen.y);
    if (row.width(x) !== 2) return;
    this.losing(screen.y, x, x + 2);
    row.blank(x);
  }

  /** Empties the second half of a wide character whose first half was overwritten. */
  #emptyHalf(): void {
    const { x, y, columns } = this.screen;
    if (x >= columns) return;
    const row = this.screen.row(y);
    if (row.width(x) === 0 && row.isEmpty(x)) row.blank(x);
  }

  #repeat(count: number): void {
    const { screen } = this;
    const width = this.#lastWidth;
    if (width === 0) return;
    const character = screen.row(screen.y).characterAt(screen.x - width);
    if (character === '') return;
    // Limit the repetitions: after two screens full of the same character, further characters do not change the screen.
    const most = 2 * screen.columns * screen.rows;
    const perRow = Math.max(1, Math.floor(screen.columns / width));
    const times = count <= most ? count : most + ((count - most) % perRow);
    const text = character.repeat(times);
    this.print(text, 0, text.length);
  }

  #reset(): void {
    this.screen.reset();
    this.resetCharsets();
    this.#pen.restore();
  }

  #guess(): void {
    const { screen } = this;
    if (screen.isAlternate || this.#marks.isMarked || this.#options.onCommand === undefined) return;
    const text = guessCommand(screen);
    if (text !== undefined) this.#marks.guess(text, this.#seconds);
  }
}
