/** The search of a recorder: the index that is written beside it, and the processes that answer. */
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../observe/logger.ts';
import type { IndexedText } from '../../search/moments.ts';
import type { Catalog } from '../library/catalog.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import type { SessionIndex } from '../library/session-index.ts';
import { startIndexClient, type IndexClient } from './index-client.ts';
import { startIndexer, type Indexer } from './indexer.ts';
import { createQueryProcesses, QUERY_LIMITS, type QueryProcesses } from './query-processes.ts';
import { LAYOUT } from './layout.ts';

export interface RecorderSearch extends Indexer, SessionIndex {
  readonly ask: QueryProcesses['ask'];
  pending(): ReadonlySet<string> | undefined;
}

export interface RecorderSearchOptions {
  /** Where the index is: a local directory. */
  readonly directory: string;
  readonly text: IndexedText;
  readonly catalog: Pick<Catalog, 'find' | 'stored'>;
  readonly live: () => readonly LiveRecording[];
  /** Milliseconds of a monotonic clock. */
  readonly now: () => number;
  readonly log: Logger;
}

/** Lists are quick, and many may look at one: they do not wait for searches. */
const LIST_LIMITS = { ...QUERY_LIMITS, maxWaiting: 256 };
const TIMING = { liveMs: 1000, reconcileMs: 3_600_000, restartMs: 5000 };

/** Where in the spool the index is. */
export function indexDirectory(spoolDirectory: string): string {
  return join(spoolDirectory, 'search', LAYOUT);
}

/** Starts at once, in the background. */
export function openRecorderSearch(options: RecorderSearchOptions): RecorderSearch {
  const queries = createQueryProcesses({ ...QUERY_LIMITS, directory: options.directory });
  const lists = createQueryProcesses({ ...LIST_LIMITS, directory: options.directory });
  const start = (): Promise<IndexClient> => startWriter(options.directory, options.log);
  const indexer = startIndexer({
    ...options,
    ...TIMING,
    // what the catalogue lists, so that neither knows of a recording that the other has not told it of
    store: { list: () => options.catalog.stored() },
    start,
  });
  return {
    ask: (operation, ask) => queries.ask(operation, ask),
    list: (ask) => lists.ask('list', ask),
    pending: () => indexer.pending(),
    changed(ids) {
      for (const id of ids) indexer.stored(id);
    },
    stored: (id) => indexer.stored(id),
    removed: (ids) => indexer.removed(ids),
    progress: () => indexer.progress(),
    settled: () => indexer.settled(),
    async close() {
      await indexer.close();
      await Promise.all([queries.close(), lists.close()]);
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
