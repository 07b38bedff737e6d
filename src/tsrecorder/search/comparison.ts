/**
 * Decides when the indexer compares store and index. If the queue of the indexer is full, it drops further changes. The
 * next comparison finds the recordings of dropped changes.
 */
import type { IndexerOptions } from './index-progress.ts';

/** Maximum number of new recordings, and of removed recordings, that an indexer queues. */
export const MAX_QUEUED = 20_000;

export class Comparison {
  readonly #options: Pick<IndexerOptions, 'now' | 'reconcileMs' | 'metrics' | 'log'>;
  #nextAt: number;
  /** Number of changes that were dropped since the indexer started. */
  #dropped = 0;
  /** Value of `#dropped` when the last successful comparison started; undefined before the first comparison. */
  #covered: number | undefined;

  constructor(options: Pick<IndexerOptions, 'now' | 'reconcileMs' | 'metrics' | 'log'>) {
    this.#options = options;
    this.#nextAt = options.now();
  }

  /** True if the indexer knows all recordings that the index lacks. */
  get isCurrent(): boolean {
    return this.#covered === this.#dropped;
  }

  /** Returns true if a comparison is due. @param queued number of queued changes */
  isDue(queued: number): boolean {
    return this.#options.now() >= this.#nextAt || (!this.isCurrent && queued === 0);
  }

  /** Admits a change to the queue. @returns false if the queue is full; the change is then counted as dropped */
  admit(queued: number): boolean {
    if (queued < MAX_QUEUED) return true;
    const { metrics, log } = this.#options;
    if (this.#dropped === (this.#covered ?? 0))
      log.warn(
        { queued },
        'the queue of the search index is full: the next comparison finds further changes',
      );
    this.#dropped += 1;
    metrics.dropped();
    return false;
  }

  /** Starts a comparison. The returned function must be called when the comparison succeeded. */
  start(): () => void {
    const { now, reconcileMs } = this.#options;
    this.#nextAt = now() + reconcileMs;
    const dropped = this.#dropped;
    return () => {
      this.#covered = dropped;
    };
  }

  /** Requires a new comparison, because the index process exited. */
  reset(): void {
    this.#covered = undefined;
    this.#dropped = 0;
    this.#nextAt = this.#options.now();
  }
}
