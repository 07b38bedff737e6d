/**
 * Text as a program wrote it, where a screen shows it otherwise: with zero-width characters, in another character set, in
 * pieces between movements of the cursor, in invisible colours, or in control strings. Search reads it in addition to the
 * rows of the screen, and its invisible characters are counted. After the budget of the screen is exhausted, every line is
 * read here. Pure; memory is bounded.
 */
import type { WorkBudget } from '../work-budget.ts';
import type { StringKind } from '../terminal/escape-parser.ts';

/** A line as it was written. */
export interface WrittenRow {
  /** Seconds of the session. */
  readonly at: number;
  readonly text: string;
  /** Printable characters of it that never became visible. */
  readonly hidden: number;
}

/** Characters without width, and strokes through a character: nobody sees that they divide a word. */
const WITHOUT_WIDTH = /\p{Default_Ignorable_Code_Point}|[\u{334}-\u{338}]/gu;
const HAS_WITHOUT_WIDTH = new RegExp(WITHOUT_WIDTH.source, 'u');
const PRINTABLE = /[\p{L}\p{N}\p{P}\p{S}]/gu;
/** Letters that stand for the lines of a drawing in the character set for it. */
const DRAWING = /^[jklmnqtuvwxa`~ ]+$/;
/** Pieces up to this length may be parts of one word. */
const SHORT_PIECE = 16;
/** Maximum length of a line, in UTF-16 code units. */
const MAX_ROW = 2048;
/** Work units per character of a line that is given out. */
const ROW_CHARACTER_WORK = 4;
/** Control strings that are shorter name nothing. */
const MIN_STRING = 4;
/** Titles, links and requests are invisible in honest sessions: so many characters of them count as visible. */
const FREE_CHARACTERS = { start: 512, perVisible: 8, most: 1024 };
/** Longer control strings that are neither title nor link count in full. */
const SHORT_STRING = 64;

/** One per session. */
export class WrittenText {
  readonly #onRow: ((row: WrittenRow) => void) | undefined;
  #hidden = 0;
  #free = FREE_CHARACTERS.start;
  /** Pieces of the line before that one. */
  #row = '';
  #wasShort = false;
  /** A movement of the cursor may have divided a word. */
  #isSplit = false;
  /** The piece that is being written, between two movements of the cursor. */
  #piece = '';
  #isAltered = false;
  #rowHidden = 0;
  /** The pieces of the line with spaces between them; empty while the screen shows them. */
  #spaced = '';
  readonly #budget: WorkBudget | undefined;

  /** @param budget of the screen; undefined if every line is read elsewhere. */
  constructor(onRow: ((row: WrittenRow) => void) | undefined, budget: WorkBudget | undefined) {
    this.#onRow = onRow;
    this.#budget = budget;
  }

  /** Printable characters that never became visible. */
  get hidden(): number {
    return this.#hidden;
  }

  /**
   * Takes printed characters `[start, end)`.
   *
   * @param how `altered`: the screen shows other characters; `invisible`: it shows none.
   */
  print(text: string, start: number, end: number, how: 'plain' | 'altered' | 'invisible'): void {
    const piece = text.slice(start, end);
    if (how === 'altered' && DRAWING.test(piece)) {
      this.#piece += ' ';
      return;
    }
    if (how !== 'plain' || HAS_WITHOUT_WIDTH.test(piece)) this.#isAltered = true;
    if (how === 'invisible') this.hide(printableLength(piece));
    else this.#free = Math.min(FREE_CHARACTERS.most, this.#free + piece.length * FREE_CHARACTERS.perVisible);
    if (this.#piece.length < MAX_ROW) this.#piece += piece;
  }

  /** Takes printed characters that the screen does not show because the budget is exhausted. */
  printUnrendered(seconds: number, text: string, isInvisible: boolean): void {
    for (let at = 0; at < text.length; at += MAX_ROW) {
      this.print(text, at, Math.min(text.length, at + MAX_ROW), isInvisible ? 'invisible' : 'plain');
      if (this.#piece.length < MAX_ROW) continue;
      this.move(seconds);
      this.#give(seconds);
    }
  }

  /** Counts characters of the current line that never became visible. */
  hide(characters: number): void {
    this.#hidden += characters;
    this.#rowHidden += characters;
    if (characters > 0) this.#isAltered = true;
  }

  /** The cursor moves: what is written next stands elsewhere. */
  move(seconds: number): void {
    const piece = this.#piece;
    if (piece === '') return;
    this.#piece = '';
    const isShort = piece.length <= SHORT_PIECE;
    if (this.#row !== '' && !isShort && !this.#wasShort) this.#give(seconds);
    // two long pieces are rows of the screen; a short one may be a part of a word
    if (!this.#isSplit && BEGINS_WITH_WORD.test(piece) && ENDS_IN_WORD.test(this.#row.slice(-2)))
      this.#isSplit = true;
    this.#row += piece;
    if (this.#isUnrendered) this.#spaced += `${piece} `;
    this.#wasShort = isShort;
    if (this.#row.length > MAX_ROW) this.#give(seconds);
  }

  /** The line ends. */
  endLine(seconds: number): void {
    // most lines are one plain piece: a row of the screen
    if (this.#row === '' && !this.#isAltered && !this.#isUnrendered) {
      this.#piece = '';
      return;
    }
    this.move(seconds);
    this.#give(seconds);
  }

  /** Takes the text of a control string. */
  string(seconds: number, kind: StringKind, payload: string): void {
    const characters = printableLength(payload);
    if (characters < MIN_STRING) return;
    let hidden = characters;
    if (kind === 'osc' || kind === 'title' || payload.length <= SHORT_STRING) {
      const free = Math.min(this.#free, characters);
      this.#free -= free;
      hidden -= free;
    }
    this.#hidden += hidden;
    for (const line of decoded(payload).split(/[\r\n]+/)) {
      const text = cleaned(line);
      this.#emit({ at: seconds, text, hidden: Math.min(hidden, text.length) });
    }
  }

  get #isUnrendered(): boolean {
    return this.#budget?.isExhausted === true;
  }

  #emit(row: WrittenRow): void {
    if (row.text === '') return;
    if (this.#budget !== undefined) this.#budget.spent += row.text.length * ROW_CHARACTER_WORK;
    this.#onRow?.(row);
  }

  #give(seconds: number): void {
    const text = this.#isSplit || this.#isAltered || this.#isUnrendered ? cleaned(this.#row) : '';
    this.#emit({ at: seconds, text, hidden: this.#rowHidden });
    // a movement of the cursor may also have separated two words
    if (this.#isSplit) this.#emit({ at: seconds, text: cleaned(this.#spaced), hidden: 0 });
    this.#row = '';
    this.#spaced = '';
    this.#isSplit = false;
    this.#isAltered = false;
    this.#rowHidden = 0;
  }
}

const ENDS_IN_WORD = /[\p{L}\p{N}_]$/u;
const BEGINS_WITH_WORD = /^[\p{L}\p{N}_]/u;

function printableLength(text: string): number {
  return text.match(PRINTABLE)?.length ?? 0;
}

/** Decodes the percent signs of links and command lines: filters for secrets read plain text. */
function decoded(text: string): string {
  return text.replaceAll(/(?:%[0-9a-f]{2})+/gi, (bytes) => {
    try {
      return decodeURIComponent(bytes);
    } catch {
      return bytes;
    }
  });
}

/** Without characters that have no width, and without controls. */
function cleaned(text: string): string {
  return text
    .replaceAll(WITHOUT_WIDTH, '')
    .replaceAll(/\p{Cc}/gu, ' ')
    .trim();
}
