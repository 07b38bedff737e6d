/** Receive times for keys: strictly rising, so that two uploads of one node never want the same key. */
import { formatTime } from '../store/key.ts';

/**
 * @param now milliseconds since the epoch, with a fraction if the clock has one.
 * @returns RFC 3339 in UTC with nine fraction digits, each later than all before even if the clock is set back.
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
