/**
 * A limit in bytes that all users share, such as the memory or the disk for pending output. No user can use the
 * complete limit:
 *
 * ```
 *   │ 1/128 │ 1/128 │ 1/128 │ …            │ 7/8 of the limit                  │
 *   │ only for one user each, 1/8 in total │ for all users, first come first   │
 * ```
 *
 * Each user first uses the part that no other user can take. If more than 16 users have such a part, further users get
 * bytes of the common part.
 */

/** Fraction of the limit that each of 16 users can use even if other users have taken the common part. */
const OWN = 1 / 128;
/** Fraction of the limit for the own parts of all users. */
const ALL_OWN = 1 / 8;

export class Shares {
  readonly #limit: number;
  readonly #byUser = new Map<string, number>();
  /** Callbacks of {@link whenSpace}. Map keys: user. */
  readonly #waiting = new Map<string, Set<() => void>>();
  #bytes = 0;
  /** Used bytes of the own parts of all users. */
  #ownBytes = 0;
  #wakeScheduled = false;

  constructor(limitBytes: number) {
    this.#limit = limitBytes;
  }

  /** Used bytes of all users. */
  get bytes(): number {
    return this.#bytes;
  }

  usedBy(user: string): number {
    return this.#byUser.get(user) ?? 0;
  }

  /** Returns the number of bytes that the user may still take. */
  spaceOf(user: string): number {
    const allOwn = ALL_OWN * this.#limit;
    const own = Math.min(OWN * this.#limit - this.usedBy(user), allOwn - this.#ownBytes);
    const common = this.#limit - allOwn - (this.#bytes - Math.min(this.#ownBytes, allOwn));
    return Math.floor(Math.max(0, own) + Math.max(0, common));
  }

  /** True if the user has used at least half of the bytes that the user can use now. */
  isScarceFor(user: string): boolean {
    return this.usedBy(user) >= this.spaceOf(user);
  }

  /** @returns false if the user has no space for the bytes; they are then not counted */
  take(user: string, bytes: number): boolean {
    if (bytes > this.spaceOf(user)) return false;
    this.keep(user, bytes);
    return true;
  }

  /** Counts bytes even if they exceed the share of the user. The own parts of other users stay free. */
  keep(user: string, bytes: number): void {
    this.#set(user, this.usedBy(user) + bytes);
  }

  /** Returns bytes. Other users may then have more space too. */
  give(user: string, bytes: number): void {
    this.#set(user, this.usedBy(user) - bytes);
    if (this.#waiting.size === 0 || this.#wakeScheduled) return;
    this.#wakeScheduled = true;
    // The callbacks run later, because the caller of `give` may be in the middle of a change.
    queueMicrotask(() => {
      this.#wakeScheduled = false;
      this.#wake();
    });
  }

  /** Calls `wake` once, after a `give`, when the user has space. */
  whenSpace(user: string, wake: () => void): void {
    const wakes = this.#waiting.get(user);
    if (wakes === undefined) this.#waiting.set(user, new Set([wake]));
    else wakes.add(wake);
  }

  forget(user: string, wake: () => void): void {
    const wakes = this.#waiting.get(user);
    wakes?.delete(wake);
    if (wakes?.size === 0) this.#waiting.delete(user);
  }

  /** Calls the callbacks of all users that have space. */
  #wake(): void {
    // A callback may wait again, so the users are listed first.
    const users = [...this.#waiting.keys()].filter((user) => this.spaceOf(user) > 0);
    for (const user of users) {
      const wakes = this.#waiting.get(user) ?? [];
      this.#waiting.delete(user);
      for (const wake of wakes) wake();
    }
  }

  #set(user: string, bytes: number): void {
    const own = OWN * this.#limit;
    const before = this.usedBy(user);
    this.#bytes += bytes - before;
    this.#ownBytes += Math.min(bytes, own) - Math.min(before, own);
    if (bytes === 0) this.#byUser.delete(user);
    else this.#byUser.set(user, bytes);
  }
}
