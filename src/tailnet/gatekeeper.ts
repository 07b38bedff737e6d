/** A bounded number of things at once, a bounded line before them. */

export interface Gatekeeper {
  /**
   * Runs `action` when there is room; waits in line (first come, first served) when there is none.
   * @throws Error `full()` when the line is full, the reason of `signal` when it aborts while waiting
   */
  run<T>(action: () => Promise<T>, signal: AbortSignal): Promise<T>;
  readonly active: number;
  readonly waiting: number;
}

/** @param options `full` makes the error for those who find the line full */
export function createGatekeeper(options: {
  readonly maxActive: number;
  readonly maxWaiting: number;
  readonly full: () => Error;
}): Gatekeeper {
  const line = new Set<() => void>();
  let active = 0;

  async function enter(signal: AbortSignal): Promise<void> {
    signal.throwIfAborted();
    if (active < options.maxActive) {
      active += 1;
      return;
    }
    if (line.size >= options.maxWaiting) throw options.full();
    await new Promise<void>((resolve, reject) => {
      const leave = (): void => {
        line.delete(proceed);
        reject(signal.reason instanceof Error ? signal.reason : new Error('aborted'));
      };
      const proceed = (): void => {
        signal.removeEventListener('abort', leave);
        resolve();
      };
      signal.addEventListener('abort', leave, { once: true });
      line.add(proceed);
    });
  }

  /** The place of one who leaves goes to the first in line, without being free in between. */
  function exit(): void {
    const [next] = line;
    if (next === undefined) {
      active -= 1;
      return;
    }
    line.delete(next);
    next();
  }

  return {
    async run(action, signal) {
      await enter(signal);
      try {
        return await action();
      } finally {
        exit();
      }
    },
    get active() {
      return active;
    },
    get waiting() {
      return line.size;
    },
  };
}
