/** Metrics of the recorder. Labels contain only codes and states of the recorder, never values from an uploader. */
import { Counter, Gauge, Registry } from 'prom-client';
import { createMakers, type MetricMakers } from '../../observe/metric-makers.ts';
import { RESULT_KINDS } from '../../wire/recorder-api/recording-status.ts';
import type { SpoolStatus } from './spool-status.ts';
import type { UploadMeter } from './upload-session.ts';

/** Values that are read when Prometheus scrapes the metrics. */
export interface IntakeStatus extends SpoolStatus {
  /** Received bytes that are not committed yet. */
  readonly waitingBytes: number;
  /** Number of evidence log entries that are not in the store. */
  readonly unpublishedEntries: number;
}

/** All metrics of the recorder, except search and alerts. */
export type RecorderMetrics = ReturnType<typeof createUploadMetrics> &
  ReturnType<typeof createStoreMetrics> & {
    readonly recordings: Counter<'state' | 'result'>;
    readonly connections: Gauge<'listener'>;
  };

/**
 * Upper bounds of the histogram buckets for disk times, in seconds. The smallest bound fits disks with a write cache.
 * The largest bound fits disks that are too slow for interactive sessions.
 */
const DISK_BUCKETS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5];

/** Creates the metrics. @param registry default: a new registry */
export function createRecorderMetrics(
  registry: Registry = new Registry(),
  status: () => IntakeStatus,
): RecorderMetrics {
  const makers = createMakers(registry);
  addGauges(registry, makers, status);
  return {
    ...createUploadMetrics(makers),
    ...createStoreMetrics(makers),
    recordings: createRecordingCounter(registry),
    connections: createConnectionGauge(registry),
  };
}

/** Metrics of uploads. */
function createUploadMetrics({ counter, labelled, histogram }: MetricMakers) {
  return {
    receivedBytes: counter('tailcast_recorder_received_bytes_total', 'Received bytes of session uploads.'),
    durableBytes: counter(
      'tailcast_recorder_durable_bytes_total',
      'Durable and acknowledged bytes of session uploads.',
    ),
    ackLagSeconds: histogram(
      'tailcast_recorder_ack_lag_seconds',
      'Time from the receipt of a byte until it is durable, for the oldest byte of each commit.',
      DISK_BUCKETS,
    ),
    fsyncSeconds: histogram(
      'tailcast_recorder_fsync_seconds',
      'Time of one fsync of one spool file.',
      DISK_BUCKETS,
    ),
    commitSeconds: histogram(
      'tailcast_recorder_commit_seconds',
      'Time to make the waiting bytes of all sessions durable.',
      DISK_BUCKETS,
    ),
    uploadsFailed: labelled(
      'tailcast_recorder_uploads_failed_total',
      'Uploads that the recorder ended with an error, by error code.',
      'code',
      ['STORE_FAILED', 'STORE_FULL', 'UPLOAD_MALFORMED', 'UPLOAD_TOO_LARGE', 'UPLOAD_CONFLICT'],
    ),
    refused: labelled(
      'tailcast_recorder_refused_total',
      'Refused requests of uploaders, by error code.',
      'code',
      [
        'STORE_FULL',
        'STORE_FAILED',
        'RECORDER_BUSY',
        'UPLOAD_REFUSED',
        'IDENTITY_UNKNOWN',
        'IDENTITY_UNAVAILABLE',
        'IDENTITY_MALFORMED',
      ],
    ),
    events: counter('tailcast_recorder_events_total', 'Durable API request events.'),
  };
}

/** Number of open connections of each listener. */
function createConnectionGauge(registry: Registry): Gauge<'listener'> {
  const gauge = new Gauge({
    name: 'tailcast_recorder_connections',
    help: 'Open connections, by listener: upload or read. Viewers use upload, unless readListen is set.',
    labelNames: ['listener'],
    registers: [registry],
  });
  for (const listener of ['upload', 'read']) gauge.set({ listener }, 0);
  return gauge;
}

/** Metrics of the store. */
function createStoreMetrics({ counter, labelled, gauge }: MetricMakers) {
  return {
    storedBytes: counter('tailcast_recorder_stored_bytes_total', 'Bytes of casts written to the store.'),
    storeRetries: counter(
      'tailcast_recorder_store_retries_total',
      'Failed attempts to write a recording to the store.',
    ),
    eventBatchFailures: counter(
      'tailcast_recorder_event_batch_failures_total',
      'Failed attempts to write batches of events to the store.',
    ),
    oversized: counter(
      'tailcast_recorder_oversized_documents_total',
      'Event batches that a search skipped because of their size, plus days with too many batches.',
    ),
    publishFailures: counter(
      'tailcast_recorder_log_publish_failures_total',
      'Failed attempts to write the evidence log to the store.',
    ),
    removed: labelled(
      'tailcast_recorder_removed_total',
      'Recordings that retention removed, by reason: age or quota if verified, otherwise unverified.',
      'reason',
      ['age', 'quota', 'unverified'],
    ),
    retentionFailures: counter(
      'tailcast_recorder_retention_failures_total',
      'Failed runs of the retention policy.',
    ),
    overQuota: gauge(
      'tailcast_recorder_over_quota',
      '1 while protected recordings exceed --max-store-bytes and the recorder refuses new sessions.',
    ),
    unprovenHolds: gauge(
      'tailcast_recorder_unproven_holds',
      'Recordings that retention keeps, because the store lost their hold or the hold has no trusted signature.',
    ),
    checkpointBytes: counter(
      'tailcast_recorder_checkpoint_bytes_total',
      'Bytes of open sessions copied to the shared bucket.',
    ),
    checkpointFailures: counter(
      'tailcast_recorder_checkpoint_failures_total',
      'Failed copies of open sessions to the shared bucket.',
    ),
    adopted: counter(
      'tailcast_recorder_adopted_total',
      'Sessions that this recorder took over from lost recorders.',
    ),
    untrusted: gauge(
      'tailcast_recorder_untrusted_sessions',
      'Sessions in the shared bucket without the signature of a trusted recorder. The recorder keeps them unchanged.',
    ),
  };
}

function createRecordingCounter(registry: Registry): Counter<'state' | 'result'> {
  const counter = new Counter({
    name: 'tailcast_recorder_recordings_total',
    help: 'Finished recordings, by state (completed, interrupted, violated) and result (exit 0, exit nonzero, …).',
    labelNames: ['state', 'result'],
    registers: [registry],
  });
  for (const state of ['completed', 'interrupted', 'violated'])
    for (const result of RESULT_KINDS) counter.inc({ state, result }, 0);
  return counter;
}

function addGauges(registry: Registry, { gauge }: MetricMakers, status: () => IntakeStatus): void {
  new Gauge({
    name: 'tailcast_recorder_sessions',
    help:
      'Sessions in the spool: running, cut (can still be continued), storing (ended, but not yet in the store), ' +
      'unreadable.',
    labelNames: ['state'],
    registers: [registry],
    collect() {
      const { running, cut, storing, unreadable } = status();
      for (const [state, count] of Object.entries({ running, cut, storing, unreadable }))
        this.set({ state }, count);
    },
  });
  gauge('tailcast_recorder_spool_bytes', 'Durable bytes of the sessions in the spool.', () => status().bytes);
  gauge(
    'tailcast_recorder_waiting_bytes',
    'Received bytes that wait for the next commit.',
    () => status().waitingBytes,
  );
  gauge(
    'tailcast_recorder_oldest_storing_seconds',
    'Longest time that a stopped session has waited to be stored; 0 if no session waits.',
    () => status().oldestStoringMs / 1000,
  );
  gauge(
    'tailcast_recorder_log_unpublished_entries',
    'Entries of the evidence log that are not in the store.',
    () => status().unpublishedEntries,
  );
}

/** Creates the meter that adds measurements of uploads to the metrics. */
export function createUploadMeter(metrics: RecorderMetrics): UploadMeter {
  return {
    synced: (durationMs) => metrics.fsyncSeconds.observe(durationMs / 1000),
    durable(bodyBytes, waitedMs) {
      metrics.durableBytes.inc(bodyBytes);
      metrics.ackLagSeconds.observe(waitedMs / 1000);
    },
  };
}
