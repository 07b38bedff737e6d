/** Limits the number of concurrent actions, and queues further actions. */
import { FairQueue } from './fair-queue.ts';

export interface LimiterOptions {
  readonly maxActive: number;
  /** Maximum number of concurrent actions of one owner. Default: `maxActive`. */
  readonly maxActivePerOwner?: number;
  /**
   * Number of queued actions at which the queue counts as full. A full queue accepts an action only if its owner has no
   * queued action, or fewer than this number divided by the number of owners. Default: unlimited. 0 disables the queue.
   */
  readonly maxWaiting?: number;
  /** Returns the error for a full queue. */
  readonly full?: () => Error;
}

interface Waiting {
  readonly owner: string;
  readonly proceed: () => void;
}

export function createLimiter(options: LimiterOptions) {
  const {
    maxActive,
    maxActivePerOwner = maxActive,
    maxWaiting = Number.POSITIVE_INFINITY,
    full = () => new Error('too many wait'),
  } = options;
  const queue = new FairQueue<Waiting>();
  const activeOf = new Map<string, number>();
  let active = 0;
  const canStart = (owner: string): boolean =>
    active < maxActive && (activeOf.get(owner) ?? 0) < maxActivePerOwner;

  function start(owner: string): void {
    active += 1;
    activeOf.set(owner, (activeOf.get(owner) ?? 0) + 1);
    queue.charge(owner, 1);
  }

  /** Starts queued actions while there is capacity. */
  function startWaiting(): void {
    for (let next = queue.take(canStart); next !== undefined; next = queue.take(canStart)) {
      start(next.owner);
      next.proceed();
    }
  }

  function isFull(owner = ''): boolean {
    if (queue.size < maxWaiting) return false;
    const known = queue.sizeOf(owner);
    const owners = queue.owners + (known === 0 ? 1 : 0);
    return known >= Math.max(Math.min(1, maxWaiting), Math.floor(maxWaiting / owners));
  }

  async function enter(signal: AbortSignal | undefined, owner: string): Promise<void> {
    signal?.throwIfAborted();
    if (canStart(owner)) {
      start(owner);
      return;
    }
    if (isFull(owner)) throw full();
    await new Promise<void>((resolve, reject) => {
      const waiting = {
        owner,
        proceed() {
          signal?.removeEventListener('abort', leave);
          resolve();
        },
      };
      const leave = (): void => {
        queue.delete(waiting);
        reject(signal?.reason instanceof Error ? signal.reason : new Error('aborted'));
      };
      signal?.addEventListener('abort', leave, { once: true });
      queue.add(waiting, owner);
    });
  }

  function exit(owner: string): void {
    active -= 1;
    const left = (activeOf.get(owner) ?? 1) - 1;
    if (left === 0) activeOf.delete(owner);
    else activeOf.set(owner, left);
    startWaiting();
  }

  return {
    /**
     * Runs `action` when there is capacity. Owners take turns. The actions of one owner start in order.
     *
     * @throws Error `full()` if the queue is full for the owner; the reason of `signal` if the signal aborts while the
     * action is queued
     */
    async run<T>(action: () => Promise<T>, signal?: AbortSignal, owner = ''): Promise<T> {
      await enter(signal, owner);
      try {
        return await action();
      } finally {
        exit(owner);
      }
    },
    /** Returns true if the queue is full for this owner. */
    isFull,
    get active(): number {
      return active;
    },
    get waiting(): number {
      return queue.size;
    },
  };
}
