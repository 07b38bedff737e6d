/**
 * Chunks that a tap has seen and that wait for an acknowledgement of the recorder, in order.
 *
 * ```
 *   deliver ◄── │ answered │ │ waits │ … │ waits │ ◄── add
 * ```
 *
 * An acknowledgement covers all chunks that were added before. Acknowledged output is delivered while later output is
 * still on its way to the recorder.
 */
import type { TapPlace } from '../../recording/tap.ts';

/** Chunks that may be delivered. */
export interface Answered {
  readonly chunks: readonly Uint8Array[];
  /** Place at which the chunks end, if the tap has seen more chunks since. */
  readonly until: TapPlace | undefined;
}

interface Waiting {
  readonly chunks: Uint8Array[];
  place: TapPlace | undefined;
}

/** Queue of chunks that wait for acknowledgements. */
export class Awaited {
  readonly #waiting: Waiting[] = [];

  get any(): boolean {
    return this.#waiting.length > 0;
  }

  /**
   * Adds the chunks that the tap has seen last.
   * @param place place at which they end, if the tap reports it
   * @param answers true if they get an acknowledgement of their own; otherwise they join the last queued chunks
   * @returns a function that returns the deliverable chunks once the acknowledgement arrived
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

  /** @returns undefined if a later acknowledgement covered the chunks already */
  #take(waiting: Waiting): Answered | undefined {
    const count = this.#waiting.indexOf(waiting) + 1;
    if (count === 0) return undefined;
    const taken = this.#waiting.splice(0, count);
    return { chunks: taken.flatMap(({ chunks }) => chunks), until: this.any ? waiting.place : undefined };
  }
}
