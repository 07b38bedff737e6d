import { afterPause } from './timer.ts';

/** A timer that fires once unless it is moved or cleared, and never keeps the process alive. */
export interface Deadline {
  /** Restarts the timer with the full time. */
  extend(): void;
  clear(): void;
}

/** Calls `expire` after `ms` since the start or the last `extend`, and later if the process was paused meanwhile. */
export function createDeadline(ms: number, expire: () => void): Deadline {
  let live = true;
  let dueMs = performance.now() + ms;
  let cancel = (): void => undefined;
  const timer = setTimeout(() => {
    cancel = afterPause(dueMs, expire);
  }, ms);
  timer.unref();
  return {
    extend() {
      if (!live) return;
      cancel();
      dueMs = performance.now() + ms;
      timer.refresh();
    },
    clear() {
      live = false;
      cancel();
      clearTimeout(timer);
    },
  };
}
