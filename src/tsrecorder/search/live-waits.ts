/**
 * Measures how long durable bytes of running sessions wait until they are indexed. The time while the index is
 * unavailable counts as waiting time.
 */
import { castBytes } from '../library/replay.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';

/** A session that is indexed while it runs. */
export interface Followed {
  readonly id: string;
  readonly key: number;
  readonly entry: CatalogEntry;
  fed: number;
  /** True if this session is no longer followed: its remaining bytes are indexed after it has ended. */
  isDone: boolean;
  /** Time when the indexer first saw the oldest unindexed byte. */
  waitingSince: number | undefined;
}

/** Waiting times of one indexer. */
export class LiveWaits {
  /** Start of the waiting time of each running session whose indexing has not started. */
  readonly #unread = new Map<string, number>();

  /**
   * Updates the waiting times.
   *
   * @param running ids of the sessions that run now
   */
  note(running: ReadonlySet<string>, followed: ReadonlyMap<string, Followed>, now: number): void {
    for (const id of this.#unread.keys()) if (!running.has(id)) this.#unread.delete(id);
    for (const id of running) {
      const known = followed.get(id);
      if (known === undefined) this.#unread.set(id, this.#unread.get(id) ?? now);
      else if (castBytes(known.entry) > known.fed) known.waitingSince ??= now;
    }
  }

  /** Starts indexing a running session. @returns the time since which the session has waited to be indexed */
  begin(id: string): number | undefined {
    const since = this.#unread.get(id);
    this.#unread.delete(id);
    return since;
  }

  /** Resets sessions that will be read again from their start. */
  drop(followed: ReadonlyMap<string, Followed>): void {
    for (const [id, { waitingSince }] of followed)
      if (waitingSince !== undefined) this.#unread.set(id, waitingSince);
  }

  /** Returns the longest waiting time, in milliseconds. */
  longest(followed: ReadonlyMap<string, Followed>, now: number): number {
    let since = now;
    for (const at of this.#unread.values()) since = Math.min(since, at);
    for (const { waitingSince } of followed.values()) since = Math.min(since, waitingSince ?? now);
    return now - since;
  }
}
