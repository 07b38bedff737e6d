/** Time in steps: so that who waits for an answer learns how many steps it took, and nothing finer. */
import { pause } from './pause.ts';

export interface TimeSteps {
  /** What `act` gives or throws, at the first whole step since it was called. */
  run<T>(act: () => Promise<T>): Promise<T>;
}

export interface TimeStepsOptions {
  readonly stepMs: number;
  /** Milliseconds of a monotonic clock. */
  readonly now?: () => number;
  readonly wait?: (delayMs: number) => Promise<void>;
}

/** Has no state: one may be for all. */
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
        // a timer may come a little early
        for (let left = end - now(); left > 0; left = end - now()) await wait(left);
      }
    },
  };
}
