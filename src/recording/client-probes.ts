/**
 * Pings of the gateway to a client. A client answers a ping after it has read everything before the ping. The responses
 * therefore show how much output the client has read; the operating system does not report that.
 */
import type { ClientProbes } from './tap.ts';

/** Maximum number of unanswered pings. */
export const MAX_PROBES = 8;

/** Numbers the pings of one client and counts the responses. */
export class ProbeLedger implements ClientProbes {
  readonly #frameOf: (ordinal: number) => Uint8Array;
  #made = 0;
  #answered = 0;

  /** @param frameOf returns the ping frame with this number; numbers start at 1 */
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

  /** Records the response to the ping with this number. @returns true if the ping was unanswered */
  take(ordinal: number): boolean {
    if (!Number.isInteger(ordinal) || ordinal <= this.#answered || ordinal > this.#made) return false;
    this.#answered = ordinal;
    return true;
  }
}
