/** A timer that fires once unless it is moved or cleared, and never keeps the process alive. */
export interface Deadline {
  /** Restarts the timer with the full time. */
  extend(): void;
  clear(): void;
}

/** Calls `expire` after `ms` since the start or the last `extend`. */
export function createDeadline(ms: number, expire: () => void): Deadline {
  const timer = setTimeout(expire, ms);
  timer.unref();
  let live = true;
  return {
    extend() {
      if (live) timer.refresh();
    },
    clear() {
      live = false;
      clearTimeout(timer);
    },
  };
}
