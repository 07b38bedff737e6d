/**
 * The transcript of a recording: the rows of the row journal with their times, in order. The search index contains the
 * same rows. Pure.
 */
import type { WorkBudget } from '../work-budget.ts';
import { CastText } from './cast-text.ts';
import type { CommandEnd, JournalCommand } from './shell-marks.ts';
import { createSeenRows } from './seen-rows.ts';
import { ROW_SLACK } from './text-journal.ts';
import { TRANSCRIPT_VERSION, type TranscriptDocument } from './transcript-document.ts';

export interface TranscriptOptions {
  /** Maximum number of characters of all rows. The transcript omits later rows. */
  readonly maxText: number;
  readonly maxRows: number;
  readonly onCommand?: (command: JournalCommand) => void;
  readonly onCommandEnd?: (end: CommandEnd) => void;
  /** Work budget. Default: a new budget. */
  readonly budget?: WorkBudget;
}

/** Limits for a transcript that fits into the memory of a browser page. */
export const TRANSCRIPT_LIMITS = { maxText: 8 * 1024 ** 2, maxRows: 100_000 } as const;

/** Maximum number of characters of all lines that contain invisible characters. */
const MAX_HIDDEN_TEXT = 256 * 1024;

/** Builds a transcript from the lines of a cast. */
export class Transcript {
  readonly #cast: CastText;
  #rows: (readonly [number, string])[] = [];
  readonly #hiddenRows: (readonly [number, string])[] = [];
  #hiddenText = 0;
  #isHiddenPartial = false;
  #text = 0;
  #printed = 0;
  #isPartial = false;
  #isFull = false;

  constructor({ maxText, maxRows, onCommand, onCommandEnd, budget }: TranscriptOptions) {
    const wasSeen = createSeenRows();
    this.#cast = new CastText({
      onRow: ({ at, text }) => {
        if (this.#isFull || wasSeen(at, text)) return;
        if (this.#text + text.length > 2 * this.#printed + ROW_SLACK) {
          this.#isPartial = true;
          return;
        }
        this.#text += text.length;
        this.#isFull = this.#text > maxText || this.#rows.length >= maxRows;
        if (!this.#isFull) this.#rows.push([at, text]);
      },
      onOutput: (characters) => {
        this.#printed += characters;
      },
      onWritten: ({ at, text, hidden }) => {
        if (hidden === 0) return;
        if (this.#hiddenText + text.length > MAX_HIDDEN_TEXT) {
          this.#isHiddenPartial = true;
          return;
        }
        this.#hiddenText += text.length;
        this.#hiddenRows.push([at, text]);
      },
      ...(onCommand === undefined ? {} : { onCommand }),
      ...(onCommandEnd === undefined ? {} : { onCommandEnd }),
      ...(budget === undefined ? {} : { budget }),
    });
  }

  /** Reads the next line of the cast. The first line is the header. */
  line(line: string): void {
    // After the limit, lines are parsed only to find invisible characters.
    this.#cast.line(line);
  }

  /** Ends the recording and returns the transcript. */
  end(): TranscriptDocument {
    this.#cast.end();
    // Sort the rows by time, because a row is emitted some time after its last change.
    const rows = this.#rows.toSorted(([left], [right]) => left - right);
    this.#rows = [];
    const { stoppedAt } = this.#cast;
    return {
      version: TRANSCRIPT_VERSION,
      rows,
      isPartial: this.#isFull || this.#isPartial || this.#cast.isPartial,
      hidden: {
        characters: this.#cast.hidden,
        rows: this.#hiddenRows,
        ...(this.#isHiddenPartial ? { isPartial: true } : {}),
      },
      ...(stoppedAt === undefined ? {} : { stoppedAt }),
    };
  }
}
