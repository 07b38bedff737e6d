/** The commits of a recorder: how much and how many at a time, and what is measured of them. */
import type { RecorderMetrics } from './recorder-metrics.ts';
import { createGroupCommit, type GroupCommit } from './group-commit.ts';

/** Bytes waiting of all sessions that start a commit before its time. */
const COMMIT_BYTES = 256 * 1024;
/** Files synced at a time: fewer than the four threads Node has for all files, so that reading goes on. */
const COMMIT_CONCURRENCY = 3;

/** @param onCycle called after each cycle. */
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
