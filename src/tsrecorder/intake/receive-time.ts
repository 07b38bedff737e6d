/**
 * Receive times for keys. Each time is later than the previous time, so that two uploads of one tailnet node never have
 * the same key.
 */
import { formatTime } from '../store/key.ts';

/**
 * Creates a function that returns receive times.
 *
 * @param now returns milliseconds since the epoch, with fractions if the clock has them
 * @returns RFC 3339 in UTC with nine fraction digits. Each time is later than all previous times, even after the clock
 *   was set back
 */
export function createReceiveTimes(now: () => number): () => string {
  let last = 0n;
  return () => {
    const milliseconds = now();
    const whole = Math.floor(milliseconds);
    const time = BigInt(whole) * 1_000_000n + BigInt(Math.floor((milliseconds - whole) * 1e6));
    last = time > last ? time : last + 1n;
    return formatTime(last);
  };
}
