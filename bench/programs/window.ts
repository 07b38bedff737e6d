/** The span of time that counts. What went before it (handshakes, connections to the upstream) is not what is measured. */
export interface Window {
  readonly isOver: () => boolean;
  /** To be called when the last answer is there. */
  readonly close: () => { readonly seconds: number; readonly loadCpuSeconds: number };
}

/**
 * Begins after `rampMs`, and ends when the last answer is there that was asked for before it was over.
 *
 * @param onBegin forgets what was counted so far, and says that all is steady; not called without a ramp
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
