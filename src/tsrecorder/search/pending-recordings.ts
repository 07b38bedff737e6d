/**
 * Recordings whose current version is not in the index. There are two groups: recordings that the last comparison of
 * store and index found (*backlog*, up to a million), and recordings that were added later. If a recording is in both
 * groups, `size` counts it twice. This is harmless, because a greater size only causes lists to read from the store.
 */
import { indexOfId } from '../library/uploads.ts';
import type { PendingIds } from '../library/session-index.ts';
import { recordingId } from '../store/key.ts';
import type { StoredRecording } from '../store/store.ts';

export class PendingRecordings implements PendingIds {
  readonly #others = new Set<string>();
  /** Recordings of the last comparison, newest first. */
  #backlog: readonly StoredRecording[] = [];
  #taken = 0;

  get size(): number {
    return this.#others.size + this.backlog;
  }

  /** Number of recordings in the backlog. */
  get backlog(): number {
    return this.#backlog.length - this.#taken;
  }

  has(id: string): boolean {
    return this.#others.has(id) || indexOfId(this.#backlog, id) >= this.#taken;
  }

  *[Symbol.iterator](): Generator<string> {
    yield* this.#others;
    for (const { key } of this.#backlog.slice(this.#taken)) yield recordingId(key);
  }

  add(id: string): void {
    this.#others.add(id);
  }

  delete(id: string): void {
    this.#others.delete(id);
  }

  /** Returns the next recording of the backlog, newest first. The recording stays pending. */
  take(): string | undefined {
    const next = this.#backlog[this.#taken];
    if (next === undefined) {
      // Free the array before the next comparison.
      this.#backlog = [];
      this.#taken = 0;
      return undefined;
    }
    this.#taken += 1;
    const id = recordingId(next.key);
    this.#others.add(id);
    return id;
  }

  /**
   * Replaces the pending recordings.
   * @param newest result of a comparison, newest first
   * @param others ids of other recordings that stay pending
   */
  replace(newest: readonly StoredRecording[], others: Iterable<string>): void {
    this.#backlog = newest;
    this.#taken = 0;
    this.#others.clear();
    for (const id of others) this.#others.add(id);
  }
}
