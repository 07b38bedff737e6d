/**
 * Follows the colours of text as far as they make it invisible: concealed text, and text in the colour of its
 * background. Colours are compared as the player shows them. Pure.
 */

/** What the cursor saves and restores. Colours are `0xRRGGBB`. */
export interface PenState {
  readonly isConcealed: boolean;
  readonly foreground: number;
  readonly background: number;
}

/** Default colours of the player: `--terminal-paper` and `--terminal-ink`. */
export const PAPER = 0x101418;
export const INK = 0xd6dbe0;
/** The first 16 colours of the palette in the player: `--terminal-0` to `--terminal-15`. */
export const THEME: readonly number[] = [
  0x101418, 0xe5534b, 0x57ab5a, 0xc69026, 0x539bf5, 0xb083f0, 0x39c5cf, 0xc3cad2, 0x768390, 0xff938a,
  0x8ddb8c, 0xeac55f, 0x96d0ff, 0xdcbdfb, 0x76e3ea, 0xffffff,
];
/**
 * Maximum difference of each of red, green and blue at which nobody can read the text. Black on {@link PAPER} has it.
 */
const SAME_COLOUR = 24;
/** Maximum number of parameters that the emulator reads. */
const MAX_PARAMETERS = 32;

const DEFAULT: PenState = { isConcealed: false, foreground: INK, background: PAPER };

export class Pen {
  #state = DEFAULT;
  #isInvisible = false;

  /** True if text that is written now cannot be seen. */
  get isInvisible(): boolean {
    return this.#isInvisible;
  }

  get state(): PenState {
    return this.#state;
  }

  /** Restores a saved state; undefined restores the default. */
  restore(state: PenState = DEFAULT): void {
    this.#state = state;
    this.#isInvisible = state.isConcealed || isSame(state.foreground, state.background);
  }

  /** Takes the parameters of `CSI … m`. */
  take(parameters: string): void {
    const only = Number(parameters);
    this.restore(Number.isNaN(only) ? takeAll(this.#state, parameters) : takeCode(this.#state, only));
  }
}

function takeAll(before: PenState, parameters: string): PenState {
  const codes = parameters.split(';').slice(0, MAX_PARAMETERS);
  let state = before;
  for (let at = 0; at < codes.length; at += 1) {
    const [first = '', ...rest] = (codes[at] ?? '').split(':');
    const code = Number(first);
    if (code !== 38 && code !== 48) {
      state = takeCode(state, code);
      continue;
    }
    // the colour follows as subparameters, or as more parameters
    const parts = rest.length > 0 ? rest : codes.slice(at + 1, at + (Number(codes[at + 1]) === 2 ? 5 : 3));
    if (rest.length === 0) at += parts.length;
    const name = code === 38 ? 'foreground' : 'background';
    state = { ...state, [name]: colourOf(parts) ?? state[name] };
  }
  return state;
}

function takeCode(state: PenState, code: number): PenState {
  if (code === 0) return DEFAULT;
  if (code === 8 || code === 28) return { ...state, isConcealed: code === 8 };
  if (code >= 30 && code <= 37) return { ...state, foreground: paletteColour(code - 30) };
  if (code === 39) return { ...state, foreground: INK };
  if (code >= 40 && code <= 47) return { ...state, background: paletteColour(code - 40) };
  if (code === 49) return { ...state, background: PAPER };
  if (code >= 90 && code <= 97) return { ...state, foreground: paletteColour(code - 82) };
  if (code >= 100 && code <= 107) return { ...state, background: paletteColour(code - 92) };
  return state;
}

/** `5;n`, `2;r;g;b`, or `2::r:g:b`. */
function colourOf([kind, ...values]: readonly string[]): number | undefined {
  if (Number(kind) === 5) return paletteColour(Number(values[0] ?? 0) & 0xff);
  if (Number(kind) !== 2) return undefined;
  const [red = 0, green = 0, blue = 0] = values.slice(-3).map((value) => Number(value) & 0xff);
  return (red << 16) | (green << 8) | blue;
}

/** The theme, a cube of 6 by 6 by 6 colours, and 24 greys. */
function paletteColour(index: number): number {
  const themed = THEME[index];
  if (themed !== undefined) return themed;
  if (index >= 232) return (8 + (index - 232) * 10) * 0x010101;
  const level = (value: number): number => (value === 0 ? 0 : 55 + value * 40);
  const cube = index - 16;
  return (level(Math.floor(cube / 36)) << 16) | (level(Math.floor(cube / 6) % 6) << 8) | level(cube % 6);
}

function isSame(left: number, right: number): boolean {
  return isNear(left >> 16, right >> 16) && isNear(left >> 8, right >> 8) && isNear(left, right);
}

/** Compares the lowest bytes. */
function isNear(left: number, right: number): boolean {
  return Math.abs((left & 0xff) - (right & 0xff)) <= SAME_COLOUR;
}
