/**
 * A work queue of keys. The queue contains a key at most once, so its size is at most the number of different keys, and
 * no key needs to be dropped. Each key runs at most once at a time. A key that is added while it runs is run again. A
 * failed key is retried after a delay that doubles with each failure.
 */
import { createBackoff, type Backoff } from '../async/backoff.ts';
import { createKeyedCounter } from '../keyed-counter.ts';
import type { Clock } from './clock.ts';
import { untilAborted } from '../async/with-timeout.ts';

export interface WorkQueueOptions {
  /**
   * Processes one key. If the function throws, the key is retried. If it returns a number, the key runs again after
   * this number of milliseconds.
   */
  readonly handle: (key: string, signal: AbortSignal) => Promise<number | undefined>;
  readonly onFailure: (key: string, error: unknown, retryInMs: number) => void;
  readonly workers: number;
  /**
   * Returns the namespace of a key. Keys of one namespace use at most half of the workers that other keys leave free,
   * so that the resources of one namespace cannot delay all other work. Default: each key is its own namespace.
   */
  readonly shareOf?: (key: string) => string;
  readonly clock: Clock;
  readonly random: () => number;
  /** Delays of retries; default: from half a second to five minutes. */
  readonly retry?: { readonly baseMs: number; readonly maxMs: number };
}

/** A queue. Call `run` to start it. */
export class WorkQueue {
  readonly #options: WorkQueueOptions;
  readonly #waiting = new Set<string>();
  readonly #working = new Map<string, Promise<void>>();
  readonly #shares = createKeyedCounter();
  readonly #addedMeanwhile = new Set<string>();
  readonly #delayed = new Map<string, () => void>();
  readonly #backoffs = new Map<string, Backoff>();
  #signal: AbortSignal | undefined;

  constructor(options: WorkQueueOptions) {
    this.#options = options;
  }

  /** Number of queued and running keys. */
  get size(): number {
    return this.#waiting.size + this.#working.size;
  }

  add(key: string): void {
    this.#cancelDelay(key);
    if (this.#working.has(key)) {
      this.#addedMeanwhile.add(key);
      return;
    }
    this.#waiting.add(key);
    this.#startWork();
  }

  /** Runs until `signal` aborts. Resolves when no key is running any more. */
  async run(signal: AbortSignal): Promise<void> {
    this.#signal = signal;
    this.#startWork();
    await untilAborted(signal);
    for (const key of this.#delayed.keys()) this.#cancelDelay(key);
    await Promise.all(this.#working.values());
    this.#signal = undefined;
  }

  #startWork(): void {
    const signal = this.#signal;
    if (signal === undefined) return;
    const { workers, shareOf = (key) => key } = this.#options;
    for (const key of this.#waiting) {
      if (signal.aborted || this.#working.size >= workers) return;
      const leave = this.#shares.takeShare(shareOf(key), workers);
      if (leave === undefined) continue;
      this.#waiting.delete(key);
      this.#working.set(key, this.#work(key, leave, signal));
    }
  }

  async #work(key: string, leave: () => void, signal: AbortSignal): Promise<void> {
    let retryAfterMs: number | undefined;
    try {
      retryAfterMs = await this.#options.handle(key, signal);
      this.#backoffs.delete(key);
    } catch (error) {
      retryAfterMs = this.#backoff(key);
      if (!signal.aborted) this.#options.onFailure(key, error, retryAfterMs);
    }
    this.#working.delete(key);
    leave();
    if (signal.aborted) return;
    if (this.#addedMeanwhile.delete(key)) {
      this.#waiting.add(key);
    } else if (retryAfterMs !== undefined) {
      this.#delay(key, retryAfterMs);
    }
    this.#startWork();
  }

  #backoff(key: string): number {
    const { retry = { baseMs: 500, maxMs: 300_000 }, random } = this.#options;
    const backoff = this.#backoffs.get(key) ?? createBackoff(retry, random);
    this.#backoffs.set(key, backoff);
    return backoff.next();
  }

  #delay(key: string, delayMs: number): void {
    this.#delayed.set(
      key,
      this.#options.clock.schedule(delayMs, () => {
        this.#delayed.delete(key);
        this.add(key);
      }),
    );
  }

  #cancelDelay(key: string): void {
    this.#delayed.get(key)?.();
    this.#delayed.delete(key);
  }
}
