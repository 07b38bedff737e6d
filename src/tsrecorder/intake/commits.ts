/** Limits and metrics of the commits of a recorder. */
import type { RecorderMetrics } from './recorder-metrics.ts';
import { createGroupCommit, type GroupCommit } from './group-commit.ts';

/** Pending bytes of all sessions that start a commit early. */
const COMMIT_BYTES = 256 * 1024;
/** Number of files synced in parallel: fewer than Node's four file threads, so that reads are not blocked. */
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
