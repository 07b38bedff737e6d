/** Types of the journals. A journal converts the output of a session to rows of text. */
import type { EscapeParser } from '../terminal/escape-parser.ts';
import type { WorkBudget } from '../work-budget.ts';
import type { CommandEnd, JournalCommand } from './shell-marks.ts';
import type { WrittenRow } from './written-text.ts';

/** A line of the screen. Wrapped rows of a line are joined. */
export interface JournalRow {
  /** Time of the last change of the line, in seconds. */
  readonly at: number;
  readonly text: string;
  /** True if the row is on the alternate screen, which editors and pagers use. */
  readonly isAlternate: boolean;
}

export interface RowJournalOptions {
  readonly columns: number;
  readonly rows: number;
  readonly onRow: (row: JournalRow) => void;
  readonly onCommand?: (command: JournalCommand) => void;
  /** Called when the shell reports the end of a command. */
  readonly onCommandEnd?: (end: CommandEnd) => void;
  /**
   * Called with each written line that the screen shows differently, and with every written line after the budget is
   * exhausted.
   */
  readonly onWritten?: (row: WrittenRow) => void;
  /** Work budget. After the budget is exhausted, output is not rendered any more. Default: a new budget. */
  readonly budget?: WorkBudget;
}

/** Time without a change after which a row is emitted, in seconds. */
export const SETTLE_SECONDS = 0.5;
/** Maximum length of an emitted line, in characters. */
export const MAX_LINE = 16_384;

/**
 * The rows of the screen may have twice as many characters as the output of the session, plus this number. A program
 * can redraw a long row with only a few characters of output. Without the limit, such rows could displace other text.
 */
export const ROW_SLACK = 65_536;

/** Reads the output of a session. */
export interface TextJournal {
  /** True if rows are missing because the budget is exhausted. */
  readonly isStopped: boolean;
  /** True if the journal no longer reads any text, neither rows of the screen nor written text. */
  readonly isExhausted: boolean;
  /** Number of printable characters that never became visible. */
  readonly hidden: number;
  readonly parser: Pick<EscapeParser, 'pendingString'>;
  write(seconds: number, text: string): void;
  resize(seconds: number, columns: number, rows: number): void;
  tick(seconds: number): void;
  /** Emits all pending rows. More output may follow. */
  flush(): void;
  /** Ends the session. */
  end(): void;
}
