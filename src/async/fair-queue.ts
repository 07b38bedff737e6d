/** A queue that several owners share. The next item belongs to the owner with the lowest total cost. */

interface Share<T> {
  readonly items: Set<T>;
  /** Start value that the owner got when it joined, plus the total cost of its items. */
  cost: number;
}

/** The queue remembers the cost of at most this number of owners without items. */
const MAX_IDLE = 10_000;

/** The queue keeps the order of the items of one owner. An item can be in the queue only once. */
export class FairQueue<T> implements Iterable<T> {
  /** Owner of each item. */
  readonly #owners = new Map<T, string>();
  readonly #shares = new Map<string, Share<T>>();
  /**
   * Start value for new owners: the cost of the owner whose item was taken last. A new owner therefore has
   * neither an advantage nor a disadvantage.
   */
  #virtualTime = 0;

  get size(): number {
    return this.#owners.size;
  }

  /** Number of owners that have items. */
  get owners(): number {
    let count = 0;
    for (const { items } of this.#shares.values()) if (items.size > 0) count += 1;
    return count;
  }

  /** Number of items of one owner. */
  sizeOf(owner: string): number {
    return this.#shares.get(owner)?.items.size ?? 0;
  }

  has(item: T): boolean {
    return this.#owners.has(item);
  }

  *[Symbol.iterator](): Generator<T> {
    for (const { items } of this.#shares.values()) yield* items;
  }

  /** Adds an item. An item that is already in the queue keeps its owner and its position. */
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
   * @param canTake returns false for owners to skip
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

  /** Returns the owner of the next item. */
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

  /** Adds the cost of work on an item to the total cost of its owner. */
  charge(owner: string, cost: number): void {
    this.#shareOf(owner).cost += cost;
  }

  /** Returns the total cost of an owner, for a comparison with other owners. */
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
