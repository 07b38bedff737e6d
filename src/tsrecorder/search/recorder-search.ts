/** The search of a recorder: the index that is written beside it, and the processes that answer. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../observe/logger.ts';
import type { IndexedText } from '../../search/moments.ts';
import type { Catalog } from '../library/catalog.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import type { RecordingStore } from '../store/store.ts';
import { startIndexClient, type IndexClient } from './index-client.ts';
import { startIndexer, type Indexer, type IndexProgress } from './indexer.ts';
import { createQueryProcesses, QUERY_LIMITS, type QueryProcesses } from './query-processes.ts';
import { LAYOUT } from './layout.ts';

export interface RecorderSearch {
  readonly ask: QueryProcesses['ask'];
  stored(id: string): void;
  removed(ids: readonly string[]): void;
  /** Undefined in a process beside the one that writes the index. */
  progress(): Promise<IndexProgress | undefined>;
  /** Resolves when nothing is to do. */
  settled(): Promise<void>;
  close(): Promise<void>;
}

export interface RecorderSearchOptions {
  /** Where the index is: a local directory. */
  readonly directory: string;
  readonly text: IndexedText;
  /** Whether this process writes the index; there is one that does. */
  readonly mayWrite: boolean;
  readonly store: Pick<RecordingStore, 'list'>;
  readonly catalog: Pick<Catalog, 'find'>;
  readonly live: () => readonly LiveRecording[];
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  readonly log: Logger;
}

const TIMING = { liveMs: 1000, reconcileMs: 3_600_000, restartMs: 5000 };

/** Where in the spool the index is. */
export function indexDirectory(spoolDirectory: string): string {
  return join(spoolDirectory, 'search', LAYOUT);
}

/** Starts at once, in the background. */
export function openRecorderSearch(options: RecorderSearchOptions): RecorderSearch {
  const queries = createQueryProcesses({ ...QUERY_LIMITS, directory: options.directory });
  const indexer: Indexer | undefined = options.mayWrite
    ? startIndexer({ ...options, ...TIMING, start: () => startWriter(options.directory, options.log) })
    : undefined;
  return {
    ask: (operation, ask) => queries.ask(operation, ask),
    stored: (id) => indexer?.stored(id),
    removed: (ids) => indexer?.removed(ids),
    progress: async () => indexer?.progress(),
    settled: async () => indexer?.settled(),
    async close() {
      await indexer?.close();
      await queries.close();
    },
  };
}

/** A damaged index is thrown away: it is made of the recordings again. */
async function startWriter(directory: string, log: Logger): Promise<IndexClient> {
  try {
    return await startIndexClient({ directory, mayWrite: true });
  } catch (error) {
    if (!(error instanceof Error && /damaged|malformed|not a database/.test(error.message))) throw error;
    log.error({ error: error.message }, 'the search index is damaged and is built anew');
    await rm(directory, { recursive: true, force: true });
    return startIndexClient({ directory, mayWrite: true });
  }
}
