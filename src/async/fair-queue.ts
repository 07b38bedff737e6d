/** A queue that several owners share: the owner whose items have cost least comes next. */

interface Share<T> {
  readonly items: Set<T>;
  /** Cost of the items that were taken, from the virtual time at which the owner came. */
  cost: number;
}

/** Owners without items whose costs are remembered. */
const MAX_IDLE = 10_000;

/** One owner's items are first in, first out. An item is in the queue once. */
export class FairQueue<T> implements Iterable<T> {
  /** Owner of each item. */
  readonly #owners = new Map<T, string>();
  readonly #shares = new Map<string, Share<T>>();
  /**
   * Cost of the owner that came last: owners that come later start there, so that they owe nothing and have saved
   * nothing.
   */
  #virtualTime = 0;

  get size(): number {
    return this.#owners.size;
  }

  /** Owners that have items. */
  get owners(): number {
    let count = 0;
    for (const { items } of this.#shares.values()) if (items.size > 0) count += 1;
    return count;
  }

  /** Items of one owner. */
  sizeOf(owner: string): number {
    return this.#shares.get(owner)?.items.size ?? 0;
  }

  has(item: T): boolean {
    return this.#owners.has(item);
  }

  *[Symbol.iterator](): Generator<T> {
    for (const { items } of this.#shares.values()) yield* items;
  }

  /** Adds an item. An item that is in the queue keeps its owner and its place. */
  add(item: T, owner: string): void {
    if (this.#owners.has(item)) return;
    this.#owners.set(item, owner);
    this.#shareOf(owner).items.add(item);
  }

  delete(item: T): void {
    const owner = this.#owners.get(item);
    if (owner === undefined) return;
    this.#owners.delete(item);
    this.#shares.get(owner)?.items.delete(item);
  }

  clear(): void {
    this.#shares.clear();
    this.#owners.clear();
  }

  /**
   * Removes the next item.
   *
   * @param canTake leaves out owners for which it returns false
   */
  take(canTake: (owner: string) => boolean = () => true): T | undefined {
    const owner = this.first(canTake);
    const share = owner === undefined ? undefined : this.#shares.get(owner);
    if (share === undefined) return undefined;
    const [item] = share.items;
    if (item === undefined) return undefined;
    this.#virtualTime = Math.max(this.#virtualTime, share.cost);
    this.delete(item);
    return item;
  }

  /** The owner of the next item. */
  first(canTake: (owner: string) => boolean = () => true): string | undefined {
    let first: string | undefined;
    let least = Infinity;
    for (const [owner, { items, cost }] of this.#shares) {
      if (items.size === 0 || cost >= least || !canTake(owner)) continue;
      first = owner;
      least = cost;
    }
    return first;
  }

  /** Adds the cost of an item to its owner, after the work is done. */
  charge(owner: string, cost: number): void {
    this.#shareOf(owner).cost += cost;
  }

  /** Cost of an owner, to compare owners. */
  costOf(owner: string): number {
    return Math.max(this.#virtualTime, this.#shares.get(owner)?.cost ?? 0);
  }

  #shareOf(owner: string): Share<T> {
    const known = this.#shares.get(owner);
    if (known !== undefined) {
      if (known.items.size === 0) known.cost = Math.max(known.cost, this.#virtualTime);
      return known;
    }
    if (this.#shares.size - this.owners >= MAX_IDLE)
      for (const [idle, { items }] of this.#shares) if (items.size === 0) this.#shares.delete(idle);
    const made = { items: new Set<T>(), cost: this.#virtualTime };
    this.#shares.set(owner, made);
    return made;
  }
}
