/**
 * Splits what a terminal is sent into characters, controls and sequences (ECMA-48, as DEC's and xterm's parsers read
 * them). Keeps its place between two pieces, wherever they were cut. Pure; takes any input; memory is bounded.
 */

/** What a terminal is told. */
export interface TerminalActions {
  /** Printable characters `[start, end)` of `text`: no controls among them. */
  print(text: string, start: number, end: number): void;
  /** A C0 or C1 control. */
  control(code: number): void;
  /** `name`: private prefix, intermediates and final byte, e.g. `?h`. */
  csi(name: string, parameters: readonly number[]): void;
  /** `name`: intermediates and final byte, e.g. `(0`. */
  escape(name: string): void;
  /** A whole operating system command, cut at {@link MAX_OSC} characters. */
  osc(text: string): void;
}

/** Longest operating system command that is kept, in UTF-16 code units. */
const MAX_OSC = 8192;
const MAX_PARAMETERS = 32;
const MAX_VALUE = 0x7fffffff;
const MAX_COLLECT = 4;

type State =
  | 'ground'
  | 'escape'
  | 'escapeIntermediate'
  | 'csiEntry'
  | 'csiParameter'
  | 'csiIntermediate'
  | 'csiIgnore'
  | 'osc'
  | 'dcsEntry'
  | 'dcsParameter'
  | 'dcsIntermediate'
  | 'dcsBody'
  | 'string';

/** One per terminal. */
export class EscapeParser {
  readonly #actions: TerminalActions;
  #state: State = 'ground';
  #collected = '';
  #parameters: number[] = [0];
  #tooMany = false;
  #inSubParameter = false;
  #osc = '';

  constructor(actions: TerminalActions) {
    this.#actions = actions;
  }

  /** Back to plain text. */
  reset(): void {
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
      } else if (this.#state === 'osc' || this.#state === 'string' || this.#state === 'dcsBody') {
        const end = endOfPrintable(text, at);
        if (end > at) {
          if (this.#state === 'osc' && this.#osc.length < MAX_OSC)
            this.#osc += text.slice(at, Math.min(end, at + MAX_OSC - this.#osc.length));
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
    else if (state.startsWith('csi')) this.#takeCsi(code);
    else if (state.startsWith('dcs')) this.#takeDcs(code);
    else if (state === 'osc' && code === 0x07) this.#endOsc('ground');
  }

  /** What means the same in every state. */
  #anywhere(code: number): boolean {
    if (code === 0x1b) {
      if (this.#state === 'osc') this.#endOsc('escape');
      this.#begin('escape');
      return true;
    }
    if (code === 0x18 || code === 0x1a) {
      this.#state = 'ground';
      this.#actions.control(code);
      return true;
    }
    if (code < 0x80 || code > 0x9f) return false;
    this.#takeC1(code);
    return true;
  }

  #takeC1(code: number): void {
    switch (code) {
      case 0x90:
        this.#begin('dcsEntry');
        return;
      case 0x98:
      case 0x9e:
      case 0x9f:
        this.#state = 'string';
        return;
      case 0x9b:
        this.#begin('csiEntry');
        return;
      case 0x9c:
        if (this.#state === 'osc') this.#endOsc('ground');
        else this.#state = 'ground';
        return;
      case 0x9d:
        this.#beginOsc();
        return;
      default:
        this.#state = 'ground';
        this.#actions.control(code);
    }
  }

  #takeEscape(code: number): void {
    if (code < 0x20) this.#actions.control(code);
    else if (code > 0x7f) this.#state = 'ground';
    else if (code < 0x30) {
      this.#collect(code);
      this.#state = 'escapeIntermediate';
    } else if (code < 0x7f) this.#endEscape(code);
  }

  #endEscape(code: number): void {
    if (this.#state === 'escape' && code === 0x5b) this.#begin('csiEntry');
    else if (this.#state === 'escape' && code === 0x5d) this.#beginOsc();
    else if (this.#state === 'escape' && code === 0x50) this.#begin('dcsEntry');
    else if (this.#state === 'escape' && (code === 0x58 || code === 0x5e || code === 0x5f))
      this.#state = 'string';
    else {
      this.#state = 'ground';
      this.#actions.escape(this.#collected + String.fromCharCode(code));
    }
  }

  #takeCsi(code: number): void {
    if (code < 0x20) this.#actions.control(code);
    else if (code === 0x7f) return;
    else if (code > 0x7f) {
      if (this.#state !== 'csiIgnore') this.#state = 'ground';
    } else if (code >= 0x40) {
      const ignored = this.#state === 'csiIgnore';
      this.#state = 'ground';
      if (!ignored) this.#actions.csi(this.#collected + String.fromCharCode(code), this.#parameters);
    } else if (this.#state === 'csiIgnore') return;
    else if (code < 0x30) {
      this.#collect(code);
      this.#state = 'csiIntermediate';
    } else if (this.#state === 'csiIntermediate') this.#state = 'csiIgnore';
    else if (code >= 0x3c) {
      if (this.#state === 'csiEntry') {
        this.#collect(code);
        this.#state = 'csiParameter';
      } else this.#state = 'csiIgnore';
    } else {
      this.#parameter(code);
      this.#state = 'csiParameter';
    }
  }

  #takeDcs(code: number): void {
    if (this.#state === 'dcsBody' || code < 0x20 || code === 0x7f) return;
    if (code > 0x7f) this.#state = 'ground';
    else if (code >= 0x40) this.#state = 'dcsBody';
    else if (code < 0x30) this.#state = 'dcsIntermediate';
    else if (this.#state === 'dcsIntermediate') this.#state = 'dcsBody';
    else if (code >= 0x3c) this.#state = this.#state === 'dcsEntry' ? 'dcsParameter' : 'dcsBody';
    else this.#state = 'dcsParameter';
  }

  #parameter(code: number): void {
    if (code === 0x3b) {
      this.#inSubParameter = false;
      if (this.#parameters.length >= MAX_PARAMETERS) this.#tooMany = true;
      else this.#parameters.push(0);
    } else if (code === 0x3a) this.#inSubParameter = true;
    else if (!this.#tooMany && !this.#inSubParameter) {
      const last = this.#parameters.length - 1;
      const value = (this.#parameters[last] ?? 0) * 10 + code - 0x30;
      this.#parameters[last] = Math.min(value, MAX_VALUE);
    }
  }

  #collect(code: number): void {
    if (this.#collected.length < MAX_COLLECT) this.#collected += String.fromCharCode(code);
  }

  #begin(state: State): void {
    this.#state = state;
    this.#collected = '';
    this.#parameters = [0];
    this.#tooMany = false;
    this.#inSubParameter = false;
  }

  #beginOsc(): void {
    this.#state = 'osc';
    this.#osc = '';
  }

  #endOsc(next: State): void {
    this.#state = next;
    const text = this.#osc;
    this.#osc = '';
    this.#actions.osc(text);
  }
}

/** Where the run of characters that are no controls ends. */
function endOfPrintable(text: string, start: number): number {
  let end = start;
  for (; end < text.length; end += 1) {
    const code = text.charCodeAt(end);
    if (code < 0x20 || (code > 0x7e && code < 0xa0)) break;
  }
  return end;
}
