import { describe, expect, it } from 'vitest';
import { isSettled, WARM_LIMIT_MS, WARM_TURN_MS, warmUp, type Warmth } from '../../bench/harness/warm.ts';

/** Runs the warm-up with loads of these rates; only the loads advance the clock. The last rate is repeated. */
async function warmOn(
  rates: readonly (number | undefined)[],
  loadMs: number,
  turns?: number,
): Promise<Warmth & { readonly loads: number }> {
  let nowMs = 5;
  let loads = 0;
  const load = (): Promise<number | undefined> => {
    nowMs += loadMs;
    loads += 1;
    return Promise.resolve(rates[Math.min(loads, rates.length) - 1]);
  };
  const warmth = await warmUp(load, turns, () => nowMs);
  return { ...warmth, loads };
}

describe('what is warm', () => {
  it('is what two turns in a row bring next to nothing for, over the fastest before them', () => {
    expect(isSettled([100])).toBe(false);
    expect(isSettled([100, 100])).toBe(false);
    expect(isSettled([100, 104, 105])).toBe(true);
    expect(isSettled([100, 104, 106])).toBe(false);
    expect(isSettled([100, 106, 100])).toBe(false);
  });

  it('is looked for beyond a turn that a bad moment of the machine made slow', () => {
    expect(isSettled([100, 90, 120])).toBe(false);
    expect(isSettled([100, 90, 120, 121])).toBe(false);
    expect(isSettled([100, 90, 120, 121, 80])).toBe(true);
  });
});

describe('warming up', () => {
  it('ends when it is settled, and says how much it brought', async () => {
    expect(await warmOn([100, 140, 150, 150, 151], WARM_TURN_MS)).toEqual({
      seconds: (5 * WARM_TURN_MS) / 1000,
      gain: 1.51,
      settled: true,
      loads: 5,
    });
  });

  it('repeats what is short until a turn is over', async () => {
    const { loads, settled } = await warmOn([100], WARM_TURN_MS / 4);
    expect({ loads, settled }).toEqual({ loads: 12, settled: true });
  });

  it('ends at its limit where each turn is faster, and says that it is not settled', async () => {
    const rising = Array.from({ length: 100 }, (_, index) => 1.1 ** index);
    const { loads, settled } = await warmOn(rising, WARM_TURN_MS);
    expect({ loads, settled }).toEqual({ loads: WARM_LIMIT_MS / WARM_TURN_MS, settled: false });
  });

  it('has no more turns than it is asked for', async () => {
    expect((await warmOn([100, 200], WARM_TURN_MS, 1)).loads).toBe(1);
  });

  it('ends with a load that failed', async () => {
    expect((await warmOn([100, undefined], WARM_TURN_MS / 4)).loads).toBe(2);
  });
});
