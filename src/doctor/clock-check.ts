/** Does this machine's clock agree with that of a server it depends on? */
import { failed, ok, warning, type Check, type CheckVerdict } from './checks.ts';

/** When a server was asked, what time it said, and when the answer was here. Milliseconds since 1970. */
export interface SeenTime {
  readonly dateMs: number;
  readonly askedAtMs: number;
  readonly answeredAtMs: number;
}

const WARNING_MS = 5_000;
const FAILURE_MS = 60_000;
/** `Date` says whole seconds. */
const DATE_RESOLUTION_MS = 1000;
const REMEDY = 'synchronise both clocks with NTP, for the times of recordings, tokens and certificates';

/** @param whose e.g. `the API server` */
export function judgeClock(seen: SeenTime | undefined, whose: string): CheckVerdict {
  if (seen === undefined) return ok(`${whose} does not report its time`);
  const { dateMs, askedAtMs, answeredAtMs } = seen;
  // Its time lies in [date, date + 1 s), and was read at some moment between question and answer.
  const ahead = askedAtMs - (dateMs + DATE_RESOLUTION_MS);
  const behind = dateMs - answeredAtMs;
  const offMs = Math.max(ahead, behind, 0);
  const summary =
    offMs < 1000
      ? `agrees with ${whose}’s`
      : `${Math.round(offMs / 1000)} s ${ahead > behind ? 'ahead of' : 'behind'} ${whose}’s`;
  if (offMs >= FAILURE_MS) return failed(summary, REMEDY);
  return offMs >= WARNING_MS ? warning(summary, REMEDY) : ok(summary);
}

/**
 * Asks an HTTP server without credentials: what it answers does not matter, its `Date` does. Signatures of S3 requests are
 * refused when the clocks are a quarter of an hour apart, and object lock counts from ours.
 */
export function serverClockCheck(url: URL, whose: string, unixMs: () => number): Check {
  return {
    id: 'clock',
    title: 'clock',
    remedy: `check that ${url.origin} is reachable from here`,
    async run(signal) {
      const askedAtMs = unixMs();
      const response = await fetch(url, { method: 'HEAD', redirect: 'manual', signal });
      const dateMs = Date.parse(response.headers.get('date') ?? '');
      await response.body?.cancel();
      return judgeClock(
        Number.isNaN(dateMs) ? undefined : { dateMs, askedAtMs, answeredAtMs: unixMs() },
        whose,
      );
    },
  };
}
