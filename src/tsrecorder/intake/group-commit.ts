/**
 * Group commit: one fsync cycle for all sessions. A cycle commits all pending bytes. After the start of a cycle, the
 * next cycle waits until a pause is over. The next cycle starts earlier if many bytes are pending, or if a user waits
 * for pending bytes. The first bytes after a quiet time are committed immediately.
 */

/** A session with pending bytes. `commit` handles its own failures and never rejects. */
export interface Committable {
  commit(): Promise<void>;
}

/** Commits the pending bytes of many sessions in one fsync cycle. */
export type GroupCommit = ReturnType<typeof createGroupCommit>;

export interface GroupCommitOptions {
  /**
   * Maximum time between the starts of two cycles, in milliseconds. On a fast disk, the cycles start more often; see
   * {@link MIN_IDLE_RATIO}.
   */
  readonly windowMs: number;
  /** Returns the time of a monotonic clock, in milliseconds. */
  readonly now: () => number;
  /** Called after each cycle with its duration. */
  readonly onCycle?: (durationMs: number) => void;
}

/** If all sessions together have this number of pending bytes, a cycle starts before the end of the window. */
export const COMMIT_BYTES = 256 * 1024;
/** Number of files that are synced in parallel. Node.js has four file threads, so at least one stays free for reads. */
const CONCURRENCY = 3;
/**
 * Minimum time between the starts of two cycles, as a multiple of the duration of the last cycle. The time is never
 * longer than the window.
 */
const MIN_IDLE_RATIO = 4;
/**
 * Minimum time between the starts of two cycles, as a fraction of the window. Bytes are collected for this time, so
 * that one cycle serves several sessions, and one fsync covers many short lines of a session.
 */
const SHORTEST = 0.2;

/** Creates a group commit for all sessions of a recorder. */
export function createGroupCommit(options: GroupCommitOptions) {
  let dirty = new Set<Committable>();
  let waitingBytes = 0;
  let hasUrgent = false;
  let lastStart = -Infinity;
  let { windowMs: pauseMs } = options;
  let running: Promise<void> | undefined;
  let timer: NodeJS.Timeout | undefined;

  function consider(): void {
    if (running !== undefined || dirty.size === 0) return;
    const atOnce = hasUrgent || waitingBytes >= COMMIT_BYTES;
    const waitMs = atOnce ? 0 : lastStart + pauseMs - options.now();
    if (waitMs <= 0) start();
    else timer ??= setTimeout(start, waitMs);
  }

  function start(): void {
    clearTimeout(timer);
    timer = undefined;
    if (running !== undefined) return;
    running = cycle().finally(() => {
      running = undefined;
      consider();
    });
  }

  async function cycle(): Promise<void> {
    // Wait one turn of the event loop, so that chunks that arrived together are committed together.
    await new Promise<void>((resolve) => setImmediate(resolve));
    lastStart = options.now();
    const members = dirty;
    dirty = new Set();
    waitingBytes = 0;
    hasUrgent = false;
    const iterator = members.values();
    const workers = Array.from({ length: Math.min(CONCURRENCY, members.size) }, async () => {
      for (const member of iterator) await member.commit();
    });
    await Promise.all(workers);
    const durationMs = options.now() - lastStart;
    pauseMs = Math.min(options.windowMs, Math.max(options.windowMs * SHORTEST, durationMs * MIN_IDLE_RATIO));
    options.onCycle?.(durationMs);
  }

  return {
    /** Reports that `member` has `bytes` more pending bytes. `urgent`: true if a user waits for these bytes. */
    schedule(member: Committable, bytes: number, urgent: boolean): void {
      dirty.add(member);
      waitingBytes += bytes;
      hasUrgent ||= urgent;
      consider();
    },
    /** Number of pending bytes of all members. */
    get waitingBytes(): number {
      return waitingBytes;
    },
    /** Runs cycles until no bytes are pending. */
    async flush(): Promise<void> {
      while (dirty.size > 0 || running !== undefined) {
        if (running === undefined) start();
        await running;
      }
    },
  };
}
