/**
 * A recording as text with times: the rows of the row journal, in the order in which they could be read, each once while it
 * stood there. What the search index finds is a row of it. Pure.
 */
import type { WorkBudget } from '../work-budget.ts';
import { CastText } from './cast-text.ts';
import type { JournalCommand } from './shell-marks.ts';
import { createSeenRows } from './seen-rows.ts';
import { TRANSCRIPT_VERSION, type TranscriptDocument } from './transcript-document.ts';

export interface TranscriptOptions {
  /** Characters of all rows; what comes after that is left out. */
  readonly maxText: number;
  readonly maxRows: number;
  readonly onCommand?: (command: JournalCommand) => void;
  /** Default: a budget of its own. */
  readonly budget?: WorkBudget;
}

/** What a page holds in memory without harm. */
export const TRANSCRIPT_LIMITS = { maxText: 8 * 1024 ** 2, maxRows: 100_000 } as const;

/** Maximum characters of hidden lines that are kept. */
const MAX_HIDDEN_TEXT = 256 * 1024;

/** Makes one from the lines of a cast. */
export class Transcript {
  readonly #cast: CastText;
  #rows: (readonly [number, string])[] = [];
  readonly #hiddenRows: (readonly [number, string])[] = [];
  #hiddenText = 0;
  #text = 0;
  #isFull = false;

  constructor({ maxText, maxRows, onCommand, budget }: TranscriptOptions) {
    const wasSeen = createSeenRows();
    this.#cast = new CastText({
      onRow: ({ at, text }) => {
        if (this.#isFull || wasSeen(at, text)) return;
        this.#text += text.length;
        this.#isFull = this.#text > maxText || this.#rows.length >= maxRows;
        if (!this.#isFull) this.#rows.push([at, text]);
      },
      onWritten: ({ at, text, hidden }) => {
        if (hidden === 0 || this.#hiddenText + text.length > MAX_HIDDEN_TEXT) return;
        this.#hiddenText += text.length;
        this.#hiddenRows.push([at, text]);
      },
      ...(onCommand === undefined ? {} : { onCommand }),
      ...(budget === undefined ? {} : { budget }),
    });
  }

  /** The next line of the cast, its header first. */
  line(line: string): void {
    // what cannot be kept need not be read
    if (!this.#isFull) this.#cast.line(line);
  }

  /** All of it. */
  end(): TranscriptDocument {
    if (!this.#isFull) this.#cast.end();
    // a row is given out when it goes: one that stood longer comes after one that began later
    const rows = this.#rows.toSorted(([left], [right]) => left - right);
    this.#rows = [];
    const { stoppedAt } = this.#cast;
    return {
      version: TRANSCRIPT_VERSION,
      rows,
      isPartial: this.#isFull || this.#cast.isPartial,
      hidden: { characters: this.#cast.hidden, rows: this.#hiddenRows },
      ...(stoppedAt === undefined ? {} : { stoppedAt }),
    };
  }
}
