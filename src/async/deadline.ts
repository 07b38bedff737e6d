/** A timer that fires once unless it is moved or cleared, and never keeps the process alive. */
export interface Deadline {
  /** Starts the full span again. */
  extend(): void;
  clear(): void;
}

/** Calls `expire` when `ms` have passed since the start or the last `extend`. */
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
