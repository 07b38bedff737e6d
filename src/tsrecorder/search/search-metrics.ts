/**
 * Metrics of the search of a recorder. Labels contain only values that the recorder defines: kinds of queries, error
 * codes and states.
 */
import { type Counter, Gauge, Histogram, Registry } from 'prom-client';
import { createMakers } from '../../observe/metric-makers.ts';
import type { IndexStatus } from '../../search/search-index.ts';

/** Values that are read when Prometheus scrapes the metrics. */
export interface WatchedSearch extends IndexStatus {
  readonly state: string;
  readonly lagSeconds: number;
  readonly backlog: number;
  readonly rebuilding?: { readonly done: number; readonly of: number };
}

export type SearchMetrics = ReturnType<typeof createSearchMetrics>;

const STATES = ['ready', 'building', 'unavailable'] as const;
const KINDS = ['find', 'within', 'list', 'facets'] as const;
/** Upper bounds of the histogram buckets, in seconds, up to the maximum CPU time of a query. */
const BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2];

/** Creates the metrics. @param registry default: a new registry */
export function createSearchMetrics(registry: Registry = new Registry()) {
  const { counter, labelled } = createMakers(registry);
  const registers = [registry];
  let watched: (() => Promise<WatchedSearch>) | undefined;
  const gauge = (name: string, help: string, of: (progress: WatchedSearch) => number): void => {
    const made: Gauge = new Gauge({
      name,
      help,
      registers,
      async collect() {
        if (watched !== undefined) made.set(of(await watched()));
      },
    });
  };
  const state: Gauge<'state'> = new Gauge({
    name: 'tailcast_search_state',
    help: '1 for the current state of the search index: ready, building or unavailable.',
    labelNames: ['state'],
    registers,
    async collect() {
      const now = (await watched?.())?.state;
      for (const each of STATES) state.set({ state: each }, each === now ? 1 : 0);
    },
  });
  gauge(
    'tailcast_search_lag_seconds',
    'Age of the oldest durable output that is not in the search index, over all running sessions.',
    ({ lagSeconds }) => lagSeconds,
  );
  gauge(
    'tailcast_search_backlog_recordings',
    'Stored recordings that are not in the search index.',
    ({ backlog }) => backlog,
  );
  gauge('tailcast_search_recordings', 'Recordings in the search index.', ({ sessions }) => sessions);
  gauge(
    'tailcast_search_partial_recordings',
    'Recordings with only a part of their text in the search index.',
    ({ partial }) => partial,
  );
  gauge('tailcast_search_index_bytes', 'Size of the files of the search index.', ({ bytes }) => bytes);
  gauge(
    'tailcast_search_rebuilt_ratio',
    'Progress of a rebuild of the search index; 1 if there is no rebuild.',
    ({ rebuilding }) => (rebuilding === undefined ? 1 : rebuilding.done / Math.max(1, rebuilding.of)),
  );
  const seconds = new Histogram({
    name: 'tailcast_search_query_seconds',
    help: 'Time of search queries, including their wait, by kind: find, within (one recording), list or facets.',
    labelNames: ['kind'],
    buckets: BUCKETS,
    registers,
  });
  for (const kind of KINDS) seconds.zero({ kind });
  const queryFailures = labelled(
    'tailcast_search_query_failures_total',
    'Failed search queries, by error code.',
    'code',
    ['SEARCH_BUSY', 'SEARCH_UNAVAILABLE'],
  );
  return {
    /**
     * Sets the function that returns the current values. Before this call, the metrics report that there is no index.
     */
    watch(progress: () => Promise<WatchedSearch>): void {
      watched = progress;
    },
    /** Called after each query with its kind, its duration, and the error code if it failed. */
    asked(kind: string, elapsedMs: number, code: string | undefined): void {
      seconds.observe({ kind }, elapsedMs);
      if (code?.startsWith('SEARCH_') === true) queryFailures.inc({ code });
    },
    ...createIndexerCounters(counter),
  };
}

function createIndexerCounters(counter: (name: string, help: string) => Counter) {
  const dropped = counter(
    'tailcast_search_queue_dropped_total',
    'Changes dropped because the queue of the search index was full. A comparison with the store then finds them.',
  );
  const failures = counter(
    'tailcast_search_index_failures_total',
    'Failed writes of the search index. The recorder retries.',
  );
  const unreadable = counter(
    'tailcast_search_unreadable_total',
    'Failed reads of a recording for the search index. The recorder retries.',
  );
  return {
    /** Called when the queue of the indexer was full. */
    dropped: (): void => dropped.inc(),
    /** Called when the index could not be written. */
    failed: (): void => failures.inc(),
    /** Called when a recording could not be read for the index. */
    unreadable: (): void => unreadable.inc(),
  };
}
