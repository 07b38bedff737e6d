/**
 * Recordings that are not in the index as they are now: those of the last comparison that have not been taken yet, which may be a million, and
 * those that came since or are being read. What is in both counts twice: more than there is only makes a list look at it by name.
 */
import { indexOfId } from '../library/newest.ts';
import type { PendingIds } from '../library/session-index.ts';
import { recordingId } from '../store/key.ts';
import type { StoredRecording } from '../store/store.ts';

export class PendingRecordings implements PendingIds {
  readonly #others = new Set<string>();
  /** Newest first. */
  #backlog: readonly StoredRecording[] = [];
  #taken = 0;

  get size(): number {
    return this.#others.size + this.backlog;
  }

  /** How many wait to be taken. */
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

  /** The newest of the backlog, which stays pending. */
  take(): string | undefined {
    const next = this.#backlog[this.#taken];
    if (next === undefined) {
      // what is done need not be kept until the next comparison
      this.#backlog = [];
      this.#taken = 0;
      return undefined;
    }
    this.#taken += 1;
    const id = recordingId(next.key);
    this.#others.add(id);
    return id;
  }

  /** What a comparison has found takes the place of what there was, `others` aside. @param newest newest first */
  replace(newest: readonly StoredRecording[], others: Iterable<string>): void {
    this.#backlog = newest;
    this.#taken = 0;
    this.#others.clear();
    for (const id of others) this.#others.add(id);
  }
}
