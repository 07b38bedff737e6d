/** What an indexer is for the parts that use it. */
import type { Logger } from '../../observe/logger.ts';
import type { RuleMatch } from '../../search/match.ts';
import type { IndexedText } from '../../search/moments.ts';
import type { Catalog } from '../library/catalog.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import type { RecordingStore } from '../store/store.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import type { IndexClient } from './index-client.ts';
import type { SearchMetrics } from './search-metrics.ts';
import type { IndexStatus } from '../../search/search-index.ts';
import type { PendingIds } from '../library/session-index.ts';

export interface IndexerOptions {
  /** What is to be in the index. */
  readonly store: Pick<RecordingStore, 'list'>;
  readonly catalog: Pick<Catalog, 'find'>;
  readonly live: () => readonly LiveRecording[];
  readonly text: IndexedText;
  /** Starts the process that writes, until `signal` aborts. @throws Error with a sentence */
  readonly start: (signal: AbortSignal) => Promise<IndexClient>;
  /** Told which rules are true of a session, before it counts as indexed. */
  readonly matched?: (recording: Recording, matches: readonly RuleMatch[]) => Promise<void>;
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  readonly liveMs: number;
  /** How often store and index are compared. */
  readonly reconcileMs: number;
  /** Pause before a process that ended is started again. */
  readonly restartMs: number;
  readonly metrics: Pick<SearchMetrics, 'failed' | 'unreadable'>;
  readonly log: Logger;
}

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
