/** Medians and spreads. */
export interface Spread {
  readonly median: number;
  readonly lowest: number;
  readonly highest: number;
}

/** Undefined when there is nothing to sum up. */
export function spreadOf(values: readonly (number | undefined)[]): Spread | undefined {
  const sorted = values
    .filter((value) => value !== undefined && Number.isFinite(value))
    .toSorted((left, right) => Number(left) - Number(right));
  const lowest = sorted[0];
  const highest = sorted.at(-1);
  if (lowest === undefined || highest === undefined) return undefined;
  const middle = sorted[Math.floor(sorted.length / 2)] ?? lowest;
  const below = sorted[Math.floor((sorted.length - 1) / 2)] ?? lowest;
  return { median: (middle + below) / 2, lowest, highest };
}
