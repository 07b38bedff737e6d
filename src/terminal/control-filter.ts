/**
 * Rewrites recorded output for a terminal emulator, by the rules of `escape-parser`. The result contains only text and
 * complete sequences, whose parameters are limited to the size of the screen. Control strings are removed, because no
 * view of a recording uses them. The emulator therefore never gets a sequence that its parser rejects, or a parameter
 * that is out of proportion to the screen. Pure.
 */
import { EscapeParser, type StringKind, type TerminalActions } from './escape-parser.ts';

export interface ControlFilterOptions {
  readonly columns: number;
  readonly rows: number;
  /**
   * True if the session had no terminal. Output is then lines of text with colours, and no sequence moves the cursor.
   */
  readonly isLines: boolean;
  /**
   * Returns true if a control sequence may be written to the emulator. Default: every sequence.
   *
   * @param name private prefix, intermediates and final byte.
   * @param parameters the parameters as text.
   */
  readonly allowsSequence?: (name: string, parameters: string) => boolean;
  /** Returns true if an escape of this name may be written to the emulator. Default: every escape. */
  readonly allowsEscape?: (name: string) => boolean;
}

// oxlint-disable-next-line no-control-regex -- the filter looks for controls
const NEEDS_PARSER = /[\x00-\x06\x0e-\x1f\x7f-\x9f]/;
// oxlint-disable-next-line no-control-regex -- as above
const NEEDS_LINES = /[\x00-\x08\x0a-\x1f\x7f-\x9f]/;
/** C0 controls that are passed to the emulator: the bell, and controls that change the screen. */
const C0 = new Set([0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f]);
/**
 * C1 controls that are passed to the emulator, as escape sequences. Controls that start a sequence or a control string
 * are not in the list.
 */
const C1: ReadonlyMap<number, string> = new Map([
  [0x84, '\x1bD'],
  [0x85, '\x1bE'],
  [0x88, '\x1bH'],
]);

/** Filter in front of one emulator. Buffers an incomplete sequence until the next piece of output. */
export class ControlFilter implements TerminalActions {
  readonly #parser: EscapeParser;
  readonly #options: ControlFilterOptions;
  #out = '';
  #hasReturned = false;

  constructor(options: ControlFilterOptions) {
    this.#parser = new EscapeParser(this, options.columns, options.rows);
    this.#options = options;
  }

  /** True if all pushed text has been returned. */
  get isComplete(): boolean {
    return this.#parser.isGround && !this.#hasReturned;
  }

  resize(columns: number, rows: number): void {
    this.#parser.columns = columns;
    this.#parser.rows = rows;
  }

  /** Returns the output to write to the emulator for a piece of recorded output. */
  push(text: string): string {
    if (this.isComplete && !(this.#options.isLines ? NEEDS_LINES : NEEDS_PARSER).test(text)) return text;
    this.#parser.push(text);
    return this.#take();
  }

  /** Returns the remaining output at the end of the session: an unterminated control string, as text. */
  end(): string {
    this.#parser.end();
    return this.#take();
  }

  #take(): string {
    const out = this.#out;
    this.#out = '';
    return out;
  }

  print(text: string, start: number, end: number): void {
    if (this.#hasReturned) this.#breakLine();
    this.#out += text.slice(start, end);
  }

  control(code: number): void {
    if (this.#options.isLines) this.#lineControl(code);
    else if (C0.has(code)) this.#out += String.fromCharCode(code);
    else this.#out += C1.get(code) ?? '';
  }

  csi(name: string, _parameters: readonly number[], text: string): void {
    const { isLines, allowsSequence } = this.#options;
    if ((isLines && name !== 'm') || allowsSequence?.(name, text) === false) return;
    const prefix = /^[<=>?]/.test(name) ? name.slice(0, 1) : '';
    this.#out += `\x1b[${prefix}${text}${name.slice(prefix.length)}`;
  }

  escape(name: string): void {
    const { isLines, allowsEscape } = this.#options;
    if (!isLines && allowsEscape?.(name) !== false) this.#out += `\x1b${name}`;
  }

  /** Without a terminal, nothing executes control strings, so their text is output. */
  string(_kind: StringKind, text: string): void {
    if (!this.#options.isLines) return;
    for (const character of text)
      if (character >= ' ' && character !== '\x7f') this.print(character, 0, character.length);
      else this.#lineControl(character.charCodeAt(0));
  }

  #lineControl(code: number): void {
    if (code === 0x0d) {
      if (this.#hasReturned) this.#breakLine();
      this.#hasReturned = true;
    } else if (code === 0x0a || code === 0x0b || code === 0x0c || code === 0x85) this.#breakLine();
    else if (code === 0x09) {
      if (this.#hasReturned) this.#breakLine();
      this.#out += '\t';
    }
  }

  #breakLine(): void {
    this.#hasReturned = false;
    this.#out += '\r\n';
  }
}
