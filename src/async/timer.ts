/** A source of timers, which tests replace. */
export interface Timer {
  /** Runs `action` after `delayMs`. Returns a function that cancels it. */
  schedule(delayMs: number, action: () => void): () => void;
}

/** Timers of Node. A scheduled action keeps the process alive. */
export const systemTimer: Timer = {
  schedule(delayMs, action) {
    const timer = setTimeout(action, delayMs);
    return () => clearTimeout(timer);
  },
};
