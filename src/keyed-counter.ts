/** Counts used slots, in total and per key. Callers define the capacity. */
export interface KeyedCounter {
  readonly total: number;
  usedBy(key: string): number;
  /** Takes `places` slots, by default one. The returned function releases them once. */
  take(key: string, places?: number): () => void;
  /**
   * Returns true if `key` may take another of `capacity` slots. One key may use at most as many slots as are
   * free. A single key therefore gets at most half of the slots, and `n` keys with high demand get
   * `1 / (n + 1)` each. A new key always finds a free slot.
   */
  hasShare(key: string, capacity: number): boolean;
}

/** Creates a counter. The counter stores only keys that use a slot. */
export function createKeyedCounter(): KeyedCounter {
  const byKey = new Map<string, number>();
  const usedBy = (key: string): number => byKey.get(key) ?? 0;
  let total = 0;
  return {
    get total() {
      return total;
    },
    usedBy,
    hasShare: (key, capacity) => usedBy(key) < capacity - total,
    take(key, places = 1) {
      total += places;
      byKey.set(key, usedBy(key) + places);
      let left = false;
      return () => {
        if (left) return;
        left = true;
        total -= places;
        const rest = usedBy(key) - places;
        if (rest === 0) byKey.delete(key);
        else byKey.set(key, rest);
      };
    },
  };
}
