/** What all elastic buffers of a process hold together, in memory and on disk. */

export interface ElasticTotals {
  readonly memoryBytes: number;
  readonly diskBytes: number;
}

export class ElasticBudget {
  readonly #totals: ElasticTotals;
  #memory = 0;
  #disk = 0;
  /** Buffers that are full because all of them together are. */
  readonly #waiting = new Set<() => void>();

  constructor(totals: ElasticTotals) {
    this.#totals = totals;
  }

  /** Bytes that wait in memory. */
  get memoryBytes(): number {
    return this.#memory;
  }

  /** Bytes that files take. */
  get diskBytes(): number {
    return this.#disk;
  }

  /** From here on each buffer keeps only what it needs to write to its file and to read from it. */
  get scarce(): boolean {
    return this.#memory >= this.#totals.memoryBytes / 2;
  }

  get exhausted(): boolean {
    return this.#memory >= this.#totals.memoryBytes;
  }

  /** What was read is kept, whatever the total: whoever goes beyond it reads no more. */
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

  /** `wake` is called once, when the total is not reached any more. */
  whenRoom(wake: () => void): void {
    this.#waiting.add(wake);
  }

  forget(wake: () => void): void {
    this.#waiting.delete(wake);
  }
}
