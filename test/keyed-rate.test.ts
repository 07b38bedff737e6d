import { describe, expect, it } from 'vitest';
import { createKeyedRate } from '../src/keyed-rate.ts';

describe('a rate per key', () => {
  it('permits a burst, then the rate, for each key', () => {
    let now = 1_000_000;
    const rate = createKeyedRate({ perSecond: 100, burst: 50, monotonicMs: () => now });
    expect(rate('a', 50)).toBe(0);
    expect(rate('a', 10)).toBe(100);
    expect(rate('b', 50)).toBe(0);
    now += 60;
    expect(rate('a', 0)).toBe(40);
    now += 40;
    expect(rate('a', 0)).toBe(0);
    expect(rate('a', 1)).toBe(10);
    now += 3_600_000;
    expect(rate('a', 51)).toBe(10);
  });

  it('permits a burst at the start of a clock', () => {
    const rate = createKeyedRate({ perSecond: 1, burst: 10, monotonicMs: () => 0 });
    expect(rate('a', 11)).toBe(1000);
  });
});
