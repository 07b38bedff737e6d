/** The search of a recorder: the index that is written beside it, and the processes that answer. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../observe/logger.ts';
import type { IndexedText } from '../../search/moments.ts';
import type { Catalog } from '../library/catalog.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import type { RecordingStore } from '../store/store.ts';
import { startIndexClient, type IndexClient } from './index-client.ts';
import { startIndexer, type Indexer } from './indexer.ts';
import { createQueryProcesses, QUERY_LIMITS, type QueryProcesses } from './query-processes.ts';
import { LAYOUT } from './layout.ts';

export interface RecorderSearch extends Indexer {
  readonly ask: QueryProcesses['ask'];
}

export interface RecorderSearchOptions {
  /** Where the index is: a local directory. */
  readonly directory: string;
  readonly text: IndexedText;
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
  const start = (): Promise<IndexClient> => startWriter(options.directory, options.log);
  const indexer = startIndexer({ ...options, ...TIMING, start });
  return {
    ask: (operation, ask) => queries.ask(operation, ask),
    stored: (id) => indexer.stored(id),
    removed: (ids) => indexer.removed(ids),
    progress: () => indexer.progress(),
    settled: () => indexer.settled(),
    async close() {
      await indexer.close();
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
