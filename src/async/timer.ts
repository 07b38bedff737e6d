/** Where waiting gets its time from, so that tests can move it. */
export interface Timer {
  /** Runs `action` after `delayMs`; the answer cancels it. */
  schedule(delayMs: number, action: () => void): () => void;
}

/** The machine's. What it schedules keeps the process alive. */
export const systemTimer: Timer = {
  schedule(delayMs, action) {
    const timer = setTimeout(action, delayMs);
    return () => clearTimeout(timer);
  },
};
