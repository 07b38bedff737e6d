/**
 * A queue that removes its first item in constant time on average. `Array.shift` moves all items of a large array, so
 * removing every item of a long array would take quadratic time.
 */
export class Fifo<Item> {
  #items: (Item | undefined)[] = [];
  /** Index of the first item. The slots before this index are empty. */
  #start = 0;

  get length(): number {
    return this.#items.length - this.#start;
  }

  get first(): Item | undefined {
    return this.#items[this.#start];
  }

  get last(): Item | undefined {
    return this.length === 0 ? undefined : this.#items.at(-1);
  }

  push(item: Item): void {
    this.#items.push(item);
  }

  /** Removes and returns the first item. */
  shift(): Item | undefined {
    const first = this.#items[this.#start];
    if (this.length === 0) return undefined;
    this.#items[this.#start] = undefined;
    this.#start += 1;
    if (this.#start * 2 >= this.#items.length) {
      this.#items.splice(0, this.#start);
      this.#start = 0;
    }
    return first;
  }

  /** Replaces the first item. */
  replaceFirst(item: Item): void {
    this.#items[this.#start] = item;
  }

  clear(): void {
    this.#items = [];
    this.#start = 0;
  }
}
