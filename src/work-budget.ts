/**
 * Limits the work of rendering a recording in proportion to its length. Work is counted, not timed, so a recording
 * stops at the same place on every machine.
 */

/** Work units: cells of a screen that an emulator writes, moves or clears. One unit takes 3 to 5 ns. */
export interface WorkLimits {
  /** Units for a recording of any length. */
  readonly free: number;
  /** Units per character of the cast. */
  readonly perCharacter: number;
}

/**
 * A view, a transcript, or a complete search index of one recording. Full-screen programs use 5 to 50 units per
 * character.
 */
const FULL: WorkLimits = { free: 50e6, perCharacter: 500 };
/** Limit beyond which each character allows only {@link LONG_PER_CHARACTER} more units: about 15 s. */
const LONG = 4e9;
const LONG_PER_CHARACTER = 50;

/** Characters of output that are read as text, without a screen, after the budget is exhausted. */
const UNRENDERED = 4 * 1024 ** 2;

/** There is one budget per recording and reader. Several parsers of one recording may share it. */
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

  /** True if the recording used more units than allowed. Stays true, because earlier characters were skipped. */
  get isExhausted(): boolean {
    this.#isExhausted ||= this.spent > this.#allowed;
    return this.#isExhausted;
  }

  /** Adds the allowance of a part of the cast that is about to be read. */
  allow(characters: number): void {
    const perCharacter = this.#allowed < LONG ? this.#perCharacter : LONG_PER_CHARACTER;
    this.#allowed += characters * Math.min(perCharacter, this.#perCharacter);
  }

  /** Charges a step before it is done. @returns false if the step must be skipped */
  spend(units: number): boolean {
    this.#isExhausted ||= this.spent + units > this.#allowed;
    if (this.#isExhausted) return false;
    this.spent += units;
    return true;
  }
}

/** Limits the output that is read as text after a budget is exhausted. One per reader. */
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
