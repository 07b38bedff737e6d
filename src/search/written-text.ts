/**
 * Collects text as a program wrote it, if the screen shows this text differently. Examples are text with zero-width
 * characters, in another charset, in pieces between cursor movements, in invisible colours, in rectangles, and in
 * control strings. Search reads this text in addition to the rows of the screen. The class also counts the invisible
 * characters. After the budget of the screen is exhausted, this class emits every written line. Pure; memory is
 * bounded.
 */
import type { WorkBudget } from '../work-budget.ts';
import { ZERO_WIDTH } from '../terminal/code-points.ts';
import type { StringKind } from '../terminal/escape-parser.ts';
import { isKnownEscape, isKnownSequence } from './terminal/controls.ts';

/** The parts of a screen that are needed to determine the position of characters. */
interface Screen {
  readonly x: number;
  readonly y: number;
  /** Returns the same object for the same row. */
  row(y: number): object;
}

/** A written line. */
export interface WrittenRow {
  /** Time in seconds of the session. */
  readonly at: number;
  readonly text: string;
  /** Number of printable characters of the line that never became visible. */
  readonly hidden: number;
}

/** Zero-width characters, and strokes through a character. Either can prevent a search from finding a word. */
const WITHOUT_WIDTH = /\p{Default_Ignorable_Code_Point}|[\u{334}-\u{338}]/gu;
const HAS_WITHOUT_WIDTH = new RegExp(WITHOUT_WIDTH.source, 'u');
/** Variation selectors, as ranges of a character class. */
const SELECTORS = String.raw`\u{fe00}-\u{fe0f}\u{e0100}-\u{e01ef}`;
const TAGS = String.raw`\u{e0020}-\u{e007e}`;
/** Characters that join the previous character, for example marks and Hangul vowels. */
const JOINING = `[\\p{M}${rangesOf(ZERO_WIDTH)}]`;
const NON_ASCII = /[^\0-\x7f]/;
/** Flag emoji of regions such as Scotland. This is the only legitimate use of tag characters. */
const REGION_FLAG = new RegExp(String.raw`\u{1f3f4}[${TAGS}]{1,6}\u{e007f}`, 'gu');
const TAG = new RegExp(`[${TAGS}]`, 'gu');
/**
 * Matches characters that count as invisible: tag characters; variation selectors after a letter, after an ignorable
 * character, or at the start; every ignorable character after two others; and every joining character after eight
 * others.
 */
const UNSEEN = new RegExp(
  String.raw`[${TAGS}]|(?<=^|[\p{Default_Ignorable_Code_Point}A-Za-z])[${SELECTORS}]|(?<=\p{Default_Ignorable_Code_Point}{2})\p{Default_Ignorable_Code_Point}|(?<=${JOINING}{8})${JOINING}`,
  'gu',
);
/** Number of UTF-16 code units before a piece that are needed to decide whether its characters are {@link UNSEEN}. */
const CONTEXT = 32;
/** Characters except blanks and controls. */
const PRINTABLE = /[^\s\p{Cc}]/gu;
/** Letters that the DEC line-drawing charset shows as lines. */
const DRAWING = /^[jklmnqtuvwxa`~ ]+$/;
/**
 * The most frequent letters of {@link DRAWING}. If these letters are removed, the remaining letters of a drawn box form
 * no word.
 */
const LINES = /[qx`~]+/g;
/** Maximum length of a piece that can be a part of a word. */
const SHORT_PIECE = 16;
/** Maximum length of a piece that counts as one letter. A program may spread the letters of a word over the screen. */
const MAX_SPREAD_PIECE = 2;
/** Length after which a line is emitted in parts, in UTF-16 code units. */
const MAX_ROW = 2048;
/**
 * Maximum overlap of two parts of a line, in characters. Because of the overlap, a word or secret at the boundary is
 * complete in one of the two parts, if it is shorter than the overlap.
 */
const OVERLAP = 128;
/** Work units per character of an emitted line. */
const ROW_CHARACTER_WORK = 4;
/**
 * Minimum length of a control string that is emitted as a separate row. Shorter control strings are emitted only in the
 * row of joined strings.
 */
const MIN_STRING = 4;
/** OSC strings without text: numbers, colour queries and shell marks. */
const OSC_WITHOUT_TEXT = /^(?:(?:[4-9]|1\d{1,2})(?:;(?:\d{1,3}|\?)){0,3}|[16]33;[A-D](?:;\d{1,3})?)$/;
/** Prefix of an OSC string, before its text. */
const OSC_BEGIN = /^\d*;*(?:C;cmdline(?:_url)?=)?/;
/**
 * Maximum length of a control string that is compared with the visible line. Only this many characters at the end of
 * the line are compared.
 */
const MAX_TITLE = 256;
/** Maximum number of remembered control strings, and of window titles in the current line. */
const MAX_TITLES = 16;
/**
 * Number of characters in control strings of one recording that do not count as invisible, because normal programs send
 * links and requests to the terminal.
 */
const FREE_CHARACTERS = 512;
/** Number of characters in fragments (short control strings) of one recording that do not count as invisible. */
const FREE_FRAGMENTS = 16;
/**
 * Maximum length of a short control string, in characters. Longer control strings, except OSC strings, always count as
 * invisible.
 */
const SHORT_STRING = 64;

/** A control string, or characters that a control sequence draws, such as a filled rectangle (DECFRA). */
interface Title {
  readonly at: number;
  readonly payload: string;
  readonly text: string;
  /** True if the line may show this text: a title of at most {@link MAX_TITLE} characters. */
  readonly mayShow: boolean;
  /** True if the string is emitted as a separate row. */
  readonly hasRow: boolean;
  /** True if {@link FREE_CHARACTERS} applies to this control string. */
  readonly isFree: boolean;
  /** Number of characters that count as invisible if {@link hasRow} is false. */
  readonly hidden: number;
}

/** Written text of one session. */
export class WrittenText {
  readonly #onRow: ((row: WrittenRow) => void) | undefined;
  #hidden = 0;
  /** Number of characters that remain of {@link FREE_CHARACTERS}. */
  #free = FREE_CHARACTERS;
  #freeFragments = FREE_FRAGMENTS;
  /** Control strings that occurred before. They are not emitted again, because shells repeat their titles. */
  readonly #known = new Set<string>();
  /** Window titles, which shells often repeat as text in the current line, each with the control strings after it. */
  #titles: Title[] = [];
  /** The last short control string, and the last short control string before the current line. */
  #fragment = '';
  #fragmentBefore = '';
  /** True if the newest short control string is equal to `#fragmentBefore`. */
  #wasRepeated = false;
  /** The last longer control string that was not visible, and the last such string before the current line. */
  #string = '';
  #stringBefore = '';
  /**
   * Previous line, if that line was completely visible. The next title is compared with this line, because shells
   * repeat the command in the title.
   */
  #lineBefore = '';
  /**
   * Joined text of control strings, and of characters that control sequences draw, such as a filled rectangle (DECFRA).
   * This text belongs to no line. The pieces are joined, because together they can form a word.
   */
  #fragments = '';
  #fragmentsHidden = 0;
  /** True if no emitted row contains the joined text. */
  #isJoined = false;
  #drawnRow = 0;
  /** The last letters that the screen shows as drawn lines. */
  #drawn = '';
  /** Pieces of the line before the current piece. */
  #row = '';
  #wasShort = false;
  /** Length of the last piece of the line. */
  #lastLength = 0;
  /** Screen row and column of the cursor after the last characters. */
  #lastRow: object | undefined;
  #lastColumn = 0;
  /** True if a cursor movement may have divided a word. */
  #isSplit = false;
  /** The current piece: the text since the last cursor movement. */
  #piece = '';
  #isAltered = false;
  #rowHidden = 0;
  /** The pieces of the line, separated by spaces; empty while the screen is rendered. */
  #spaced = '';
  readonly #budget: WorkBudget | undefined;

  /** @param budget budget of the screen; undefined if the session has no terminal */
  constructor(onRow: ((row: WrittenRow) => void) | undefined, budget: WorkBudget | undefined) {
    this.#onRow = onRow;
    this.#budget = budget;
  }

  /** Number of printable characters that never became visible. */
  get hidden(): number {
    return this.#hidden;
  }

  /**
   * Adds printed characters `[start, end)`.
   *
   * @param how `altered`: the screen shows other characters; `invisible`: the screen shows no characters.
   */
  print(
    seconds: number,
    text: string,
    start: number,
    end: number,
    how: 'plain' | 'altered' | 'invisible',
  ): void {
    for (let at = start; at < end; at += MAX_ROW) {
      this.#print(text.slice(at, Math.min(end, at + MAX_ROW)), how);
      if (this.#piece.length < MAX_ROW) continue;
      const isPlain = this.#row === '' && !this.#isAltered && !this.#isUnrendered;
      this.#piece = isPlain ? endOf(this.#piece) : this.#givePart(seconds);
    }
  }

  #print(piece: string, how: 'plain' | 'altered' | 'invisible'): void {
    if (how === 'altered' && DRAWING.test(piece)) {
      const drawn = piece.replaceAll(LINES, ' ');
      this.#drawn = (this.#drawn + drawn).slice(-CONTEXT);
      if (/[a-w]{3}/.test(this.#drawn)) this.#isAltered = true;
      this.#piece += drawn;
      return;
    }
    this.#drawn = '';
    if (how !== 'plain') this.#isAltered = true;
    const isAscii = !NON_ASCII.test(piece);
    if (!isAscii && HAS_WITHOUT_WIDTH.test(piece)) this.#isAltered = true;
    if (how === 'invisible') this.hide(printableLength(piece));
    else if (!isAscii) this.hide(unseenLength(this.#piece.slice(-CONTEXT), piece));
    this.#piece += piece;
  }

  /** Counts characters of the current line that never became visible. */
  hide(characters: number): void {
    this.#hidden += characters;
    this.#rowHidden += characters;
    if (characters > 0) this.#isAltered = true;
  }

  /** Marks the current line as shown differently. */
  alter(): void {
    this.#isAltered = true;
  }

  /** Ends the current piece, because the cursor was moved. */
  move(seconds: number): void {
    const piece = this.#piece;
    if (piece === '') return;
    this.#piece = '';
    const isShort = piece.length <= SHORT_PIECE;
    if (this.#row !== '' && !isShort && !this.#wasShort) this.#give(seconds);
    // Two adjacent pieces without a space may be one word.
    if (!this.#isSplit && BEGINS_WITH_WORD.test(piece) && ENDS_IN_WORD.test(this.#row.slice(-2)))
      this.#isSplit = true;
    this.#row += piece;
    if (this.#isUnrendered) this.#spaced += `${piece} `;
    this.#wasShort = isShort;
    this.#lastLength = piece.length;
    if (this.#row.length > MAX_ROW) this.#row = this.#givePart(seconds);
  }

  /**
   * Handles a control character. A tab counts as a space. A line feed ends the line only if the cursor is in the first
   * column. With the cursor in another column, the text in the next row continues the line, because letters below each
   * other may spell a word.
   *
   * @param column column of the cursor
   */
  control(seconds: number, code: number, column: number): void {
    if (code === 0x0d || code === 0x08) this.move(seconds);
    else if (code === 0x09) this.print(seconds, ' ', 0, 1, 'plain');
    else if (code > 0x09 && code < 0x0d && column > 0) this.move(seconds);
    else if (code === 0x85 || (code > 0x09 && code < 0x0d)) this.endLine(seconds);
  }

  /**
   * Compares the position of the cursor with the end of the last printed characters. If the cursor is in another row or
   * further right, the next characters start a new word, as after a line feed or a space. Single letters are an
   * exception: letters that are spread over the screen may spell a word.
   */
  continueAt(seconds: number, screen: Screen): void {
    const isSameRow = screen.row(screen.y) === this.#lastRow;
    if (isSameRow && screen.x <= this.#lastColumn) return;
    this.move(seconds);
    if (this.#row === '' || this.#lastLength <= MAX_SPREAD_PIECE) return;
    if (isSameRow) this.#row += ' ';
    else this.endLine(seconds);
  }

  /** Stores the position of the cursor after characters or a tab. */
  endAt(screen: Screen): void {
    this.#lastRow = screen.row(screen.y);
    this.#lastColumn = screen.x;
  }

  /** Ends the line. */
  endLine(seconds: number): void {
    this.#lineBefore = this.#rowHidden === 0 ? this.#row + this.#piece : '';
    this.#fragmentBefore = this.#fragment;
    if (this.#titles.length > 0) this.#endTitles();
    this.#stringBefore = this.#string;
    // Do not emit a line of one plain piece, because the rows of the screen already contain it.
    if (this.#row === '' && !this.#isAltered && !this.#isUnrendered) {
      this.#piece = '';
      return;
    }
    this.move(seconds);
    this.#give(seconds);
  }

  /** Adds the text of a control string. */
  string(seconds: number, kind: StringKind, payload: string): void {
    if (kind === 'osc' && OSC_WITHOUT_TEXT.test(payload)) return;
    const text = kind === 'osc' ? payload.replace(OSC_BEGIN, '') : payload;
    const characters = printableLength(text);
    if (characters < MIN_STRING) return this.#shortString(seconds, payload, text, characters);
    const mayShow = payload.length <= MAX_TITLE && kind !== 'csi';
    const isKnown = mayShow && this.#known.delete(payload);
    if (mayShow) remember(this.#known, payload);
    // Leave out a window title that a shell repeats with each line. Such a title is not a piece of a text that is
    // divided among several control strings.
    const isRepeated = isKnown && payload === this.#stringBefore;
    this.#stringBefore = '';
    if (isRepeated || (mayShow && this.#isVisible(text))) return;
    const isFree = kind === 'osc' || payload.length <= SHORT_STRING;
    this.#take({ at: seconds, payload, text, mayShow, hasRow: !isKnown, isFree, hidden: 0 });
  }

  #shortString(seconds: number, payload: string, text: string, characters: number): void {
    // Leave out a title that a shell repeats with each line. Keep the first repetition, because it may be a double
    // letter in a text that is spelled with control strings.
    const isRepeated = payload === this.#fragmentBefore;
    const isLeftOut = isRepeated && this.#wasRepeated;
    this.#wasRepeated = isRepeated;
    if (characters > 0) this.#fragment = payload;
    this.#fragmentBefore = '';
    if (isLeftOut) return;
    const hidden = isRepeated ? 0 : Math.max(0, characters - this.#freeFragments);
    if (!isRepeated) this.#freeFragments -= characters - hidden;
    this.#takeFragment(seconds, text, hidden);
  }

  /**
   * Handles a control sequence other than SGR.
   *
   * @param columns columns of the screen
   */
  sequence(seconds: number, name: string, parameters: readonly number[], columns: number): void {
    if (name !== 'b') this.move(seconds);
    if (name === '$x') this.#fill(seconds, parameters, columns);
    else if (!isKnownSequence(name)) this.string(seconds, 'csi', name.slice(-1));
  }

  /** Handles an escape. */
  escape(seconds: number, name: string): void {
    if (!/^[()*+\-./%no|}~\\]/.test(name)) this.move(seconds);
    // Collect the last characters of unknown escapes, because together they may spell a text.
    if (!isKnownEscape(name)) this.string(seconds, 'csi', name.slice(-1));
  }

  /**
   * Reads the parameters of DECFRA (`CSI … $ x`): a character, and top, left, bottom and right of a rectangle to fill.
   * The player does not draw such rectangles, but other terminals do.
   */
  #fill(
    seconds: number,
    [code = 0, top = 1, left = 1, , right = 0]: readonly number[],
    columns: number,
  ): void {
    if (code < 0x20 || (code > 0x7e && code < 0xa0)) return;
    const width = Math.min(right || columns, columns) + 1 - Math.max(left, 1);
    // A large rectangle is a background, not text.
    const text = String.fromCodePoint(code)
      .toWellFormed()
      .repeat(Math.max(0, Math.min(width, SHORT_PIECE)));
    this.draw(seconds, top, text);
  }

  /**
   * Adds characters that a control sequence draws in a screen row, such as a fill or a repetition. The player and the
   * transcript do not contain them as text.
   */
  draw(seconds: number, row: number, text: string): void {
    if (row !== this.#drawnRow) this.#takeFragment(seconds, ' ', 0);
    this.#drawnRow = row;
    this.#takeFragment(seconds, text, printableLength(text));
  }

  /** Emits all pending text. */
  flush(seconds: number): void {
    this.endLine(seconds);
    this.#giveFragments(seconds);
  }

  /** Returns true if the previous or the current line contains the text. Blanks are ignored. */
  #isVisible(text: string): boolean {
    const line = this.#rowHidden === 0 ? this.#row + this.#piece : '';
    if (line === '' && this.#lineBefore === '') return false;
    const title = withoutBlanks(decoded(text));
    return [this.#lineBefore, line].some((shown) => withoutBlanks(shown.slice(-MAX_TITLE)).includes(title));
  }

  #takeFragment(at: number, text: string, hidden: number): void {
    this.#take({ at, payload: text, text, mayShow: false, hasRow: false, isFree: false, hidden });
  }

  /**
   * Adds a control string. If an earlier string waits for the end of the line, this string also waits, so that the
   * strings stay in order.
   */
  #take(title: Title): void {
    if (this.#titles.length === 0 && !title.mayShow) return this.#hideTitle(title);
    this.#titles.push(title);
    if (this.#titles.length > MAX_TITLES) this.#hideTitle(this.#titles.shift() ?? title);
  }

  /**
   * Counts the titles of a line only at the end of the line, because the prompt after a title often shows the same
   * text.
   */
  #endTitles(): void {
    const titles = this.#titles;
    this.#titles = [];
    for (const title of titles) if (!title.mayShow || !this.#isVisible(title.text)) this.#hideTitle(title);
  }

  #hideTitle(title: Title): void {
    const { at, payload, text, mayShow, hasRow, hidden } = title;
    if (hasRow) this.#giveString(title);
    if (mayShow) this.#string = payload;
    this.#hidden += hidden;
    this.#fragmentsHidden += hidden;
    if (text.trim() === '') {
      if (text !== '' && !this.#fragments.endsWith(' ')) this.#fragments += ' ';
      return;
    }
    if (!hasRow || this.#fragments !== '') this.#isJoined = true;
    // A word can continue in another string only at the two ends of a long string, so keep only these ends.
    this.#fragments +=
      text.length > 2 * OVERLAP ? `${text.slice(0, OVERLAP)} ${text.slice(-OVERLAP)}`.toWellFormed() : text;
    if (this.#fragments.length > MAX_ROW) this.#giveFragments(at);
  }

  /** Emits a control string as rows of its own. */
  #giveString({ at, payload, isFree }: Title): void {
    const characters = printableLength(payload);
    const free = isFree ? Math.min(this.#free, characters) : 0;
    this.#free -= free;
    this.#hidden += characters - free;
    for (const line of decoded(payload).split(/[\r\n]+/)) {
      const text = cleaned(line);
      this.#emit({ at, text, hidden: Math.min(characters, text.length) });
    }
  }

  /** Emits the joined strings. The last words are kept, because the next strings may continue them. */
  #giveFragments(seconds: number): void {
    if (!this.#isJoined) return;
    const text = cleaned(decoded(this.#fragments));
    if (text.length < MIN_STRING && this.#fragmentsHidden === 0) return;
    this.#emit({ at: seconds, text, hidden: printableLength(text) });
    this.#fragments = endOf(this.#fragments);
    this.#fragmentsHidden = 0;
    this.#isJoined = false;
  }

  get #isUnrendered(): boolean {
    return this.#budget?.isExhausted === true;
  }

  #emit(row: WrittenRow): void {
    if (row.text === '') return;
    if (this.#budget !== undefined) this.#budget.spent += row.text.length * ROW_CHARACTER_WORK;
    this.#onRow?.(row);
  }

  /**
   * Emits the pending part of a long line. @returns the last words of this part, with which the next part must start
   */
  #givePart(seconds: number): string {
    const row = this.#row + this.#piece;
    const [isSplit, isAltered] = [this.#isSplit, this.#isAltered];
    this.#row = row;
    this.#piece = '';
    this.#give(seconds);
    this.#row = '';
    [this.#isSplit, this.#isAltered] = [isSplit, isAltered];
    return endOf(row);
  }

  #give(seconds: number): void {
    const text = this.#isSplit || this.#isAltered || this.#isUnrendered ? cleaned(this.#row) : '';
    this.#emit({ at: seconds, text, hidden: this.#rowHidden });
    // The pieces may also be separate words, so the line is emitted a second time with spaces.
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

/** Decodes percent encoding in links and command lines, so that secret filters recognize secrets in them. */
function decoded(text: string): string {
  return text.replaceAll(/(?:%[0-9a-f]{2})+/gi, (bytes) => {
    try {
      return decodeURIComponent(bytes);
    } catch {
      return bytes;
    }
  });
}

/** @param pairs first and last code point of each range */
function rangesOf(pairs: readonly number[]): string {
  return pairs.map((code, at) => `${at % 2 === 0 ? '' : '-'}\\u{${code.toString(16)}}`).join('');
}

/** Returns the number of {@link UNSEEN} characters in a piece. */
function unseenLength(before: string, piece: string): number {
  const count = (text: string): number => text.replaceAll(REGION_FLAG, '').match(UNSEEN)?.length ?? 0;
  return Math.max(0, count(before + piece) - count(before));
}

/** Removes zero-width characters. Replaces control characters by spaces, and tag characters by their letters. */
function cleaned(text: string): string {
  return text
    .replaceAll(REGION_FLAG, '\u{1f3f4}')
    .replaceAll(TAG, (tag) => String.fromCodePoint((tag.codePointAt(0) ?? 0) - 0xe0000))
    .replaceAll(WITHOUT_WIDTH, '')
    .replaceAll(/\p{Cc}/gu, ' ')
    .trim();
}

function remember(known: Set<string>, text: string): void {
  const [oldest] = known;
  if (oldest !== undefined && known.size >= MAX_TITLES) known.delete(oldest);
  known.add(text);
}

function withoutBlanks(text: string): string {
  return text.replaceAll(/\s+/g, '');
}

/** Returns the last words of a line. */
function endOf(row: string): string {
  const end = row.slice(-OVERLAP).toWellFormed();
  return end.slice(Math.max(0, end.search(/\s/)));
}
