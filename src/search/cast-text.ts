/**
 * Reads the lines of a cast into a row journal. Input events (`i`) are ignored, because they may contain passwords.
 * Pure.
 */
import { parseCastEvent, parseResize } from '../wire/asciicast/event.ts';
import { hasReversedResize, parseCastHeader } from '../wire/asciicast/header.ts';
import { WireError } from '../wire/wire-error.ts';
import { readSize } from '../terminal/size.ts';
import { WorkBudget } from '../work-budget.ts';
import { LineJournal } from './line-journal.ts';
import { RowJournal } from './row-journal.ts';
import type { RowJournalOptions, TextJournal } from './text-journal.ts';

export interface CastTextOptions extends Omit<RowJournalOptions, 'columns' | 'rows'> {
  /** Called with the number of characters of each output event. */
  readonly onOutput?: (characters: number) => void;
}

/** Maximum length of a line, in characters. Longer lines are skipped and count as damaged. */
const MAX_LINE = 64 * 1024 ** 2;

/** Reader of one recording. */
export class CastText {
  readonly #options: CastTextOptions;
  readonly #budget: WorkBudget;
  #journal: TextJournal | undefined;
  #reversed = false;
  #seconds = 0;
  #isDamaged = false;
  #stoppedAt: number | undefined;

  constructor(options: CastTextOptions) {
    this.#options = options;
    this.#budget = options.budget ?? new WorkBudget();
  }

  /** True if some lines could not be read, or the budget was exhausted. */
  get isPartial(): boolean {
    return this.#isDamaged || this.#stoppedAt !== undefined;
  }

  /** Time at which the budget was exhausted, in seconds of the session; undefined if it was not exhausted. */
  get stoppedAt(): number | undefined {
    return this.#stoppedAt;
  }

  /** True if the reader no longer reads any text, neither rows of the screen nor written text. */
  get isExhausted(): boolean {
    return this.#journal?.isExhausted === true;
  }

  /** Reads the next line, without its line feed. The first line is the header. */
  line(line: string): void {
    this.#budget.allow(line.length);
    try {
      if (this.#journal === undefined) this.#begin(line);
      else if (line.length > MAX_LINE) this.#isDamaged = true;
      else if (line !== '') this.#event(this.#journal, line);
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      this.#isDamaged = true;
      this.#journal ??= this.#createJournal(0, 0);
    }
  }

  /** Advances the time of a running session. */
  tick(seconds: number): void {
    this.#journal?.tick(seconds);
  }

  /** Number of printable characters that never became visible. */
  get hidden(): number {
    return this.#journal?.hidden ?? 0;
  }

  /** Text of an unterminated control string, and the time of the last event (`at`), in seconds. */
  get pendingString(): { readonly at: number; readonly text: string } {
    return { at: this.#seconds, text: this.#journal?.parser.pendingString ?? '' };
  }

  /** Emits all pending rows. More lines may follow. */
  flush(): void {
    this.#journal?.flush();
  }

  /** Ends the recording. */
  end(): void {
    this.#journal?.end();
  }

  #begin(line: string): void {
    const header = parseCastHeader(line);
    this.#reversed = hasReversedResize(header);
    this.#journal = this.#createJournal(header.width, header.height);
  }

  #createJournal(columns: number, rows: number): TextJournal {
    const { onRow, onCommand, onCommandEnd, onWritten } = this.#options;
    const options = {
      onRow,
      budget: this.#budget,
      ...(onCommand === undefined ? {} : { onCommand }),
      ...(onCommandEnd === undefined ? {} : { onCommandEnd }),
      ...(onWritten === undefined ? {} : { onWritten }),
    };
    if (columns === 0 || rows === 0) return new LineJournal(options);
    return new RowJournal({ ...readSize({ columns, rows }), ...options });
  }

  #event(journal: TextJournal, line: string): void {
    const { seconds, code, data } = parseCastEvent(line);
    this.#seconds = Math.max(this.#seconds, seconds);
    if (code === 'o') {
      this.#options.onOutput?.(data.length);
      journal.write(this.#seconds, data);
    } else if (code === 'r') {
      const { columns, rows } = parseResize(data, { reversed: this.#reversed });
      const size = readSize({ columns, rows });
      journal.resize(this.#seconds, size.columns, size.rows);
    }
    if (journal.isStopped) this.#stoppedAt ??= this.#seconds;
  }
}
