/**
 * Limits the work of rendering a recording in proportion to its length. Work is counted in units and not
 * measured in time, so that rendering stops at the same position on every machine.
 */

/**
 * Limits in work units. A unit is a screen cell that the emulator writes, moves or clears. The emulator needs
 * 3 to 5 ns per unit.
 */
export interface WorkLimits {
  /** Number of units that every recording may use, whatever its length is. */
  readonly free: number;
  /** Number of additional units per character of the cast. */
  readonly perCharacter: number;
}

/**
 * Limits for a view, a transcript, or a complete search index of one recording. Full-screen programs use 5 to
 * 50 units per character.
 */
const FULL: WorkLimits = { free: 50e6, perCharacter: 500 };
/**
 * Number of units above which each further character adds only {@link LONG_PER_CHARACTER} units. The
 * emulator needs about 15 s for this many units.
 */
const LONG = 4e9;
const LONG_PER_CHARACTER = 50;

/**
 * Maximum number of characters of output that are read as plain text, without terminal emulation, after the budget is
 * exhausted.
 */
const UNRENDERED = 4 * 1024 ** 2;

/** Work budget for reading one recording. Several parsers of the recording may share it. */
export class WorkBudget {
  /** Units used. Parsers add their work to this field directly. */
  spent = 0;
  readonly #perCharacter: number;
  #allowed: number;
  #isExhausted = false;

  constructor({ free, perCharacter }: WorkLimits = FULL) {
    this.#allowed = free;
    this.#perCharacter = perCharacter;
  }

  /**
   * True if the recording used more units than allowed. Stays true even if `allow` adds units, because earlier
   * characters were skipped.
   */
  get isExhausted(): boolean {
    this.#isExhausted ||= this.spent > this.#allowed;
    return this.#isExhausted;
  }

  /** Adds the units for the next part of the cast. */
  allow(characters: number): void {
    const perCharacter = this.#allowed < LONG ? this.#perCharacter : LONG_PER_CHARACTER;
    this.#allowed += characters * Math.min(perCharacter, this.#perCharacter);
  }

  /** Charges a step before it is executed. @returns false if the step must be skipped */
  spend(units: number): boolean {
    this.#isExhausted ||= this.spent + units > this.#allowed;
    if (this.#isExhausted) return false;
    this.spent += units;
    return true;
  }
}

/** Limits the output that is read as text after a budget is exhausted. Each reader needs its own allowance. */
export class TextAllowance {
  readonly #budget: WorkBudget;
  #left = UNRENDERED;

  constructor(budget: WorkBudget) {
    this.#budget = budget;
  }

  /** True if output was skipped. */
  get isExhausted(): boolean {
    return this.#left < 0;
  }

  /** Charges output before it is read. @returns false if the output must be skipped */
  take(characters: number): boolean {
    if (!this.#budget.isExhausted) return true;
    this.#budget.spent += characters;
    this.#left -= characters;
    return !this.isExhausted;
  }
}
