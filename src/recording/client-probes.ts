/**
 * Pings of the gateway to a client. A client answers when it has read everything before them, so an answer tells how far it has got, which no
 * system says of what is on its way.
 */
import type { ClientProbes } from './tap.ts';

/** Those that may be unanswered; more are not made. */
export const MAX_PROBES = 8;

export class ProbeLedger implements ClientProbes {
  readonly #frameOf: (ordinal: number) => Uint8Array;
  #made = 0;
  #answered = 0;

  /** @param frameOf the ping with this number, from 1 on */
  constructor(frameOf: (ordinal: number) => Uint8Array) {
    this.#frameOf = frameOf;
  }

  get answered(): number {
    return this.#answered;
  }

  next(): ReturnType<ClientProbes['next']> {
    if (this.#made - this.#answered >= MAX_PROBES) return undefined;
    this.#made += 1;
    return { ordinal: this.#made, frame: this.#frameOf(this.#made) };
  }

  /** The client answered a ping with this number. @returns whether it is one that waits for its answer */
  take(ordinal: number): boolean {
    if (!Number.isInteger(ordinal) || ordinal <= this.#answered || ordinal > this.#made) return false;
    this.#answered = ordinal;
    return true;
  }
}
