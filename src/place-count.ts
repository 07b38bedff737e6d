/** How many places are taken, in all and by each of those who take them. How many there may be, its users say. */
export interface PlaceCount {
  readonly total: number;
  takenBy(key: string): number;
  /** The returned function gives the place back, once. */
  take(key: string): () => void;
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
    take(key) {
      total += 1;
      byKey.set(key, takenBy(key) + 1);
      let left = false;
      return () => {
        if (left) return;
        left = true;
        total -= 1;
        const rest = takenBy(key) - 1;
        if (rest === 0) byKey.delete(key);
        else byKey.set(key, rest);
      };
    },
  };
}
