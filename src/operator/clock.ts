/** Clock of the operator, which tests can control. */
import { systemTimer, type Timer } from '../async/timer.ts';

export interface Clock extends Timer {
  /** Milliseconds since 1970. */
  now(): number;
}

/** The machine's clock. */
export const systemClock: Clock = { ...systemTimer, now: Date.now };
