/**
 * Splits terminal output into characters, controls, control sequences and control strings (ECMA-48, as the parsers of
 * DEC and xterm read them). Every view of a recording uses this parser, so every view shows the same text. The parser
 * keeps its state between pieces, so sequences may continue in the next piece. Pure. The parser accepts any input, and
 * its memory use is bounded.
 *
 * A recorded program cannot hide output in a control string: a control string that is longer than {@link MAX_STRING}
 * characters, or that is incomplete when the session ends, is text. Numeric parameters are limited to the size of the
 * screen.
 */

/**
 * Kinds of control strings: `osc`, `dcs`, `apc` (also PM and SOS) and `title` (`ESC k`). `csi` is a control sequence
 * that no terminal executes.
 */
export type StringKind = 'osc' | 'dcs' | 'apc' | 'title' | 'csi';

/** Receives the parts of terminal output. */
export interface TerminalActions {
  /** Printable characters `[start, end)` of `text`, without controls. */
  print(text: string, start: number, end: number): void;
  /** A C0 or C1 control. */
  control(code: number): void;
  /**
   * A control sequence.
   *
   * @param name private prefix, intermediates and final byte, e.g. `?h`.
   * @param parameters values without their subparameters, limited to the size of the screen; 0 for an empty parameter.
   * @param text the same parameters as text, with subparameters.
   */
  csi(name: string, parameters: readonly number[], text: string): void;
  /**
   * An escape sequence.
   * @param name intermediates and final byte, e.g. `(0`
   */
  escape(name: string): void;
  /**
   * A complete control string. `text` does not contain the introducer and the terminator, and has at most {@link
   * MAX_STRING} characters.
   */
  string(kind: StringKind, text: string): void;
}

/** Maximum length of a control string, in UTF-16 code units. Longer control strings are text. */
export const MAX_STRING = 4096;
/** Maximum length of the parameters of a control sequence, in characters. */
const MAX_PARAMETER_TEXT = 256;
const MAX_PARAMETERS = 32;
/** Maximum value of parameters other than counts and positions, such as modes and colours. */
const MAX_VALUE = 0xffff;
const MAX_COLLECT = 4;

type State =
  | 'ground'
  | 'escape'
  | 'escapeIntermediate'
  | 'csiEntry'
  | 'csiParameter'
  | 'csiIntermediate'
  | 'csiIgnore'
  | 'string';

/**
 * Limits of parameters. `value` is {@link MAX_VALUE}, for modes, colours and requests; the other limits depend on the
 * size of the screen.
 */
const LIMIT = { position: 0, rows: 1, cells: 2, value: 3 } as const;
/** Limit of the parameters for each final byte of a control sequence. */
const LIMITS = new Uint8Array(0x80);
for (const final of 'STLM') LIMITS[final.charCodeAt(0)] = LIMIT.rows;
for (const final of '@PXIZb}~') LIMITS[final.charCodeAt(0)] = LIMIT.cells;
for (const final of 'mhlnpqtcx') LIMITS[final.charCodeAt(0)] = LIMIT.value;

/** Parser of one terminal's output. */
export class EscapeParser {
  /** Size of the screen in cells, which limits numeric parameters. */
  columns: number;
  rows: number;
  readonly #actions: TerminalActions;
  #state: State = 'ground';
  #collected = '';
  #parameters: number[] = [0];
  #parameterText = '';
  #tooMany = false;
  #inSubParameter = false;
  #kind: StringKind = 'osc';
  #string = '';

  constructor(actions: TerminalActions, columns: number, rows: number) {
    this.#actions = actions;
    this.columns = columns;
    this.rows = rows;
  }

  /** True if no sequence and no control string is incomplete. */
  get isGround(): boolean {
    return this.#state === 'ground';
  }

  /** Text of an unterminated control string. */
  get pendingString(): string {
    return this.#state === 'string' ? this.#string : '';
  }

  /** Ends the session. An incomplete control string or control sequence becomes text. */
  end(): void {
    if (this.#state !== 'ground') this.#reveal();
    this.#state = 'ground';
  }

  push(text: string): void {
    for (let at = 0; at < text.length;) {
      if (this.#state === 'ground') {
        const end = endOfPrintable(text, at);
        if (end > at) {
          this.#actions.print(text, at, end);
          at = end;
          continue;
        }
      } else if (this.#state === 'string') {
        const end = Math.min(endOfPrintable(text, at), at + MAX_STRING + 1 - this.#string.length);
        if (end > at) {
          this.#keep(text.slice(at, end));
          at = end;
          continue;
        }
      }
      const code = text.codePointAt(at) ?? 0;
      this.#take(code);
      at += code > 0xffff ? 2 : 1;
    }
  }

  #take(code: number): void {
    if (this.#anywhere(code)) return;
    const state = this.#state;
    if (state === 'ground') {
      if (code < 0x20) this.#actions.control(code);
    } else if (state.startsWith('escape')) this.#takeEscape(code);
    else if (state === 'string') {
      if (this.#kind === 'osc' && code === 0x07) this.#endString('ground');
      else this.#keep(String.fromCharCode(code));
    } else this.#takeCsi(code);
  }

  /** Handles characters that have the same meaning in every state. */
  #anywhere(code: number): boolean {
    const isIntroducer = code === 0x1b || code === 0x18 || code === 0x1a || (code >= 0x80 && code <= 0x9f);
    if (!isIntroducer) return false;
    if (this.#state === 'string') this.#endString('ground');
    else if (this.#state === 'csiIgnore') this.#endIgnored();
    if (code === 0x1b) this.#begin('escape');
    else if (code < 0x80) {
      this.#state = 'ground';
      this.#actions.control(code);
    } else this.#takeC1(code);
    return true;
  }

  #takeC1(code: number): void {
    switch (code) {
      case 0x90:
        this.#beginString('dcs');
        return;
      case 0x98:
      case 0x9e:
      case 0x9f:
        this.#beginString('apc');
        return;
      case 0x9b:
        this.#begin('csiEntry');
        return;
      case 0x9c:
        this.#state = 'ground';
        return;
      case 0x9d:
        this.#beginString('osc');
        return;
      default:
        this.#state = 'ground';
        this.#actions.control(code);
    }
  }

  #takeEscape(code: number): void {
    if (code < 0x20) this.#actions.control(code);
    else if (code > 0x7f) this.#leave(code);
    else if (code < 0x30) {
      this.#collect(code);
      this.#state = 'escapeIntermediate';
    } else if (code < 0x7f) this.#endEscape(code);
  }

  #endEscape(code: number): void {
    const kind = this.#state === 'escape' ? STRINGS.get(code) : undefined;
    if (this.#state === 'escape' && code === 0x5b) this.#begin('csiEntry');
    else if (kind !== undefined) this.#beginString(kind);
    else {
      this.#state = 'ground';
      this.#actions.escape(this.#collected + String.fromCharCode(code));
    }
  }

  /** Prints a character that cannot be part of a sequence. It ends an incomplete sequence. */
  #leave(code: number): void {
    this.#state = 'ground';
    const text = String.fromCodePoint(code);
    this.#actions.print(text, 0, text.length);
  }

  #takeCsi(code: number): void {
    if (code < 0x20) this.#actions.control(code);
    else if (code === 0x7f) return;
    else if (code > 0x7f) {
      if (this.#state === 'csiIgnore') this.#endIgnored();
      this.#leave(code);
    } else if (code >= 0x40) {
      if (this.#state === 'csiIgnore') this.#endIgnored(String.fromCharCode(code));
      else this.#endCsi(code);
    } else if (this.#state === 'csiIgnore') this.#ignore(code);
    else if (code < 0x30) {
      if (this.#collected.length >= MAX_COLLECT) this.#ignore(code);
      else {
        this.#collect(code);
        this.#state = 'csiIntermediate';
      }
    } else if (this.#state === 'csiIntermediate') this.#ignore(code);
    else if (code >= 0x3c) {
      if (this.#state === 'csiEntry') {
        this.#collect(code);
        this.#state = 'csiParameter';
      } else this.#ignore(code);
    } else {
      this.#state = 'csiParameter';
      this.#parameter(code);
    }
  }

  #endCsi(code: number): void {
    this.#state = 'ground';
    const name = this.#collected + String.fromCharCode(code);
    const most = this.#largest(code);
    const parameters = this.#parameters;
    let isLimited = false;
    for (let index = 0; index < parameters.length; index += 1) {
      if ((parameters[index] ?? 0) <= most) continue;
      parameters[index] = most;
      isLimited = true;
    }
    const text = this.#parameterText;
    this.#actions.csi(name, parameters, isLimited ? limited(text, most) : text);
  }

  /** Returns the maximum value of a parameter. On a screen of this size, larger values have the same effect. */
  #largest(final: number): number {
    switch (LIMITS[final] ?? LIMIT.position) {
      case LIMIT.value:
        return MAX_VALUE;
      case LIMIT.rows:
        return this.rows;
      case LIMIT.cells:
        return this.columns;
      default:
        return Math.max(this.columns, this.rows);
    }
  }

  #parameter(code: number): void {
    this.#parameterText += String.fromCharCode(code);
    if (this.#parameterText.length > MAX_PARAMETER_TEXT) {
      this.#state = 'csiIgnore';
      return;
    }
    if (code === 0x3b) {
      this.#inSubParameter = false;
      if (this.#parameters.length >= MAX_PARAMETERS) this.#tooMany = true;
      else this.#parameters.push(0);
    } else if (code === 0x3a) this.#inSubParameter = true;
    else if (!this.#tooMany && !this.#inSubParameter) {
      const last = this.#parameters.length - 1;
      this.#parameters[last] = Math.min((this.#parameters[last] ?? 0) * 10 + code - 0x30, 1e9);
    }
  }

  /**
   * Skips a character of a sequence that no terminal executes. A sequence with too many such characters is read as
   * text.
   */
  #ignore(code: number): void {
    this.#state = 'csiIgnore';
    this.#parameterText += String.fromCharCode(code);
    if (this.#parameterText.length > MAX_STRING) this.#reveal();
  }

  #endIgnored(final = ''): void {
    this.#state = 'ground';
    this.#actions.string('csi', this.#parameterText + final);
  }

  #collect(code: number): void {
    if (this.#collected.length < MAX_COLLECT) this.#collected += String.fromCharCode(code);
  }

  #begin(state: State): void {
    this.#state = state;
    this.#collected = '';
    this.#parameters = [0];
    this.#parameterText = '';
    this.#tooMany = false;
    this.#inSubParameter = false;
  }

  #beginString(kind: StringKind): void {
    this.#state = 'string';
    this.#kind = kind;
    this.#string = '';
  }

  #keep(text: string): void {
    this.#string += text;
    if (this.#string.length > MAX_STRING) this.#reveal();
  }

  /**
   * Reads an incomplete control string or control sequence as text. The text contains neither an escape nor a C1
   * control.
   */
  #reveal(): void {
    const text = this.#state === 'string' ? this.#string : this.#collected + this.#parameterText;
    this.#string = '';
    this.#state = 'ground';
    this.push(text);
  }

  #endString(next: State): void {
    this.#state = next;
    const text = this.#string;
    this.#string = '';
    this.#actions.string(this.#kind, text);
  }
}

/** Kinds of control strings. Map keys: code of the character after the escape. */
const STRINGS: ReadonlyMap<number, StringKind> = new Map([
  [0x50, 'dcs'],
  [0x58, 'apc'],
  [0x5d, 'osc'],
  [0x5e, 'apc'],
  [0x5f, 'apc'],
  [0x6b, 'title'],
]);

function limited(text: string, most: number): string {
  return text.replaceAll(/\d+/g, (digits) => (Number(digits) > most ? String(most) : digits));
}

/** Returns the end of the run of printable characters from `start`. */
function endOfPrintable(text: string, start: number): number {
  let end = start;
  for (; end < text.length; end += 1) {
    const code = text.charCodeAt(end);
    if (code < 0x20 || (code > 0x7e && code < 0xa0)) break;
  }
  return end;
}
