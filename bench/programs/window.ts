/** The period that is measured. Earlier work, such as handshakes, is excluded. */
export interface Window {
  readonly isOver: () => boolean;
  /** Ends the measurement; call it after the last response. */
  readonly close: () => { readonly seconds: number; readonly loadCpuSeconds: number };
}

/**
 * Opens a measurement, which starts after `rampMs`. The caller sends requests until `isOver` returns true, and calls
 * `close` after the last response.
 *
 * @param onBegin called when the measurement starts, to reset counters and report the steady state; not called if
 * `rampMs` is 0
 */
export function openWindow(
  { rampMs = 0, durationMs }: { readonly rampMs?: number; readonly durationMs: number },
  onBegin: () => void,
): Window {
  let cpu = process.cpuUsage();
  let beganAt = performance.now();
  let until = rampMs === 0 ? beganAt + durationMs : Infinity;
  const ramp =
    rampMs === 0
      ? undefined
      : setTimeout(() => {
          onBegin();
          cpu = process.cpuUsage();
          beganAt = performance.now();
          until = beganAt + durationMs;
        }, rampMs);
  return {
    isOver: () => performance.now() >= until,
    close() {
      clearTimeout(ramp);
      const used = process.cpuUsage(cpu);
      return {
        seconds: (performance.now() - beganAt) / 1000,
        loadCpuSeconds: (used.user + used.system) / 1e6,
      };
    },
  };
}
