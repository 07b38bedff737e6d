/** Limits and metrics of the commits of a recorder. */
import type { RecorderMetrics } from './recorder-metrics.ts';
import { createGroupCommit, type GroupCommit } from './group-commit.ts';

/** A commit starts before the end of the window if all sessions together have this number of pending bytes. */
const COMMIT_BYTES = 256 * 1024;
/** Number of files that are synced in parallel. Node.js has four file threads, so at least one stays free for reads. */
const COMMIT_CONCURRENCY = 3;

/** Creates the group commit of a recorder. @param onCycle called after each cycle */
export function createCommits(
  windowMs: number,
  clock: { monotonic(): number },
  metrics: Pick<RecorderMetrics, 'commitSeconds'>,
  onCycle: () => void,
): GroupCommit {
  return createGroupCommit({
    windowMs,
    maxWaitingBytes: COMMIT_BYTES,
    concurrency: COMMIT_CONCURRENCY,
    now: () => clock.monotonic(),
    onCycle(durationMs) {
      metrics.commitSeconds.observe(durationMs / 1000);
      onCycle();
    },
  });
}
