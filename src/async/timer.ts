/** Creates timers. Tests replace it. */
export interface Timer {
  /** Runs `action` after `delayMs`. Returns a function that cancels it. */
  schedule(delayMs: number, action: () => void): () => void;
}

/** A timer that fires later than this shows that the process was paused, in milliseconds. */
const PAUSED_MS = 500;
/** Time to read what arrived during a pause, in milliseconds. */
const CATCH_UP_MS = 1000;

/** Timers of Node. A scheduled action keeps the process alive. After a pause of the process, it runs 1 s later. */
export const systemTimer: Timer = {
  schedule(delayMs, action) {
    const dueMs = performance.now() + delayMs;
    let cancel = (): void => undefined;
    const timer = setTimeout(() => {
      cancel = afterPause(dueMs, action);
    }, delayMs);
    return () => {
      clearTimeout(timer);
      cancel();
    };
  },
};

/**
 * Runs `action` now, or 1 s later if its timer fired late: then the process was paused (suspended, throttled, or busy),
 * and timers run before the data that arrived meanwhile is read. Otherwise a peer that answered in time would be called
 * late.
 *
 * @param dueMs time at which the timer was due, of `performance.now()`
 * @returns a function that cancels the action
 */
export function afterPause(dueMs: number, action: () => void): () => void {
  if (performance.now() - dueMs < PAUSED_MS) {
    action();
    return () => undefined;
  }
  const timer = setTimeout(action, CATCH_UP_MS);
  return () => clearTimeout(timer);
}
