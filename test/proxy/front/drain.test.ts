import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { drainConnections } from '../../../src/proxy/front/drain.ts';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

const LIMIT_MS = 30_000;

/** Drains a gateway whose in-flight requests are counted by `load.inFlight`. */
function drain(load: { inFlight: number }): ReturnType<typeof drainConnections> {
  return drainConnections({
    plain: new Set(),
    sessions: new Set(),
    load,
    interactive: undefined,
    limitMs: LIMIT_MS,
  });
}

describe('a drain', () => {
  it('ends with the last request, and leaves no timer that keeps the process alive', async () => {
    const load = { inFlight: 1 };
    const ended = drain(load);
    let isOver = false;
    void ended.then(() => (isOver = true));
    await vi.advanceTimersByTimeAsync(1_000);
    expect(isOver).toBe(false);
    load.inFlight = 0;
    await vi.advanceTimersByTimeAsync(1_000);
    expect(await ended).toEqual({ cutRequests: 0, cutSessions: 0 });
    expect(vi.getTimerCount()).toBe(0);
  });

  it('ends at its time limit, and reports the interrupted requests', async () => {
    const ended = drain({ inFlight: 2 });
    await vi.advanceTimersByTimeAsync(LIMIT_MS);
    expect(await ended).toEqual({ cutRequests: 2, cutSessions: 0 });
    expect(vi.getTimerCount()).toBe(0);
  });
});
