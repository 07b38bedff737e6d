import type { Duplex } from 'node:stream';

/** A timer that fires once, unless it is extended or cleared before. */
export type Deadline = ReturnType<typeof createDeadline>;

/** If a timer fires at least this many milliseconds late, the process was paused. */
const PAUSED_MS = 500;
/** Additional time to read data that arrived during a pause, in milliseconds. */
const CATCH_UP_MS = 1000;

/**
 * Calls `expire` when `ms` have passed since the start or the last `extend`. If the timer fires late, the process was
 * paused (suspended, throttled or busy). Node.js then runs timers before it reads the data that arrived meanwhile, so
 * `expire` is delayed by one more second. Otherwise a peer that answered in time would count as unresponsive.
 *
 * @param keepsAlive true if the deadline keeps the process alive
 */
export function createDeadline(ms: number, expire: () => void, keepsAlive = false) {
  const start = (delayMs: number, action: () => void): NodeJS.Timeout => {
    const timer = setTimeout(action, delayMs);
    return keepsAlive ? timer : timer.unref();
  };
  let live = true;
  let dueMs = performance.now() + ms;
  let catchUp: NodeJS.Timeout | undefined;
  const timer = start(ms, () => {
    if (performance.now() - dueMs < PAUSED_MS) expire();
    else catchUp = start(CATCH_UP_MS, expire);
  });
  return {
    /** Restarts the timer with the full time. */
    extend: () => {
      if (!live) return;
      clearTimeout(catchUp);
      dueMs = performance.now() + ms;
      timer.refresh();
    },
    clear: () => {
      live = false;
      clearTimeout(catchUp);
      clearTimeout(timer);
    },
  };
}

/** Maximum delay of a timer in milliseconds. Node.js replaces a longer delay with 1 ms. */
const MAX_TIMER_MS = 2 ** 31 - 1;

/**
 * Calls `action` once after `ms`, which may be longer than a timer of Node.js allows. Does not keep the process alive.
 *
 * @returns a function that cancels the call
 */
export function callAfter(ms: number, action: () => void): () => void {
  let timer: NodeJS.Timeout;
  const wait = (leftMs: number): void => {
    const next = leftMs > MAX_TIMER_MS ? () => wait(leftMs - MAX_TIMER_MS) : action;
    timer = setTimeout(next, Math.min(leftMs, MAX_TIMER_MS)).unref();
  };
  wait(ms);
  return () => clearTimeout(timer);
}

/**
 * Destroys a stream that is still open after `ms`. Call this function after the last write, because the peer may never
 * close its side.
 */
export function destroyAfter(stream: Duplex, ms: number): void {
  const deadline = createDeadline(ms, () => stream.destroy(), true);
  stream.once('close', deadline.clear);
}
