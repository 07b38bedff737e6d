/** Reads the lines of a cast into a row journal. Input (`i`) is never read: passwords are there. Pure. */
import { parseCastEvent, parseResize, isCastComment } from '../wire/asciicast/event.ts';
import { hasReversedResize, parseCastHeader } from '../wire/asciicast/header.ts';
import { WireError } from '../wire/wire-error.ts';
import { MAX_WORK, RowJournal, type JournalRow } from './row-journal.ts';
import type { JournalCommand } from './shell-marks.ts';

export interface CastTextOptions {
  readonly onRow: (row: JournalRow) => void;
  readonly onCommand?: (command: JournalCommand) => void;
  /** Characters of output as they are read. */
  readonly onOutput?: (characters: number) => void;
  readonly maxWork?: number;
}

/** Longest line that is read, in characters: a longer one is no event of ours. */
const MAX_LINE = 64 * 1024 ** 2;

/** One per recording. */
export class CastText {
  readonly #options: CastTextOptions;
  #journal: RowJournal | undefined;
  #isVersion3 = false;
  #reversed = false;
  #withoutTerminal = false;
  #seconds = 0;
  #isDamaged = false;

  constructor(options: CastTextOptions) {
    this.#options = options;
  }

  /** Some lines could not be read, or there was more to do than is allowed. */
  get isPartial(): boolean {
    return this.#isDamaged || this.#journal?.isExhausted === true;
  }

  /** The next line, without its line feed; the first one is the header. */
  line(line: string): void {
    try {
      if (this.#journal === undefined) this.#begin(line);
      else if (line !== '' && !isCastComment(line) && line.length <= MAX_LINE)
        this.#event(this.#journal, line);
    } catch (error) {
      if (!(error instanceof WireError)) throw error;
      this.#isDamaged = true;
      this.#journal ??= this.#createJournal(80, 24);
    }
  }

  /** Time passes in a session that is running. */
  tick(seconds: number): void {
    this.#journal?.tick(seconds);
  }

  end(): void {
    this.#journal?.end();
  }

  #begin(line: string): void {
    const header = parseCastHeader(line);
    this.#isVersion3 = header.version === 3;
    this.#reversed = hasReversedResize(header);
    this.#withoutTerminal = header.width === 0 || header.height === 0;
    this.#journal = this.#createJournal(header.width || 80, header.height || 24);
  }

  #createJournal(columns: number, rows: number): RowJournal {
    const { onRow, onCommand, maxWork = MAX_WORK } = this.#options;
    return new RowJournal({
      columns,
      rows,
      onRow,
      maxWork,
      ...(onCommand === undefined ? {} : { onCommand }),
    });
  }

  #event(journal: RowJournal, line: string): void {
    const { seconds, code, data } = parseCastEvent(line);
    this.#seconds = this.#isVersion3 ? this.#seconds + seconds : Math.max(this.#seconds, seconds);
    if (code === 'o') {
      this.#options.onOutput?.(data.length);
      // no terminal driver has added the carriage returns
      journal.write(this.#seconds, this.#withoutTerminal ? data.replaceAll(/\r?\n/g, '\r\n') : data);
    } else if (code === 'r') {
      const { columns, rows } = parseResize(data, { reversed: this.#reversed });
      journal.resize(this.#seconds, columns, rows);
    }
  }
}
