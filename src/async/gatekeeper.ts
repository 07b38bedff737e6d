/** A bounded number of things at once, and a line before them. */
export interface Gatekeeper {
  /**
   * Runs `action` when there is room; waits in line (first come, first served) when there is none.
   *
   * @throws Error `full()` when the line is full, the reason of `signal` when it aborts while waiting
   */
  run<T>(action: () => Promise<T>, signal?: AbortSignal): Promise<T>;
  readonly active: number;
  readonly waiting: number;
}

export interface GatekeeperOptions {
  readonly maxActive: number;
  /** How many may stand in line; default: all who come, for callers that bring a bounded number themselves. */
  readonly maxWaiting?: number;
  /** The error for those who find the line full. */
  readonly full?: () => Error;
}

export function createGatekeeper(options: GatekeeperOptions): Gatekeeper {
  const {
    maxActive,
    maxWaiting = Number.POSITIVE_INFINITY,
    full = () => new Error('too many wait'),
  } = options;
  const line = new Set<() => void>();
  let active = 0;

  async function enter(signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    if (active < maxActive) {
      active += 1;
      return;
    }
    if (line.size >= maxWaiting) throw full();
    await new Promise<void>((resolve, reject) => {
      const leave = (): void => {
        line.delete(proceed);
        reject(signal?.reason instanceof Error ? signal.reason : new Error('aborted'));
      };
      const proceed = (): void => {
        signal?.removeEventListener('abort', leave);
        resolve();
      };
      signal?.addEventListener('abort', leave, { once: true });
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
