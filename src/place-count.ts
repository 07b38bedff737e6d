/** How many places are taken, in all and by each of those who take them. How many there may be, its users say. */
export interface PlaceCount {
  readonly total: number;
  takenBy(key: string): number;
  /** Takes `places`, by default one. The returned function gives them back, once. */
  take(key: string, places?: number): () => void;
  /**
   * Returns true if `key` may take another of `capacity` places. One key may take at most as many places as are free: a
   * single key gets half of them, `n` greedy keys get `1 / (n + 1)` each, and a new key finds a free place.
   */
  hasShare(key: string, capacity: number): boolean;
}

/** Remembers nobody who has no place. */
export function createPlaceCount(): PlaceCount {
  const byKey = new Map<string, number>();
  const takenBy = (key: string): number => byKey.get(key) ?? 0;
  let total = 0;
  return {
    get total() {
      return total;
    },
    takenBy,
    hasShare: (key, capacity) => takenBy(key) < capacity - total,
    take(key, places = 1) {
      total += places;
      byKey.set(key, takenBy(key) + places);
      let left = false;
      return () => {
        if (left) return;
        left = true;
        total -= places;
        const rest = takenBy(key) - places;
        if (rest === 0) byKey.delete(key);
        else byKey.set(key, rest);
      };
    },
  };
}
