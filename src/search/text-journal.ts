/** The types of journals, which read the output of a session as rows of text. */
import type { WorkBudget } from '../work-budget.ts';
import type { JournalCommand } from './shell-marks.ts';
import type { WrittenRow } from './written-text.ts';

/** A line as it stood on the screen. Rows that one line was wrapped into are joined. */
export interface JournalRow {
  /** Seconds of the session at which it was last changed: then all of it could be read. */
  readonly at: number;
  readonly text: string;
  /** It stood on the alternate screen, where editors and pagers are. */
  readonly isAlternate: boolean;
}

export interface RowJournalOptions {
  readonly columns: number;
  readonly rows: number;
  readonly onRow: (row: JournalRow) => void;
  readonly onCommand?: (command: JournalCommand) => void;
  /** Called with each line that the screen shows otherwise than it was written, or that it does not show since the budget is exhausted. */
  readonly onWritten?: (row: WrittenRow) => void;
  /** Output that comes after the budget is exhausted is not rendered. Default: a budget of its own. */
  readonly budget?: WorkBudget;
}

/** A row that has not changed for so long is given out. */
export const QUIET_SECONDS = 0.5;
/** Longest line that is given out as one, in characters. */
export const MAX_LINE = 16_384;

/** Reads the output of a session. */
export interface TextJournal {
  /** True if rows are missing because the budget is exhausted. */
  readonly isStopped: boolean;
  /** True if nothing more is read, neither rows nor text as it was written. */
  readonly isExhausted: boolean;
  /** Printable characters that were written and never became visible. */
  readonly hidden: number;
  write(seconds: number, text: string): void;
  resize(seconds: number, columns: number, rows: number): void;
  tick(seconds: number): void;
  /** Gives out what can be read now; more may follow. */
  flush(): void;
  /** The session has ended. */
  end(): void;
}
