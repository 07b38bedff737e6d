/** Checks that the local clock agrees with the clock of a server. */
import { failed, ok, warning, type Check, type CheckVerdict } from './checks.ts';

/**
 * Times of a request and its response on the local clock, and the header `Date` of the response. All are in
 * milliseconds since 1970.
 */
export interface SeenTime {
  readonly dateMs: number;
  readonly askedAtMs: number;
  readonly answeredAtMs: number;
}

const WARNING_MS = 5_000;
const FAILURE_MS = 60_000;
/** Resolution of the header `Date`, in milliseconds. */
const DATE_RESOLUTION_MS = 1000;
const REMEDY = 'synchronise both clocks with NTP, for the times of recordings, tokens and certificates';

/** @param owner e.g. `the API server` */
export function clockVerdict(seen: SeenTime | undefined, owner: string): CheckVerdict {
  if (seen === undefined) return ok(`${owner} does not report its time`);
  const { dateMs, askedAtMs, answeredAtMs } = seen;
  // The server has read its clock between request and response. `Date` has no fraction, so the server's clock then
  // showed a time in the interval [date, date + 1 s).
  const ahead = askedAtMs - (dateMs + DATE_RESOLUTION_MS);
  const behindMs = dateMs - answeredAtMs;
  const offMs = Math.max(ahead, behindMs, 0);
  const summary =
    offMs < 1000
      ? `agrees with ${owner}’s`
      : `${Math.round(offMs / 1000)} s ${ahead > behindMs ? 'ahead of' : 'behind'} ${owner}’s`;
  if (offMs >= FAILURE_MS) return failed(summary, REMEDY);
  return offMs >= WARNING_MS ? warning(summary, REMEDY) : ok(summary);
}

/**
 * Returns a check that compares the local clock with the header `Date` of an HTTP server. The request contains no
 * credentials, and any status is accepted. A wrong clock is a problem: S3 rejects signatures whose time is wrong by 15
 * minutes, and the recorder computes the end of an object lock with the local clock.
 */
export function serverClockCheck(url: URL, owner: string, unixMs: () => number): Check {
  return {
    id: 'clock',
    title: 'clock',
    remedy: `check that ${url.origin} is reachable from here`,
    async run(signal) {
      const askedAtMs = unixMs();
      const response = await fetch(url, { method: 'HEAD', redirect: 'manual', signal });
      const dateMs = Date.parse(response.headers.get('date') ?? '');
      await response.body?.cancel();
      return clockVerdict(
        Number.isNaN(dateMs) ? undefined : { dateMs, askedAtMs, answeredAtMs: unixMs() },
        owner,
      );
    },
  };
}
