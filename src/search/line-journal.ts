/**
 * Reads the output of a session without a terminal, line by line. The journal has no cursor, so text is never
 * overwritten. Pure; memory and work are bounded.
 */
import { EscapeParser, type StringKind, type TerminalActions } from '../terminal/escape-parser.ts';
import { UNKNOWN_SIZE } from '../terminal/size.ts';
import { TextAllowance, WorkBudget } from '../work-budget.ts';
import { MAX_LINE, SETTLE_SECONDS, type TextJournal, type RowJournalOptions } from './text-journal.ts';
import { Pen } from './pen.ts';
import { WrittenText } from './written-text.ts';

const TAB_COLUMNS = 8;
/** Work units per character, for the line, the written text and the emitted row together. */
const CHARACTER_WORK = 8;

/** Journal of one session. */
export class LineJournal implements TerminalActions, TextJournal {
  readonly #options: Omit<RowJournalOptions, 'columns' | 'rows'>;
  readonly parser: EscapeParser;
  readonly #written: WrittenText;
  readonly #pen = new Pen();
  #seconds = 0;
  #line = '';
  /** Time of the last change of the line, in seconds; undefined if the line was emitted. */
  #changedAt: number | undefined;
  readonly #budget: WorkBudget;
  readonly #allowance: TextAllowance;

  constructor(options: Omit<RowJournalOptions, 'columns' | 'rows'>) {
    this.#options = options;
    this.parser = new EscapeParser(this, UNKNOWN_SIZE.columns, UNKNOWN_SIZE.rows);
    this.#written = new WrittenText(options.onWritten, undefined);
    this.#budget = options.budget ?? new WorkBudget();
    this.#allowance = new TextAllowance(this.#budget);
  }

  /**
   * True if the journal reads no more output. An exhausted budget does not stop this journal, because the journal
   * renders no screen.
   */
  get isStopped(): boolean {
    return this.isExhausted;
  }

  get isExhausted(): boolean {
    return this.#allowance.isExhausted;
  }

  get hidden(): number {
    return this.#written.hidden;
  }

  write(seconds: number, text: string): void {
    if (!this.#allowance.take(text.length)) return;
    this.tick(seconds);
    this.#budget.spent += text.length * CHARACTER_WORK;
    this.parser.push(text);
  }

  resize(seconds: number): void {
    this.tick(seconds);
  }

  tick(seconds: number): void {
    this.#seconds = Math.max(this.#seconds, seconds);
    if (this.#changedAt !== undefined && this.#changedAt + SETTLE_SECONDS <= this.#seconds) this.#give();
  }

  flush(): void {
    this.#written.endLine(this.#seconds);
    this.#give();
  }

  end(): void {
    this.parser.end();
    this.flush();
    this.#written.flush(this.#seconds);
  }

  print(text: string, start: number, end: number): void {
    this.#written.print(this.#seconds, text, start, end, this.#pen.isInvisible ? 'invisible' : 'plain');
    this.#changedAt = this.#seconds;
    this.#line += text.slice(start, end);
    while (this.#line.length > MAX_LINE) {
      const rest = this.#line.slice(MAX_LINE);
      this.#line = this.#line.slice(0, MAX_LINE);
      this.#give();
      this.#line = rest;
      this.#changedAt = this.#seconds;
    }
  }

  control(code: number): void {
    if (code === 0x09) {
      const blanks = ' '.repeat(TAB_COLUMNS - (this.#line.length % TAB_COLUMNS));
      this.print(blanks, 0, blanks.length);
    } else if ((code >= 0x0a && code <= 0x0d) || code === 0x85) {
      this.flush();
      this.#line = '';
    }
  }

  csi(name: string, parameters: readonly number[], text: string): void {
    if (name === 'm') this.#pen.take(text);
    else this.#written.sequence(this.#seconds, name, parameters, UNKNOWN_SIZE.columns);
  }

  escape(name: string): void {
    this.#written.escape(this.#seconds, name);
  }

  /** Treats a control string as output, because without a terminal, nothing executes control strings. */
  string(_kind: StringKind, text: string): void {
    for (const [index, line] of text.split(/[\r\n]+/).entries()) {
      if (index > 0) this.control(0x0a);
      this.print(line, 0, line.length);
    }
  }

  #give(): void {
    const at = this.#changedAt;
    this.#changedAt = undefined;
    const text = this.#line.trimEnd();
    if (at !== undefined && text !== '') this.#options.onRow({ at, text, isAlternate: false });
  }
}
