/** Memory and disk budget of all elastic buffers of a process. */

/** Limits of all elastic buffers together, in bytes. */
export interface ElasticTotals {
  readonly memoryBytes: number;
  readonly diskBytes: number;
}

/** Counts the bytes of all elastic buffers. */
export class ElasticBudget {
  readonly #totals: ElasticTotals;
  #memory = 0;
  #disk = 0;
  /** Callbacks of buffers that wait because the memory of all buffers is at its limit. */
  readonly #waiting = new Set<() => void>();

  constructor(totals: ElasticTotals) {
    this.#totals = totals;
  }

  /** Number of buffered bytes in memory. */
  get memoryBytes(): number {
    return this.#memory;
  }

  /** Total size of all files, in bytes. */
  get diskBytes(): number {
    return this.#disk;
  }

  /**
   * True if half of the memory limit is used. Each buffer then keeps in memory only the bytes that it needs to read and
   * write its file.
   */
  get scarce(): boolean {
    return this.#memory >= this.#totals.memoryBytes / 2;
  }

  get exhausted(): boolean {
    return this.#memory >= this.#totals.memoryBytes;
  }

  /**
   * Adds bytes to the used memory, even above the limit. The caller must stop reading when the limit is
   * exceeded.
   */
  keep(bytes: number): void {
    this.#memory += bytes;
  }

  release(bytes: number): void {
    this.#memory -= bytes;
    if (this.exhausted || this.#waiting.size === 0) return;
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const wake of waiting) wake();
  }

  takeDisk(bytes: number): boolean {
    if (this.#disk + bytes > this.#totals.diskBytes) return false;
    this.#disk += bytes;
    return true;
  }

  releaseDisk(bytes: number): void {
    this.#disk -= bytes;
  }

  /** Calls `wake` once when the used memory is below the limit again. */
  whenRoom(wake: () => void): void {
    this.#waiting.add(wake);
  }

  forget(wake: () => void): void {
    this.#waiting.delete(wake);
  }
}
