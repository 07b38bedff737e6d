import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { callAfter } from '../../src/async/deadline.ts';

const DAY_MS = 86_400_000;

describe('a call after a time', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  it.each([1, DAY_MS, 100 * DAY_MS])('comes once, after exactly %d ms', (ms) => {
    const action = vi.fn();
    callAfter(ms, action);
    vi.advanceTimersByTime(ms - 1);
    expect(action).not.toHaveBeenCalled();
    vi.advanceTimersByTime(1);
    expect(action).toHaveBeenCalledOnce();
    vi.advanceTimersByTime(100 * DAY_MS);
    expect(action).toHaveBeenCalledOnce();
  });

  it('does not come after it was cancelled, at any time', () => {
    for (const passedMs of [0, DAY_MS, 60 * DAY_MS]) {
      const action = vi.fn();
      const cancel = callAfter(100 * DAY_MS, action);
      vi.advanceTimersByTime(passedMs);
      cancel();
      vi.advanceTimersByTime(200 * DAY_MS);
      expect(action).not.toHaveBeenCalled();
    }
  });
});
