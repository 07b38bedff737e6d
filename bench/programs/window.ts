/** The measured time span. It excludes earlier work such as handshakes. */
export interface Window {
  readonly isOver: () => boolean;
  /** Call this after the last response. */
  readonly close: () => { readonly seconds: number; readonly loadCpuSeconds: number };
}

/**
 * The span starts after `rampMs`, and ends when all requests of the span have got their responses.
 *
 * @param onBegin resets the counters, and reports the steady state; not called without a ramp
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
