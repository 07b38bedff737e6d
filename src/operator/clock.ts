/** Clock of the operator, which tests can control. */
import { systemTimer, type Timer } from '../async/timer.ts';
import type { Logger } from '../observe/logger.ts';

export interface Clock extends Timer {
  /** Milliseconds since 1970. */
  now(): number;
  /** Milliseconds since an unspecified time. Setting the clock of the machine does not change this value. */
  monotonic(): number;
}

/** Returns the current time in RFC 3339 with seconds, the format of Kubernetes. */
export function timeOf(clock: Pick<Clock, 'now'>): string {
  return new Date(clock.now()).toISOString().replace(/\.\d+Z$/, 'Z');
}

/** The machine's clock. */
export const systemClock: Clock = {
  ...systemTimer,
  now: Date.now,
  monotonic: () => performance.now(),
};

/** Common options of the operator's loops. */
export interface Runtime {
  readonly clock: Clock;
  readonly random: () => number;
  readonly log: Logger;
  /** Aborts when this process stops leading. */
  readonly signal: AbortSignal;
}
