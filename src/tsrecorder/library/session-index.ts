/** What a catalogue asks of an index, if there is one. */
import type { ListAsk, ListedSessions } from '../../search/search-index.ts';

/** Ids, of which one may count twice. */
export interface PendingIds extends Iterable<string> {
  readonly size: number;
  has(id: string): boolean;
}

export interface SessionIndex {
  /**
   * Recordings of the store that are not in the index as they are now; undefined: nobody knows. What is neither in here nor in the
   * index is not in the store.
   */
  pending(): PendingIds | undefined;
  /** The store lists these, and did not before, or not so. */
  changed(ids: readonly string[]): void;
  /** @throws TailcastError `SEARCH_BUSY`, `SEARCH_UNAVAILABLE` */
  list(ask: ListAsk): Promise<ListedSessions>;
}
