/**
 * A limit in bytes that all users share, such as the memory or the disk for pending output. One user may use at most as
 * many bytes as stay free for all users. The same rule applies to the slots of `KeyedCounter.hasShare`:
 *
 * ```
 *   │ 1/2 of the limit   │ 1/4      │ 1/8 │ … │ a user, at most    │ a second │     │ further users
 * ```
 *
 * A single user therefore gets at most half of the limit, and each further user gets at most half of the free bytes. A
 * new user therefore always gets space, but each user who uses as much as possible halves the space of the next user.
 */

interface Use {
  readonly bytes: number;
  /** Bytes within the share of the user. Only these bytes reduce the space of other users. */
  readonly counted: number;
}

const NONE: Use = { bytes: 0, counted: 0 };

export class Shares {
  readonly #limit: number;
  readonly #byUser = new Map<string, Use>();
  /** Callbacks of {@link whenSpace}. Map keys: user. */
  readonly #waiting = new Map<string, Set<() => void>>();
  #bytes = 0;
  /** Sum of {@link Use.counted}. */
  #counted = 0;
  #wakeScheduled = false;

  constructor(limitBytes: number) {
    this.#limit = limitBytes;
  }

  /** Used bytes of all users. */
  get bytes(): number {
    return this.#bytes;
  }

  usedBy(user: string): number {
    return this.#byUser.get(user)?.bytes ?? 0;
  }

  /** Returns the number of bytes that the user may still take. */
  spaceOf(user: string): number {
    return Math.max(0, Math.floor((this.#limit - this.#counted - this.usedBy(user)) / 2));
  }

  /** True if the user uses at least as many bytes as the user may still take. */
  isScarceFor(user: string): boolean {
    return this.usedBy(user) >= this.spaceOf(user);
  }

  /** @returns false if the user has no space for the bytes; they are then not counted */
  take(user: string, bytes: number): boolean {
    if (bytes > this.spaceOf(user)) return false;
    this.keep(user, bytes);
    return true;
  }

  /** Counts bytes even if they exceed the share of the user. The excess does not reduce the space of other users. */
  keep(user: string, bytes: number): void {
    this.#set(user, this.usedBy(user) + bytes);
  }

  /** Subtracts bytes from the used bytes of the user. All users may then have more space. */
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
    // A callback may call `whenSpace` again, so the users are listed first.
    const users = [...this.#waiting.keys()].filter((user) => this.spaceOf(user) > 0);
    for (const user of users) {
      const wakes = this.#waiting.get(user) ?? [];
      this.#waiting.delete(user);
      for (const wake of wakes) wake();
    }
  }

  #set(user: string, bytes: number): void {
    const before = this.#byUser.get(user) ?? NONE;
    const counted = Math.min(bytes, before.counted + this.spaceOf(user));
    this.#bytes += bytes - before.bytes;
    this.#counted += counted - before.counted;
    if (bytes === 0) this.#byUser.delete(user);
    else this.#byUser.set(user, { bytes, counted });
  }
}
