/** Delays between retries. */
export type Backoff = ReturnType<typeof createBackoff>;

/**
 * Returns delays that double from `baseMs` to `maxMs`.
 *
 * @param random returns 0 ≤ x < 1. The result shortens each delay by up to half, so that clients do not retry at the
 *   same time. Default: no shortening
 */
export function createBackoff(
  limits: { readonly baseMs: number; readonly maxMs: number },
  random: () => number = () => 0,
) {
  let failures = 0;
  return {
    /** Returns the next delay: twice the previous delay, up to the maximum. */
    next(): number {
      const full = Math.min(limits.maxMs, limits.baseMs * 2 ** Math.min(failures, 30));
      failures += 1;
      return full * (1 - random() / 2);
    },
    /** Resets the delay to the minimum after a success. */
    reset(): void {
      failures = 0;
    },
  };
}
