/** Time as the operator sees it, so that tests can move it. */
export interface Clock {
  /** Milliseconds since 1970. */
  now(): number;
  /** Runs `action` after `delayMs`; the answer cancels it. Does not keep the process alive by itself. */
  schedule(delayMs: number, action: () => void): () => void;
}

/** The machine's clock. */
export const systemClock: Clock = {
  now: Date.now,
  schedule(delayMs, action) {
    const timer = setTimeout(action, delayMs);
    return () => clearTimeout(timer);
  },
};

/** Resolves after `delayMs`, or at once when the signal is aborted. Never rejects: the caller looks at the signal. */
export function pause(clock: Clock, delayMs: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    if (signal.aborted) {
      resolve();
      return;
    }
    const done = (): void => {
      cancel();
      signal.removeEventListener('abort', done);
      resolve();
    };
    const cancel = clock.schedule(delayMs, done);
    signal.addEventListener('abort', done, { once: true });
  });
}

/** Delays that double from `baseMs` to `maxMs`, each shortened by up to half so that many do not come at once. */
export function createBackoff(
  limits: { readonly baseMs: number; readonly maxMs: number },
  random: () => number,
): { next(): number; reset(): void } {
  let failures = 0;
  return {
    next() {
      const full = Math.min(limits.maxMs, limits.baseMs * 2 ** Math.min(failures, 30));
      failures += 1;
      return full * (1 - random() / 2);
    },
    reset() {
      failures = 0;
    },
  };
}
