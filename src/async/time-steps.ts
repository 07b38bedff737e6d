/**
 * Delays results until the next multiple of a time step. A client can then measure only the number of steps and not the
 * exact duration.
 */
import { pause } from './pause.ts';

export type TimeSteps = ReturnType<typeof createTimeSteps>;

export interface TimeStepsOptions {
  readonly stepMs: number;
  /** Monotonic clock, in milliseconds. */
  readonly now?: () => number;
  readonly wait?: (delayMs: number) => Promise<void>;
}

/** Creates time steps. The returned object has no state, so one instance can serve all callers. */
export function createTimeSteps({
  stepMs,
  now = () => performance.now(),
  wait = async (delayMs) => void (await pause(delayMs, new AbortController().signal)),
}: TimeStepsOptions) {
  return {
    /**
     * Calls `act`, and waits until the elapsed time is a multiple of the step. Then returns the result of `act` or
     * throws its error.
     */
    async run<T>(act: () => Promise<T>): Promise<T> {
      const began = now();
      try {
        return await act();
      } finally {
        const end = began + Math.max(1, Math.ceil((now() - began) / stepMs)) * stepMs;
        // a timer may fire slightly early
        for (let left = end - now(); left > 0; left = end - now()) await wait(left);
      }
    },
  };
}
