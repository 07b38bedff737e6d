/** What the recorder counts. Labels are codes and states of ours, never anything an uploader chose. */
import { Counter, Gauge, Histogram, Registry } from 'prom-client';

export interface RecorderMetrics {
  readonly receivedBytes: Counter;
  readonly recordings: Counter<'state'>;
  readonly uploadsFailed: Counter<'code'>;
  readonly refused: Counter<'code'>;
  readonly events: Counter;
  readonly commitSeconds: Histogram;
  readonly storeRetries: Counter;
  readonly checkpointBytes: Counter;
  readonly checkpointFailures: Counter;
  readonly adopted: Counter;
}

/**
 * @param registry where to register; by default one of its own.
 * @param sessions asked at scrape time for the number of sessions that are not in the store.
 */
export function createRecorderMetrics(
  registry: Registry = new Registry(),
  sessions: () => number,
): RecorderMetrics {
  const registers = [registry];
  new Gauge({
    name: 'tailcast_recorder_sessions',
    help: 'Sessions that are open, can be continued, or wait for the store.',
    registers,
    collect() {
      this.set(sessions());
    },
  });
  return {
    receivedBytes: new Counter({
      name: 'tailcast_recorder_received_bytes_total',
      help: 'Bytes of session uploads received.',
      registers,
    }),
    recordings: new Counter({
      name: 'tailcast_recorder_recordings_total',
      help: 'Recordings that ended, by how they ended.',
      labelNames: ['state'],
      registers,
    }),
    uploadsFailed: new Counter({
      name: 'tailcast_recorder_uploads_failed_total',
      help: 'Uploads that the recorder ended with an error.',
      labelNames: ['code'],
      registers,
    }),
    refused: new Counter({
      name: 'tailcast_recorder_refused_total',
      help: 'Requests of uploaders that were refused.',
      labelNames: ['code'],
      registers,
    }),
    events: new Counter({
      name: 'tailcast_recorder_events_total',
      help: 'API request events stored.',
      registers,
    }),
    commitSeconds: new Histogram({
      name: 'tailcast_recorder_commit_seconds',
      help: 'Time to make the waiting bytes of all sessions durable.',
      buckets: [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5],
      registers,
    }),
    storeRetries: new Counter({
      name: 'tailcast_recorder_store_retries_total',
      help: 'Failed attempts to bring a recording into the store.',
      registers,
    }),
    checkpointBytes: new Counter({
      name: 'tailcast_recorder_checkpoint_bytes_total',
      help: 'Bytes of open sessions copied to the shared bucket.',
      registers,
    }),
    checkpointFailures: new Counter({
      name: 'tailcast_recorder_checkpoint_failures_total',
      help: 'Rounds in which open sessions could not all be copied to the shared bucket.',
      registers,
    }),
    adopted: new Counter({
      name: 'tailcast_recorder_adopted_total',
      help: 'Sessions of lost recorders that were taken over.',
      registers,
    }),
  };
}
