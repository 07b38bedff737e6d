/** Resource usage of a peer's processes under load. */
import { resetPeak, usageOf } from './usage.ts';

export interface Meter {
  /** Called when all connections are open and in use. The measurement of CPU time starts here. */
  readonly steady: () => void;
  readonly stop: () => Metered | undefined;
}

export interface Metered {
  /** CPU time since the steady state, or since the start if the load did not reach a steady state. */
  readonly cpuSeconds: number;
  /** Share of the CPU time that the busiest process used. */
  readonly busiest: number;
  readonly peakRssBytes: number;
  /** Memory in the steady state, and its growth since the start. */
  readonly steadyRssBytes: number | undefined;
  readonly addedRssBytes: number | undefined;
}

/**
 * Starts a measurement. `stop` returns undefined if there are no processes.
 * @param sinceStart CPU time counts from the start of the processes
 */
export function startMeter(pids: readonly number[], sinceStart = false): Meter {
  resetPeak(pids);
  const cpuOfEach = (): readonly number[] => pids.map((pid) => usageOf([pid])?.cpuSeconds ?? 0);
  const idleRssBytes = usageOf(pids)?.rssBytes ?? 0;
  let cpuBefore = sinceStart ? pids.map(() => 0) : cpuOfEach();
  let steadyRssBytes: number | undefined;
  return {
    steady() {
      steadyRssBytes = usageOf(pids)?.rssBytes;
      cpuBefore = cpuOfEach();
    },
    stop() {
      const after = usageOf(pids);
      if (after === undefined) return undefined;
      const used = cpuOfEach().map((seconds, index) => seconds - (cpuBefore[index] ?? 0));
      const cpuSeconds = used.reduce((sum, seconds) => sum + seconds, 0);
      return {
        cpuSeconds,
        busiest: Math.max(...used) / cpuSeconds,
        peakRssBytes: after.peakRssBytes,
        steadyRssBytes,
        addedRssBytes: steadyRssBytes === undefined ? undefined : steadyRssBytes - idleRssBytes,
      };
    },
  };
}
