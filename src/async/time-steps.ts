/** Delays results to time steps, so that a client learns the number of steps and no exact duration. */
import { pause } from './pause.ts';

export interface TimeSteps {
  /** Returns or throws the result of `act` at the next multiple of the step after the call. */
  run<T>(act: () => Promise<T>): Promise<T>;
}

export interface TimeStepsOptions {
  readonly stepMs: number;
  /** Milliseconds of a monotonic clock. */
  readonly now?: () => number;
  readonly wait?: (delayMs: number) => Promise<void>;
}

/** Has no state, so one instance can serve all callers. */
export function createTimeSteps({
  stepMs,
  now = () => performance.now(),
  wait = async (delayMs) => void (await pause(delayMs, new AbortController().signal)),
}: TimeStepsOptions): TimeSteps {
  return {
    async run(act) {
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
