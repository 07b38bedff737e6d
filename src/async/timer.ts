import { createDeadline } from './deadline.ts';

/** Creates timers. Tests have their own implementation of this interface. */
export interface Timer {
  /** Runs `action` after `delayMs`. Returns a function that cancels the timer. */
  schedule(delayMs: number, action: () => void): () => void;
}

/** Timers of Node.js, created with `createDeadline`. A scheduled action keeps the process alive. */
export const systemTimer: Timer = {
  schedule: (delayMs, action) => createDeadline(delayMs, action, true).clear,
};
