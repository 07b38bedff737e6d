/**
 * Text as a program wrote it, if the screen shows it differently: with zero-width characters, in another character set,
 * in pieces between cursor movements, in invisible colours, in rectangles, or in control strings. Search reads it in
 * addition to the rows of the screen, and its invisible characters are counted. After the budget of the screen is
 * exhausted, each line is read here. Pure; memory is bounded.
 */
import type { WorkBudget } from '../work-budget.ts';
import type { StringKind } from '../terminal/escape-parser.ts';

/** The part of a screen that tells where characters appear. */
interface Screen {
  readonly x: number;
  readonly y: number;
  /** Returns the same object for the same row. */
  row(y: number): object;
}

/** A written line. */
export interface WrittenRow {
  /** Seconds of the session. */
  readonly at: number;
  readonly text: string;
  /** Number of its printable characters that never became visible. */
  readonly hidden: number;
}

/** Characters without width, and strokes through a character, which divide a word invisibly. */
const WITHOUT_WIDTH = /\p{Default_Ignorable_Code_Point}|[\u{334}-\u{338}]/gu;
const HAS_WITHOUT_WIDTH = new RegExp(WITHOUT_WIDTH.source, 'u');
/** Ranges of a character class. */
const SELECTORS = String.raw`\u{fe00}-\u{fe0f}\u{e0100}-\u{e01ef}`;
const TAGS = String.raw`\u{e0020}-\u{e007e}`;
const MARKS = String.raw`\p{M}`;
const NON_ASCII = /[^\0-\x7f]/;
/** Flags of regions such as Scotland, the only use of tag characters. */
const REGION_FLAG = new RegExp(String.raw`\u{1f3f4}[${TAGS}]{1,6}\u{e007f}`, 'gu');
const TAG = new RegExp(`[${TAGS}]`, 'gu');
/**
 * Invisible characters: tag characters, variation selectors without a base character, more than two characters without
 * width, and more marks than the player shows.
 */
const UNSEEN = new RegExp(
  String.raw`[${TAGS}]|(?<=^|[\p{Default_Ignorable_Code_Point}A-Za-z])[${SELECTORS}]|(?<=\p{Default_Ignorable_Code_Point}{2})\p{Default_Ignorable_Code_Point}|(?<=${MARKS}{8})${MARKS}`,
  'gu',
);
/** UTF-16 code units before a piece that decide whether its characters are {@link UNSEEN}. */
const CONTEXT = 32;
const PRINTABLE = /[\p{L}\p{N}\p{P}\p{S}]/gu;
/** Letters that represent lines in the drawing character set. */
const DRAWING = /^[jklmnqtuvwxa`~ ]+$/;
/** Pieces up to this length may be parts of one word. */
const SHORT_PIECE = 16;
/** Maximum length of a piece of a word whose letters are spread over the screen. */
const MAX_SPREAD_PIECE = 2;
/** Maximum length of a line, in UTF-16 code units. */
const MAX_ROW = 2048;
/** Work units per character of an emitted line. */
const ROW_CHARACTER_WORK = 4;
/** Minimum length of a meaningful control string. Many shorter ones may spell a text. */
const MIN_STRING = 4;
/** Numbers, colour queries and shell marks in an OSC string, which contain no text. */
const OSC_WITHOUT_TEXT = /^(?:(?:[4-9]|[1-9]\d+)(?:;[\d;?]*)?|[16]33;[A-D](?:;\d{1,3})?)$/;
/** Longer control strings that are neither title nor link count in full. So do longer titles of `ESC k`. */
const SHORT_STRING = 64;
/** A window title, an icon name, or both (OSC 0, 1 and 2). */
const WINDOW_TITLE = /^[012];/;
/** Maximum number of characters of different window titles that count as visible in one recording. */
const MAX_TITLE_CHARACTERS = 65_536;
/** Maximum length of a remembered window title. */
const MAX_KNOWN_TITLE = 256;
/** Maximum number of remembered titles. */
const MAX_TITLES = 16;

/**
 * Normal sessions write some invisible text. An allowance of it counts as visible; visible output refills the
 * allowance.
 */
class Allowance {
  #left: number;
  readonly #perVisible: number;
  readonly #most: number;

  /** @param perVisible refill for each visible character. */
  constructor({ start, perVisible, most }: { start: number; perVisible: number; most: number }) {
    this.#left = start;
    this.#perVisible = perVisible;
    this.#most = most;
  }

  refill(visible: number): void {
    this.#left = Math.min(this.#most, this.#left + visible * this.#perVisible);
  }

  /** Returns how many of the wanted ones are allowed. */
  take(wanted: number): number {
    const taken = Math.min(Math.floor(this.#left), wanted);
    this.#left -= taken;
    return taken;
  }
}

/** Written text of one session. */
export class WrittenText {
  readonly #onRow: ((row: WrittenRow) => void) | undefined;
  #hidden = 0;
  /** Characters of links and requests. */
  readonly #freeCharacters = new Allowance({ start: 512, perVisible: 8, most: 1024 });
  /** Characters of control strings shorter than {@link MIN_STRING}. */
  readonly #freeFragments = new Allowance({ start: 8, perVisible: 0.5, most: 16 });
  /** Characters of different window titles: shells repeat their prompt and the command in them. */
  readonly #freeTitleCharacters = new Allowance({ start: 512, perVisible: 1, most: 512 });
  #titleCharactersLeft = MAX_TITLE_CHARACTERS;
  readonly #windowTitles = new Set<string>();
  /** Different titles of `ESC k`: a few for each screenful. */
  readonly #freeTitles = new Allowance({ start: 4, perVisible: 1 / 240, most: 4 });
  readonly #titles = new Set<string>();
  /** The line before this one, if all of it was visible: a shell repeats its command in the title. */
  #lineBefore = '';
  /** Short control strings and text in rectangles, which are not part of a line. */
  #fragments = '';
  #fragmentsHidden = 0;
  #drawnRow = 0;
  /** Pieces of the line before that one. */
  #row = '';
  #wasShort = false;
  /** Length of the last piece of the line. */
  #lastLength = 0;
  /** Row and column of the screen behind the last characters. */
  #lastRow: object | undefined;
  #lastColumn = 0;
  /** True if a cursor movement may have divided a word. */
  #isSplit = false;
  /** The current piece, between two cursor movements. */
  #piece = '';
  #isAltered = false;
  #rowHidden = 0;
  /** The pieces of the line with spaces between them; empty while the screen shows them. */
  #spaced = '';
  readonly #budget: WorkBudget | undefined;

  /** @param budget budget of the screen; undefined if each line is read elsewhere */
  constructor(onRow: ((row: WrittenRow) => void) | undefined, budget: WorkBudget | undefined) {
    this.#onRow = onRow;
    this.#budget = budget;
  }

  /** Number of printable characters that never became visible. */
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
    if (how !== 'plain') this.#isAltered = true;
    if (NON_ASCII.test(piece)) {
      if (HAS_WITHOUT_WIDTH.test(piece)) this.#isAltered = true;
      this.hide(unseenLength(this.#piece.slice(-CONTEXT), piece));
    }
    if (how === 'invisible') this.hide(printableLength(piece));
    else this.#refill(piece.trim().length);
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

  /** Reports a cursor movement. */
  move(seconds: number): void {
    const piece = this.#piece;
    if (piece === '') return;
    this.#piece = '';
    const isShort = piece.length <= SHORT_PIECE;
    if (this.#row !== '' && !isShort && !this.#wasShort) this.#give(seconds);
    // Long pieces are rows of the screen; a short piece may be part of a word.
    if (!this.#isSplit && BEGINS_WITH_WORD.test(piece) && ENDS_IN_WORD.test(this.#row.slice(-2)))
      this.#isSplit = true;
    this.#row += piece;
    if (this.#isUnrendered) this.#spaced += `${piece} `;
    this.#wasShort = isShort;
    this.#lastLength = piece.length;
    if (this.#row.length > MAX_ROW) this.#give(seconds);
  }

  /** Takes a control character. A tab is a space. */
  control(seconds: number, code: number): void {
    if (code === 0x0d || code === 0x08) this.move(seconds);
    else if (code === 0x09) this.print(' ', 0, 1, 'plain');
    else if (code === 0x85 || (code > 0x09 && code < 0x0d)) this.endLine(seconds);
  }

  /**
   * Compares the cursor with the end of the last characters. In another row, or behind blank cells, the next characters
   * are not part of the word before, as after a line feed or a space. Letters that are spread over the screen one by one
   * may be a word.
   */
  continueAt(seconds: number, screen: Screen): void {
    const isSameRow = screen.row(screen.y) === this.#lastRow;
    if (isSameRow && screen.x <= this.#lastColumn) return;
    this.move(seconds);
    if (this.#row === '' || this.#lastLength <= MAX_SPREAD_PIECE) return;
    if (isSameRow) this.#row += ' ';
    else this.endLine(seconds);
  }

  /** Takes the cursor after characters or a tab. */
  endAt(screen: Screen): void {
    this.#lastRow = screen.row(screen.y);
    this.#lastColumn = screen.x;
  }

  /** Ends the line. */
  endLine(seconds: number): void {
    this.#lineBefore = this.#rowHidden === 0 ? this.#row + this.#piece : '';
    // Most lines are one plain piece, which is a row of the screen.
    if (this.#row === '' && !this.#isAltered && !this.#isUnrendered) {
      this.#piece = '';
      return;
    }
    this.move(seconds);
    this.#give(seconds);
  }

  /** Takes the text of a control string. */
  string(seconds: number, kind: StringKind, payload: string): void {
    if (kind === 'osc' && OSC_WITHOUT_TEXT.test(payload)) return;
    const fragment = kind === 'osc' ? payload.replace(/^\d+;*/, '') : payload;
    const fragmentLength = printableLength(fragment);
    if (fragmentLength < MIN_STRING) {
      this.#addFragment(seconds, fragment, fragmentLength - this.#freeFragments.take(fragmentLength));
      return;
    }
    const characters = printableLength(payload);
    let hidden = characters;
    if (kind === 'title') hidden = this.#isFreeTitle(payload) ? 0 : characters;
    else if (kind === 'osc' && WINDOW_TITLE.test(payload))
      hidden -= this.#takeWindowTitle(fragment, characters);
    else if (kind === 'osc' || payload.length <= SHORT_STRING)
      hidden -= this.#freeCharacters.take(characters);
    this.#hidden += hidden;
    for (const line of decoded(payload).split(/[\r\n]+/)) {
      const text = cleaned(line);
      this.#emit({ at: seconds, text, hidden: Math.min(hidden, text.length) });
    }
  }

  /**
   * Reads the parameters of DECFRA (`CSI … $ x`): a character, and top, left, bottom and right of a rectangle to fill.
   * Terminals other than the player draw the rectangle.
   *
   * @param columns columns of the screen
   */
  fill(
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

  /** Reads text that a sequence draws in a row and that no view shows. */
  draw(seconds: number, row: number, text: string): void {
    if (row !== this.#drawnRow) this.#addFragment(seconds, ' ', 0);
    this.#drawnRow = row;
    this.#addFragment(seconds, text, printableLength(text));
  }

  /** Emits all pending text. */
  flush(seconds: number): void {
    this.endLine(seconds);
    this.#giveFragments(seconds);
  }

  #refill(visible: number): void {
    this.#freeCharacters.refill(visible);
    this.#freeFragments.refill(visible);
    this.#freeTitles.refill(visible);
    this.#freeTitleCharacters.refill(visible);
  }

  /** Returns how many characters of a window title count as visible. The player shows no titles, so a program could hide text in them. */
  #takeWindowTitle(title: string, characters: number): number {
    if (title.length <= MAX_KNOWN_TITLE) {
      const isKnown = this.#windowTitles.delete(title);
      remember(this.#windowTitles, title);
      if (isKnown) return characters;
    }
    const taken = this.#freeTitleCharacters.take(Math.min(characters, this.#titleCharactersLeft));
    this.#titleCharactersLeft -= taken;
    return taken;
  }

  /** Terminals other than screen and tmux print the title of `ESC k`, so a user may have read it. */
  #isFreeTitle(title: string): boolean {
    if (title.length > SHORT_STRING) return false;
    const isKnown = this.#titles.delete(title) || this.#lineBefore.includes(title);
    remember(this.#titles, title);
    return isKnown || this.#freeTitles.take(1) === 1;
  }

  #addFragment(seconds: number, text: string, hidden: number): void {
    this.#hidden += hidden;
    this.#fragmentsHidden += hidden;
    if (text.trim() !== '') this.#fragments += text;
    else if (text !== '' && !this.#fragments.endsWith(' ')) this.#fragments += ' ';
    if (this.#fragments.length > MAX_ROW) this.#giveFragments(seconds);
  }

  #giveFragments(seconds: number): void {
    const text = cleaned(this.#fragments);
    if (text.length >= MIN_STRING || this.#fragmentsHidden > 0)
      this.#emit({ at: seconds, text, hidden: this.#fragmentsHidden });
    this.#fragments = '';
    this.#fragmentsHidden = 0;
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
    // The cursor movement may also have separated two words.
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

/** Decodes percent encoding in links and command lines, so that secret filters read plain text. */
function decoded(text: string): string {
  return text.replaceAll(/(?:%[0-9a-f]{2})+/gi, (bytes) => {
    try {
      return decodeURIComponent(bytes);
    } catch {
      return bytes;
    }
  });
}

/** Returns the number of {@link UNSEEN} characters in a piece. */
function unseenLength(before: string, piece: string): number {
  const count = (text: string): number => text.replaceAll(REGION_FLAG, '').match(UNSEEN)?.length ?? 0;
  return Math.max(0, count(before + piece) - count(before));
}

/** Removes zero-width characters and controls, and replaces tag characters by their letters. */
function cleaned(text: string): string {
  return text
    .replaceAll(REGION_FLAG, '\u{1f3f4}')
    .replaceAll(TAG, (tag) => String.fromCodePoint((tag.codePointAt(0) ?? 0) - 0xe0000))
    .replaceAll(WITHOUT_WIDTH, '')
    .replaceAll(/\p{Cc}/gu, ' ')
    .trim();
}

function remember(titles: Set<string>, title: string): void {
  const [oldest] = titles;
  if (oldest !== undefined && titles.size >= MAX_TITLES) titles.delete(oldest);
  titles.add(title);
}
