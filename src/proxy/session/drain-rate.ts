/** How much somebody has taken lately: what they take in as long again is what may be kept ready for them. */
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

  /** Bytes taken in one span of time: the last whole one, or the one that runs if it is more already. */
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
