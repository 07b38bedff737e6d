/** Background tasks of a recorder whose bucket is shared with other recorders. */
import { settledWithin } from '../../async/with-timeout.ts';
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import type { SessionEvidence } from '../evidence/session-evidence.ts';
import type { RecorderEvents } from '../events/recorder-events.ts';
import type { Ingest } from '../intake/ingest.ts';
import type { RecorderMetrics } from '../intake/recorder-metrics.ts';
import type { RecordingStore } from '../store/store.ts';
import { createCopies } from './copies.ts';
import { Lease, LEASE_TAKEN, type LeaseOptions } from './lease.ts';
import { createLoop } from './loop.ts';
import { createRemoteSessions } from './remote-sessions.ts';
import { createUntrustedReport } from './untrusted-report.ts';
import { createTakeover, type UntrustedSession } from './takeover.ts';

export interface SharedBucketOptions extends LeaseOptions {
  readonly store: RecordingStore;
  readonly ingest: () => Ingest;
  readonly evidence: Pick<SessionEvidence, 'log' | 'key' | 'startOf' | 'publish' | 'witnessed'>;
  readonly events: Pick<RecorderEvents, 'record'>;
  readonly checkpointMs: number;
  /** Age after which unfinished multipart uploads are aborted, in milliseconds. */
  readonly staleUploadMs: number;
  readonly log: Logger;
  readonly metrics: RecorderMetrics;
}

/** Background tasks of a recorder in a shared bucket. */
export type SharedBucket = Awaited<ReturnType<typeof openSharedBucket>>;

const SWEEPS_PER_STALE_TIME = 4;
/** Maximum wait for the bucket at shutdown, in milliseconds. */
const CLOSE_MS = 5000;

/** Opens the lease of the recorder, and prepares the background tasks. */
export async function openSharedBucket(options: SharedBucketOptions) {
  const { bucket, log, metrics } = options;
  const lease = await Lease.open(options);
  const report = createUntrustedReport(options);
  let untrusted: ReadonlyMap<string, UntrustedSession> = new Map();
  const remote = createRemoteSessions(
    bucket,
    () => lease.name,
    options.trusted,
    (folder) => untrusted.get(folder),
  );
  const live = (): readonly LiveRecording[] => options.ingest().live();
  const onFailure = (): void => metrics.checkpointFailures.inc();
  const copies = createCopies({
    bucket,
    recorder: () => lease.name,
    evidence: options.evidence,
    live,
    log,
    onBytes: (bytes) => metrics.checkpointBytes.inc(bytes),
    onFailure,
  });
  const takeOver = createTakeover({
    ...options,
    lease,
    live,
    adopt: (key) => options.ingest().adopt(key),
    onAdopted: () => metrics.adopted.inc(),
    onUntrusted(sessions) {
      untrusted = new Map(sessions.map((session) => [session.folder, session]));
      report(sessions);
    },
  });
  const copying = createLoop(() => copies.update(), options.checkpointMs / 2, log, onFailure);
  // The lease has its own loop, because a takeover pass may take longer than the lease duration if other programs have
  // written many objects.
  const renewing = createLoop(
    async () => {
      if (!(await lease.renew())) log.warn(LEASE_TAKEN);
    },
    options.leaseMs / 4,
    log,
    onFailure,
  );
  const takingOver = createLoop(takeOver, options.leaseMs / 4, log, onFailure);
  let started: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;
  let sweeping: Promise<void> = Promise.resolve();

  function sweep(): void {
    sweeping = bucket.sweepUploads(options.staleUploadMs).then(
      (count) => {
        if (count > 0) log.info({ count }, 'unfinished uploads were aborted');
      },
      // Not an error: some S3 servers cannot list unfinished uploads.
      (error: unknown) => log.info({ error: errorText(error) }, 'unfinished uploads could not be listed'),
    );
  }

  return {
    /** Lists open sessions of other recorders. */
    remote,
    /** Starts the tasks: renewal of the lease, copies, takeovers, and removal of unfinished uploads. */
    start(): void {
      takingOver.start();
      // Write the lease before the first copy, because other recorders do not take over sessions without a lease.
      started ??= renewing.now().then(() => copying.start());
      renewing.start();
      sweep();
      timer = setInterval(sweep, options.staleUploadMs / SWEEPS_PER_STALE_TIME);
    },
    async close(): Promise<void> {
      clearInterval(timer);
      // Copy the last bytes, because the machine may disappear after the process has stopped.
      const ended = started
        ?.then(() => copying.now())
        .then(() => Promise.all([copying.close(), takingOver.close(), renewing.close()]));
      await settledWithin(CLOSE_MS, Promise.all([ended, sweeping]));
    },
  };
}
