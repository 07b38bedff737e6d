/** Where the index that answers is, and the one that is built beside it. */
import type { IndexPlace } from './messages.ts';

export interface IndexPlaces {
  readonly current: IndexPlace;
  readonly next: IndexPlace;
  /** Finishes what was left half-way. @returns `building` when a new index had been begun */
  prepare(): Promise<'building' | 'ready'>;
  /** Puts the next index in the place of the current one. Nobody has either open. */
  swap(): Promise<void>;
  /** Throws an index away that cannot be used. @returns false when the error does not say that it cannot */
  discard(place: IndexPlace, error: unknown): Promise<boolean>;
}
