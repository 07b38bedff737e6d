/** Since when durable bytes of running sessions wait to be found: also while nobody reads them, because the index keeps its process or is not there. */
import { castBytes } from '../library/replay.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';

/** A running session that is read as it grows. */
export interface Followed {
  readonly key: number;
  readonly entry: CatalogEntry;
  fed: number;
  /** True if nothing more of it is read while it runs: the rest is read when it has ended. */
  isDone: boolean;
  /** When the oldest byte that cannot be found yet was first seen. */
  waitingSince: number | undefined;
}

/** One per indexer. */
export class LiveWaits {
  /** Of sessions that nobody has begun to read. */
  readonly #unread = new Map<string, number>();

  /**
   * Looks at what there is.
   *
   * @param running ids of the sessions that run, and are to be followed
   */
  note(running: ReadonlySet<string>, followed: ReadonlyMap<string, Followed>, now: number): void {
    for (const id of this.#unread.keys()) if (!running.has(id)) this.#unread.delete(id);
    for (const id of running) {
      const known = followed.get(id);
      if (known === undefined) this.#unread.set(id, this.#unread.get(id) ?? now);
      else if (castBytes(known.entry) > known.fed) known.waitingSince ??= now;
    }
  }

  /** It is read from now on. @returns since when it waits */
  begin(id: string): number | undefined {
    const since = this.#unread.get(id);
    this.#unread.delete(id);
    return since;
  }

  /** All of these are read again from their beginnings. */
  drop(followed: ReadonlyMap<string, Followed>): void {
    for (const [id, { waitingSince }] of followed)
      if (waitingSince !== undefined) this.#unread.set(id, waitingSince);
  }

  /** How long the oldest waits, in milliseconds. */
  longest(followed: ReadonlyMap<string, Followed>, now: number): number {
    let since = now;
    for (const at of this.#unread.values()) since = Math.min(since, at);
    for (const { waitingSince } of followed.values()) since = Math.min(since, waitingSince ?? now);
    return now - since;
  }
}
