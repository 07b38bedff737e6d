/** Options and state of the indexer. */
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

export interface IndexerOptions {
  /** The store to index. */
  readonly store: Pick<RecordingStore, 'list'>;
  readonly catalog: Pick<Catalog, 'find'>;
  readonly live: () => readonly LiveRecording[];
  readonly text: IndexedText;
  readonly trusted?: string;
  /** Starts the writer process. The process exits when `signal` aborts. @throws Error with a message for users */
  readonly start: (signal: AbortSignal) => Promise<IndexClient>;
  /** Called with the matching alert rules before a session is marked as indexed. */
  readonly matched?: (recording: Recording, matches: readonly RuleMatch[]) => Promise<void>;
  /** Returns the time of a monotonic clock, in milliseconds. */
  readonly now: () => number;
  readonly liveMs: number;
  /** Interval between two comparisons of store and index, in milliseconds. */
  readonly reconcileMs: number;
  /** Pause before the writer process is restarted, in milliseconds. */
  readonly restartMs: number;
  readonly metrics: Pick<SearchMetrics, 'dropped' | 'failed' | 'unreadable'>;
  readonly log: Logger;
}

/** State of the index. */
export interface IndexProgress extends IndexStatus {
  readonly state: 'ready' | 'building' | 'unavailable';
  /** Number of stored recordings that are not in the index. */
  readonly backlog: number;
  /** Age of the oldest byte of a running session that is durable but not yet indexed, in seconds. */
  readonly lagSeconds: number;
  /** Reason why the index is unavailable. */
  readonly problem?: string;
}
