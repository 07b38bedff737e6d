/**
 * What went past a tap and waits for its answers, in order.
 *
 * ```
 *   deliver ◄── │ answered │ │ waits │ … │ waits │ ◄── add
 * ```
 *
 * An answer is for all that was added before it, too: a flood is delivered as far as the recorder has it, while what follows is on its way there.
 */
import type { TapPlace } from '../../recording/tap.ts';

export interface Answered {
  readonly chunks: readonly Uint8Array[];
  /** Where they end for the tap, which has seen more. Undefined: it has not. */
  readonly until: TapPlace | undefined;
}

interface Waiting {
  readonly chunks: Uint8Array[];
  place: TapPlace | undefined;
}

export class Awaited {
  readonly #waiting: Waiting[] = [];

  get any(): boolean {
    return this.#waiting.length > 0;
  }

  /**
   * The tap has seen these, and nothing since.
   * @param place where they end for it, if it tells that
   * @param answers there is an answer for them; otherwise they go with what waits
   * @returns what is told when the answer is there
   */
  add(
    chunks: readonly Uint8Array[],
    place: TapPlace | undefined,
    answers: boolean,
  ): () => Answered | undefined {
    const last = this.#waiting.at(-1);
    const waiting = answers || last === undefined ? this.#begin() : last;
    waiting.chunks.push(...chunks);
    waiting.place = place;
    return () => this.#take(waiting);
  }

  #begin(): Waiting {
    const waiting: Waiting = { chunks: [], place: undefined };
    this.#waiting.push(waiting);
    return waiting;
  }

  /** @returns undefined when a later answer was for it */
  #take(waiting: Waiting): Answered | undefined {
    const count = this.#waiting.indexOf(waiting) + 1;
    if (count === 0) return undefined;
    const taken = this.#waiting.splice(0, count);
    return { chunks: taken.flatMap(({ chunks }) => chunks), until: this.any ? waiting.place : undefined };
  }
}
