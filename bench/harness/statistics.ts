/** Medians, spreads, and comparisons of two series of rounds. */
export interface Spread {
  readonly median: number;
  readonly lowest: number;
  readonly highest: number;
}

/** Returns the spread of the values, or undefined without values. */
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

/** Ratio of the results of two proxies in the same rounds. */
export interface Comparison {
  /** Geometric mean over rounds. */
  readonly ratio: number;
  /** Bounds of the 95 % confidence interval. */
  readonly low: number;
  readonly high: number;
  /** Number of rounds in which both peers were measured. */
  readonly rounds: number;
  /** `unclear` if 1 is between `low` and `high`. */
  readonly verdict: 'above' | 'below' | 'unclear';
}

/** Values by round; null or undefined if the round was not measured. */
export type Rounds = readonly (number | null | undefined)[];

/** Two-sided 95 % quantiles of Student's t for 1, 2, … degrees of freedom. */
const T95 = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228] as const;

/**
 * Compares two peers by the ratio of each round, so that disturbances of the machine affect both equally. The interval
 * is Student's t over logarithms of ratios, because a bootstrap would be too narrow for few rounds. For more rounds
 * than the table covers, the last entry of the table is used, so the interval is slightly too wide.
 * @returns undefined with fewer than two common rounds
 */
export function compareRounds(ours: Rounds, theirs: Rounds): Comparison | undefined {
  const logs = ours.flatMap((value, round) => {
    const ratio = Number(value ?? Number.NaN) / Number(theirs[round] ?? Number.NaN);
    return ratio > 0 && Number.isFinite(ratio) ? [Math.log(ratio)] : [];
  });
  const rounds = logs.length;
  const quantile = T95[Math.min(rounds - 1, T95.length) - 1];
  if (quantile === undefined) return undefined;
  const mean = logs.reduce((sum, log) => sum + log, 0) / rounds;
  const variance = logs.reduce((sum, log) => sum + (log - mean) ** 2, 0) / (rounds - 1);
  const reach = quantile * Math.sqrt(variance / rounds);
  const [ratio, low, high] = [Math.exp(mean), Math.exp(mean - reach), Math.exp(mean + reach)];
  return { ratio, low, high, rounds, verdict: low > 1 ? 'above' : high < 1 ? 'below' : 'unclear' };
}
