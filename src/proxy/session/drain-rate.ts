/** Measures how many bytes a reader took recently, to size its buffer. */
export class DrainRate {
  readonly #spanMs: number;
  readonly #nowMs: () => number;
  #sinceMs: number;
  #before = 0;
  #now = 0;

  constructor(spanMs: number, nowMs: () => number) {
    this.#spanMs = spanMs;
    this.#nowMs = nowMs;
    this.#sinceMs = nowMs();
  }

  note(bytes: number): void {
    this.#turn();
    this.#now += bytes;
  }

  /**
   * Number of bytes that the reader took in the last complete time span or in the current span, whichever is larger.
   */
  get recent(): number {
    this.#turn();
    return Math.max(this.#before, this.#now);
  }

  #turn(): void {
    const now = this.#nowMs();
    const spans = (now - this.#sinceMs) / this.#spanMs;
    if (spans < 1) return;
    this.#before = spans < 2 ? this.#now : 0;
    this.#now = 0;
    this.#sinceMs = now;
  }
}
