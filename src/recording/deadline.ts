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

/**
 * Waits for `work`, at most `ms` and until `signal` aborts. The loser is told by the signal it was given.
 * @throws what `work` threw, or an Error saying that `what` took too long
 */
export async function within<T>(
  ms: number,
  what: string,
  signal: AbortSignal,
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  const stop = new AbortController();
  const late = Promise.withResolvers<never>();
  const give = (reason: unknown): void => {
    stop.abort(reason);
    late.reject(reason);
  };
  const onAbort = (): void => give(signal.reason);
  signal.addEventListener('abort', onAbort, { once: true });
  const deadline = createDeadline(ms, () => give(new Error(`${what} took longer than ${ms} ms`)));
  try {
    return await Promise.race([work(stop.signal), late.promise]);
  } finally {
    deadline.clear();
    signal.removeEventListener('abort', onAbort);
  }
}
