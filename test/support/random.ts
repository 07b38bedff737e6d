/** Random values from a seed: `TEST_SEED` repeats a run, and each run prints its seed. */
import { randomInt } from 'node:crypto';

export interface Random {
  /** Returns an integer from 0 to `limit - 1`. */
  below(limit: number): number;
  pick<T>(items: readonly T[]): T;
  /** Returns true in one of `times` calls, on average. */
  oneIn(times: number): boolean;
  bytes(length: number): Uint8Array;
  /** Returns between 0 and `max` items. */
  list<T>(max: number, make: () => T): T[];
}

/** Returns the seed of this run. */
export function runSeed(): number {
  const given = process.env['TEST_SEED'];
  return given === undefined ? randomInt(2 ** 31) : Number(given);
}

/** The random-number generator Mulberry32: small, fast, and good enough to choose inputs. */
export function createRandom(seed: number): Random {
  let state = seed >>> 0;
  function next(): number {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  }
  function below(limit: number): number {
    return Math.floor(next() * limit);
  }
  return {
    below,
    pick<T>(items: readonly T[]): T {
      return items[below(items.length)]!;
    },
    oneIn: (times) => below(times) === 0,
    bytes: (length) => Uint8Array.from({ length }, () => below(256)),
    list: (max, make) => Array.from({ length: below(max + 1) }, make),
  };
}
