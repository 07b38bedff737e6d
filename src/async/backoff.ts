/** How long to wait before the next try. */
export interface Backoff {
  /** The next delay; each is twice the one before, up to the longest. */
  next(): number;
  /** It worked: the next delay is the shortest again. */
  reset(): void;
}

/**
 * Delays that double from `baseMs` to `maxMs`.
 *
 * @param random 0 ≤ x < 1: shortens each by up to half, so that many do not come at once. Default: none is shortened
 */
export function createBackoff(
  limits: { readonly baseMs: number; readonly maxMs: number },
  random: () => number = () => 0,
): Backoff {
  let failures = 0;
  return {
    next() {
      const full = Math.min(limits.maxMs, limits.baseMs * 2 ** Math.min(failures, 30));
      failures += 1;
      return full * (1 - random() / 2);
    },
    reset() {
      failures = 0;
    },
  };
}
