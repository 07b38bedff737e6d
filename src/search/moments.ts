/**
 * Divides the rows of a session into moments, each small enough for a search result, and limits their number. Pure.
 */
import type { JournalCommand } from './shell-marks.ts';
import { ROW_SLACK, type JournalRow } from './text-journal.ts';
import { createSecretFilter, replaceSecrets } from '../secrets.ts';
import { createSeenRows } from './seen-rows.ts';
import type { WrittenRow } from './written-text.ts';

/** Consecutive rows of a session. Plain data. */
export interface Moment {
  /** Times of the first and the last row, in seconds of the session. */
  readonly t0: number;
  readonly t1: number;
  readonly rows: readonly MomentRow[];
  /** The command before these rows. */
  readonly command?: { readonly text: string; readonly isGuessed: boolean };
}

export interface MomentRow {
  readonly at: number;
  readonly text: string;
}

/** Text that is indexed. */
export type IndexedText = 'off' | 'commands' | 'all';

const MOMENT_LIMITS = {
  /**
   * Maximum number of characters of all moments. The first moments get three quarters of these characters, and the
   * last moments get one quarter.
   */
  maxText: 4 * 1024 ** 2,
  maxMoments: 30_000,
  maxCommands: 10_000,
};
export type MomentLimits = Readonly<typeof MOMENT_LIMITS>;

const MAX_MOMENT = 2048;
const MAX_MOMENT_SECONDS = 10;
export interface MomentOptions {
  readonly text: IndexedText;
  readonly limits?: Partial<MomentLimits>;
  readonly onMoment: (moment: Moment) => void;
  /**
   * `onMoment` gets some moments only at the end of the session, or never. `onLate` is called with these moments
   * immediately.
   */
  readonly onLate?: (moment: Moment) => void;
}

/** Moments of one session. */
export class Moments {
  readonly #options: MomentOptions;
  readonly #limits: MomentLimits;
  readonly #filter = createSecretFilter();
  readonly #writtenFilter = createSecretFilter();
  readonly #wasSeen = createSeenRows();
  #rows: MomentRow[] = [];
  #length = 0;
  #command: Moment['command'];
  #commandAt = 0;
  #commands = 0;
  #given = 0;
  #givenMoments = 0;
  #tail: Moment[] = [];
  #tailLength = 0;
  #printed = 0;
  #rowText = 0;
  #isPartial = false;

  constructor(options: MomentOptions) {
    this.#options = options;
    this.#limits = { ...MOMENT_LIMITS, ...options.limits };
  }

  /** True if rows were left out. */
  get isPartial(): boolean {
    return this.#isPartial;
  }

  /**
   * Counts characters of the output. All rows of the screen together may have twice as many characters, plus {@link
   * ROW_SLACK}.
   */
  printed(characters: number): void {
    this.#printed += characters;
  }

  /** Adds a row of the screen. Rows of the screen have a separate limit, so that they cannot displace written lines. */
  row({ at, text }: JournalRow): void {
    if (this.#options.text !== 'all') return;
    if (this.#rowText + text.length > 2 * this.#printed + ROW_SLACK) {
      this.#isPartial = true;
      return;
    }
    if (this.#addRow(at, text, this.#filter)) this.#rowText += text.length;
  }

  /**
   * Adds a written line, which is searched like a row of the screen. Written lines need no separate limit, because
   * their length depends on the length of the output.
   */
  written({ at, text }: WrittenRow): void {
    if (this.#options.text === 'all') this.#addRow(at, text, this.#writtenFilter);
  }

  /** @returns false if an equal row was added within the last ten minutes */
  #addRow(at: number, text: string, filter: (text: string) => string): boolean {
    // The secret filter must read every row, because a repeated row can be the first line of another PEM key.
    const shown = filter(text);
    if (this.#wasSeen(at, text)) return false;
    const [first] = this.#rows;
    if (
      first !== undefined &&
      (this.#length + text.length > MAX_MOMENT || at - first.at > MAX_MOMENT_SECONDS)
    )
      this.#close();
    this.#rows.push({ at, text: shown });
    this.#length += text.length;
    return true;
  }

  command({ at, text, isGuessed }: JournalCommand): void {
    if (this.#options.text === 'off') return;
    this.#commands += 1;
    if (this.#commands > this.#limits.maxCommands) {
      this.#isPartial = true;
      return;
    }
    this.#close();
    this.#command = { text: replaceSecrets(text), isGuessed };
    this.#commandAt = at;
  }

  /** Emits the current moment, if there is one. */
  flush(): void {
    this.#close();
  }

  /** Ends the session and emits the last moments. */
  end(): void {
    this.#close();
    const tail = this.#tail;
    this.#tail = [];
    this.#tailLength = 0;
    for (const moment of tail) this.#options.onMoment(moment);
  }

  #close(): void {
    const rows = this.#rows;
    const command = this.#command;
    if (rows.length === 0 && command === undefined) return;
    const times = rows.map(({ at }) => at);
    if (command !== undefined) times.push(this.#commandAt);
    const moment = {
      t0: Math.min(...times),
      t1: Math.max(...times),
      rows,
      ...(command === undefined ? {} : { command }),
    };
    this.#rows = [];
    this.#length = 0;
    this.#command = undefined;
    this.#add(moment);
  }

  #add(moment: Moment): void {
    const { maxText, maxMoments } = this.#limits;
    const length = lengthOf(moment);
    const room = maxText * 0.75;
    const isFirst =
      this.#tail.length === 0 && this.#given + length <= room && this.#givenMoments < maxMoments * 0.75;
    if (isFirst) {
      this.#given += length;
      this.#givenMoments += 1;
      this.#options.onMoment(moment);
      return;
    }
    this.#options.onLate?.(moment);
    this.#tail.push(moment);
    this.#tailLength += length;
    while (this.#tailLength > room / 3 || this.#tail.length > maxMoments / 4) {
      const oldest = this.#tail.shift();
      if (oldest === undefined) break;
      this.#tailLength -= lengthOf(oldest);
      this.#isPartial = true;
    }
  }
}

function lengthOf({ rows, command }: Moment): number {
  return rows.reduce((sum, { text }) => sum + text.length, command?.text.length ?? 0);
}
