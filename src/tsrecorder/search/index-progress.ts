/** What an indexer is for the parts that use it. */
import type { IndexStatus } from '../../search/search-index.ts';
import type { PendingIds } from '../library/session-index.ts';

/** How far the index is. */
export interface IndexProgress extends IndexStatus {
  readonly state: 'ready' | 'building' | 'unavailable';
  /** Recordings that are stored and not in the index. */
  readonly backlog: number;
  /** How long the oldest durable byte of a running session waits. */
  readonly lagSeconds: number;
  /** Why it is unavailable. */
  readonly problem?: string;
}

export interface Indexer {
  /** A recording has come into the store, or another part of it. `owner`: of `recordedOwner`; default: the node that uploaded it. */
  stored(id: string, owner?: string): void;
  /** Recordings of the store that are not in the index as they are now; undefined before they were compared. */
  pending(): PendingIds | undefined;
  /** Recordings have left the store: they leave the files of the index as well. */
  removed(ids: readonly string[]): void;
  progress(): Promise<IndexProgress>;
  /** Resolves when nothing is to do. */
  settled(): Promise<void>;
  close(): Promise<void>;
}
