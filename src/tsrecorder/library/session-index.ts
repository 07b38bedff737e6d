/** The interface of an index that a catalogue uses. */
import type { ListAsk, ListedSessions } from '../../search/search-index.ts';

/** Ids. `size` may count an id twice. */
export interface PendingIds extends Iterable<string> {
  readonly size: number;
  has(id: string): boolean;
}

/** An index that lists sessions by name. */
export interface SessionIndex {
  /**
   * Returns recordings whose current version is not in the index, or undefined if they are unknown. Every other
   * recording of the store is in the index.
   */
  pending(): PendingIds | undefined;
  /** Called with recordings that are new or changed in the store. */
  changed(ids: readonly string[]): void;
  /** @throws TailcastError `SEARCH_BUSY`, `SEARCH_UNAVAILABLE` */
  list(ask: ListAsk): Promise<ListedSessions>;
}
