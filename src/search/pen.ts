/**
 * Tracks the colours of output to detect invisible text: concealed text, and text in the colour of its background.
 * Colours are compared as the player shows them. Pure.
 */
import { INK, paletteColour, PAPER } from '../terminal/palette.ts';

/** State that is saved and restored together with the cursor. Colours are `0xRRGGBB`. */
export interface PenState {
  readonly isConcealed: boolean;
  readonly isDim: boolean;
  readonly foreground: number;
  readonly background: number;
}

/**
 * Text is unreadable if red, green and blue each differ from the background by at most this value. For black text on
 * {@link PAPER}, the largest difference is exactly this value.
 */
const SAME_COLOUR = 24;
/** Opacity of dim text in the player. */
export const DIM_OPACITY = 0.65;
/** Maximum number of parameters, and of subparameters, that the emulator reads. */
const MAX_PARAMETERS = 32;
/** Number of values in a colour: code, kind, colour space, and three components. */
const COLOUR_LENGTH = 6;

const DEFAULT: PenState = { isConcealed: false, isDim: false, foreground: INK, background: PAPER };

export class Pen {
  #state = DEFAULT;
  #isInvisible = false;

  /** True if newly written text is invisible. */
  get isInvisible(): boolean {
    return this.#isInvisible;
  }

  get state(): PenState {
    return this.#state;
  }

  /** Restores a saved state, or the default state if `state` is undefined. */
  restore(state: PenState = DEFAULT): void {
    this.#state = state;
    const { isConcealed, isDim, foreground, background } = state;
    this.#isInvisible = isConcealed || isSame(foreground, background, isDim ? DIM_OPACITY : 1);
  }

  /** Applies the parameters of `CSI … m`. */
  take(parameters: string): void {
    const only = Number(parameters);
    this.restore(Number.isNaN(only) ? takeAll(this.#state, parameters) : takeCode(this.#state, only));
  }
}

/** Applies several parameters, or parameters with subparameters. */
function takeAll(before: PenState, parameters: string): PenState {
  let left = MAX_PARAMETERS;
  const codes = parameters
    .split(';')
    .slice(0, MAX_PARAMETERS)
    .map((parameter) => {
      const [code = '', ...rest] = parameter.split(':');
      const subparameters = rest.slice(0, left).map((value) => (value === '' ? -1 : Number(value)));
      left -= subparameters.length;
      return { code: Number(code), subparameters };
    });
  let state = before;
  for (let at = 0; at < codes.length; at += 1) {
    const { code = 0 } = codes[at] ?? {};
    // 38: foreground, 48: background, 58: underline
    if (code !== 38 && code !== 48 && code !== 58) {
      state = takeCode(state, code);
      continue;
    }
    const { colour, more } = readColour(codes.slice(at));
    at += more;
    if (colour === undefined || code === 58) continue;
    state = { ...state, [code === 38 ? 'foreground' : 'background']: colour };
  }
  return state;
}

/**
 * Reads a colour as the emulator does: `38;5;n`, `38;2;r;g;b`, `38:5:n`, `38:2::r:g:b`, and mixtures such as `38;5:n`.
 *
 * @returns the colour; `more` is the number of its parameters after the first parameter
 */
function readColour(codes: readonly { readonly code: number; readonly subparameters: readonly number[] }[]) {
  // index 2 is the colour space, which occurs only among subparameters
  const values = [0, 0, -1, 0, 0, 0];
  let space = 0;
  let more = 0;
  for (;;) {
    const { code = 0, subparameters = [] } = codes[more] ?? {};
    values[more + space] = code;
    if (subparameters.length > 0) {
      readSubparameters(values, subparameters, more, space);
      break;
    }
    if ((values[1] === 5 && more + space >= 2) || (values[1] === 2 && more + space >= 5)) break;
    if (values[1] !== 0) space = 1;
    more += 1;
    if (more >= codes.length || more + space >= COLOUR_LENGTH) break;
  }
  return { colour: colourOf(values), more };
}

function readSubparameters(
  values: number[],
  subparameters: readonly number[],
  more: number,
  before: number,
): void {
  let space = before;
  for (const [index, value] of subparameters.entries()) {
    if (index > 0 && index + more + 1 + space >= COLOUR_LENGTH) return;
    if (values[1] === 5) space = 1;
    values[more + index + 1 + space] = value;
  }
}

function colourOf([, kind, , ...values]: readonly number[]): number | undefined {
  const [red = 0, green = 0, blue = 0] = values.map((value) => Math.max(0, value) & 0xff);
  if (kind === 5) return paletteColour(red);
  return kind === 2 ? (red << 16) | (green << 8) | blue : undefined;
}

const FLAGS: ReadonlyMap<number, Partial<PenState>> = new Map([
  [2, { isDim: true }],
  [22, { isDim: false }],
  [8, { isConcealed: true }],
  [28, { isConcealed: false }],
]);

function takeCode(state: PenState, code: number): PenState {
  if (code === 0) return DEFAULT;
  const flag = FLAGS.get(code);
  if (flag !== undefined) return { ...state, ...flag };
  if (code >= 30 && code <= 37) return { ...state, foreground: paletteColour(code - 30) };
  if (code === 39) return { ...state, foreground: INK };
  if (code >= 40 && code <= 47) return { ...state, background: paletteColour(code - 40) };
  if (code === 49) return { ...state, background: PAPER };
  if (code >= 90 && code <= 97) return { ...state, foreground: paletteColour(code - 82) };
  if (code >= 100 && code <= 107) return { ...state, background: paletteColour(code - 92) };
  return state;
}

/** @param opacity opacity of a cell, that is, of its text and its background, on {@link PAPER} */
function isSame(left: number, right: number, opacity: number): boolean {
  return (
    isNear(left >> 16, right >> 16, opacity) &&
    isNear(left >> 8, right >> 8, opacity) &&
    isNear(left, right, opacity)
  );
}

/** Compares the lowest bytes of two colours. Opacity applies to both colours, so it reduces their difference. */
function isNear(left: number, right: number, opacity: number): boolean {
  return Math.abs((left & 0xff) - (right & 0xff)) * opacity <= SAME_COLOUR;
}
