import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createReplayClock } from '../../src/cli/replay-clock.ts';

describe('the replay clock', () => {
  it('keeps the recorded times at speed 1 without a limit', () => {
    const due = createReplayClock({ speed: 1, idleLimitSeconds: undefined });
    expect([0, 0.5, 2, 2].map(due)).toEqual([0, 0.5, 2, 2]);
  });

  it('divides by the speed and cuts idle time before dividing', () => {
    const due = createReplayClock({ speed: 4, idleLimitSeconds: 2 });
    expect([0, 1, 101, 102].map(due)).toEqual([0, 0.25, 0.75, 1]);
  });

  it('never goes back', () => {
    fc.assert(
      fc.property(fc.array(fc.double({ min: 0, max: 1e6, noNaN: true })), (times) => {
        const due = times.map(createReplayClock({ speed: 2, idleLimitSeconds: 5 }));
        expect(due).toEqual(due.toSorted((a, b) => a - b));
      }),
    );
  });
});
