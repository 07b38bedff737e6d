/** Location of the current index, and of the next index while it is built. */
import type { IndexPlace } from './messages.ts';

export interface IndexPlaces {
  readonly current: IndexPlace;
  readonly next: IndexPlace;
  /**
   * Completes an interrupted replacement of the index. @returns `building` if the build of a new index was interrupted
   */
  prepare(): Promise<'building' | 'ready'>;
  /** Replaces the current index with the next index. Both indexes must be closed. */
  swap(): Promise<void>;
  /** Deletes an unusable index. @returns true if the index was unusable and is deleted */
  discard(place: IndexPlace, error: unknown): Promise<boolean>;
}
