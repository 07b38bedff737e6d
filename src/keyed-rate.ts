/** Limits a rate per key. */
import { BoundedMap } from './bounded-map.ts';

export interface KeyedRateOptions {
  readonly perSecond: number;
  /** Amount that each key may use at once. */
  readonly burst: number;
  readonly monotonicMs: () => number;
}

/**
 * Adds an amount to the use of a key. An amount of 0 changes nothing.
 *
 * @returns the time until the key is within its rate, in milliseconds; 0 if it already is
 */
export type KeyedRate = (key: string, amount: number) => number;

/** Maximum number of keys whose use is stored. */
const MAX_KEYS = 10_000;

export function createKeyedRate({ perSecond, burst, monotonicMs }: KeyedRateOptions): KeyedRate {
  const perMs = perSecond / 1000;
  /** For each key, the time from which its use no longer exceeds its rate. */
  const dueMs = new BoundedMap<number>(MAX_KEYS);
  return (key, amount) => {
    const nowMs = monotonicMs();
    const due = Math.max(dueMs.get(key) ?? Number.NEGATIVE_INFINITY, nowMs - burst / perMs) + amount / perMs;
    if (amount > 0) dueMs.set(key, due);
    return Math.max(0, due - nowMs);
  };
}
