/** Counts used slots, in total and per key. Callers define the capacity. */
export type KeyedCounter = ReturnType<typeof createKeyedCounter>;

/** Creates a counter. The counter stores only keys that use a slot. */
export function createKeyedCounter() {
  const byKey = new Map<string, number>();
  const usedBy = (key: string): number => byKey.get(key) ?? 0;
  let total = 0;
  const hasShare = (key: string, capacity: number): boolean => usedBy(key) < capacity - total;
  const take = (key: string, places = 1): (() => void) => {
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
  };
  return {
    get total(): number {
      return total;
    },
    usedBy,
    /**
     * Takes `places` slots, by default one. The returned function releases the slots; further calls of it have no
     * effect.
     */
    take,
    /**
     * Returns true if `key` may take another of `capacity` slots: if the key uses fewer slots than are free. A single
     * key therefore gets at most half of the slots. If `n` keys have high demand, their shares approach `1 / (n + 1)`
     * each as slots are released. A few keys cannot take all slots, so a new key usually finds a free slot.
     */
    hasShare,
    /** Takes one slot, like `take`. @returns undefined if `hasShare` is false */
    takeShare: (key: string, capacity: number): (() => void) | undefined =>
      hasShare(key, capacity) ? take(key) : undefined,
  };
}
