/** Interface of the search index, as the catalogue uses it. */
import type { ListAsk, ListedSessions } from '../../search/search-index.ts';

/** Ids of recordings that are not in the index. `size` may count an id twice. */
export interface PendingIds extends Iterable<string> {
  readonly size: number;
  has(id: string): boolean;
}

/** An index of sessions, which returns them in the order of a list of recordings. */
export interface SessionIndex {
  /**
   * Returns the recordings whose current version is not in the index. All other recordings of the store are in the
   * index. Returns undefined if these recordings are unknown, for example before the first comparison of index and
   * store.
   */
  pending(): PendingIds | undefined;
  /** Called with recordings that are new or changed in the store. */
  changed(ids: readonly string[]): void;
  /**
   * @param owner owner of the request; the index serves the owners in turn
   * @throws TailcastError `SEARCH_BUSY`, `SEARCH_UNAVAILABLE`
   */
  list(ask: ListAsk, owner?: string): Promise<ListedSessions>;
}
