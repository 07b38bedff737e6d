/** A clock that advances only when a test advances it. */
import type { Clock } from '../../src/operator/clock.ts';

export interface FakeClock extends Clock {
  /** Advances the time and runs due timers in order. Promises settle between two timers. */
  advance(ms: number): Promise<void>;
  /** Sets the time of day, like `date --set`. */
  set(nowMs: number): void;
  /** Time until the next timer; undefined without timers. */
  readonly nextInMs: number | undefined;
}

export function createFakeClock(startMs = Date.UTC(2026, 10, 21, 9)): FakeClock {
  let nowMs = 0;
  let offsetMs = startMs;
  let sequence = 0;
  const timers = new Map<number, { readonly atMs: number; readonly action: () => void }>();

  function earliest(): [number, { atMs: number; action: () => void }] | undefined {
    return [...timers].toSorted(([a, left], [b, right]) => left.atMs - right.atMs || a - b)[0];
  }

  return {
    now: () => nowMs + offsetMs,
    monotonic: () => nowMs,
    set(wallMs) {
      offsetMs = wallMs - nowMs;
    },
    schedule(delayMs, action) {
      const id = (sequence += 1);
      timers.set(id, { atMs: nowMs + delayMs, action });
      return () => void timers.delete(id);
    },
    async advance(ms) {
      const end = nowMs + ms;
      await settle();
      for (let due = earliest(); due !== undefined && due[1].atMs <= end; due = earliest()) {
        timers.delete(due[0]);
        nowMs = due[1].atMs;
        due[1].action();
        await settle();
      }
      nowMs = end;
    },
    get nextInMs() {
      const due = earliest();
      return due === undefined ? undefined : due[1].atMs - nowMs;
    },
  };
}

/** Waits until all pending promises have settled. */
export async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn += 1) await new Promise((done) => setImmediate(done));
}
