import { describe, expect, it } from 'vitest';
import { createTimeSteps } from '../../src/async/time-steps.ts';

/** A clock that advances only while a caller waits. */
function createSteps(early = 0) {
  let at = 1000;
  const steps = createTimeSteps({
    stepMs: 100,
    now: () => at,
    wait: async (delayMs) => {
      at += Math.max(0.25, delayMs - early);
    },
  });
  return { steps, at: () => at - 1000, take: (ms: number) => (at += ms) };
}

describe('time in steps', () => {
  it.each([
    [0, 100],
    [0.1, 100],
    [99.5, 100],
    [100, 100],
    [100.1, 200],
    [950, 1000],
  ])('makes %d ms %d', async (took, shown) => {
    const { steps, at, take } = createSteps();
    const answer = await steps.run(async () => {
      take(took);
      return 'answer';
    });
    expect([answer, at()]).toEqual(['answer', shown]);
  });

  it('keeps a failure as long, and does not end before a step when the timer comes early', async () => {
    const { steps, at, take } = createSteps(3);
    const failing = steps.run(async () => {
      take(30);
      throw new Error('it cannot');
    });
    await expect(failing).rejects.toThrow('it cannot');
    expect(at()).toBeGreaterThanOrEqual(100);
    expect(at()).toBeLessThan(101);
  });
});
