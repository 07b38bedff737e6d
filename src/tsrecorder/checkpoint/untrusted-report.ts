/**
 * Reports unproven sessions in the bucket: a gauge for their number, and a line in the process log and an event for
 * each session.
 */
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { RecorderEvents } from '../events/recorder-events.ts';
import type { RecorderMetrics } from '../intake/recorder-metrics.ts';
import type { UntrustedSession } from './takeover.ts';

export interface UntrustedReportOptions {
  readonly events: Pick<RecorderEvents, 'record'>;
  readonly metrics: Pick<RecorderMetrics, 'untrusted'>;
  /** Returns the time in milliseconds since the epoch. */
  readonly nowMs: () => number;
  readonly log: Logger;
}

/**
 * Maximum number of log lines and events per day. The gauge counts all sessions. The limit exists because everyone with
 * write access to the bucket can add sessions under new names.
 */
const MAX_REPORTED = 1000;
const DAY_MS = 86_400_000;

/** Creates a function that receives all unproven sessions after each pass, and reports each session once. */
export function createUntrustedReport({
  events,
  metrics,
  nowMs,
  log,
}: UntrustedReportOptions): (sessions: readonly UntrustedSession[]) => void {
  let reported = new Set<string>();
  let left = MAX_REPORTED;
  let sinceMs = nowMs();

  function report(session: UntrustedSession): void {
    log.error({ ...session }, 'a session in the shared bucket is not proven: it has no signature');
    const timestamp = Math.floor(nowMs() / 1000);
    const event = { type: 'tailcast-untrusted-session', timestamp, ...session };
    events.record(JSON.stringify({ event })).catch((error: unknown) => {
      log.warn({ error: errorText(error) }, 'the event about a session that is not proven could not be kept');
    });
  }

  return (sessions) => {
    metrics.untrusted.set(sessions.length);
    if (nowMs() - sinceMs >= DAY_MS) {
      left = MAX_REPORTED;
      sinceMs = nowMs();
    }
    const now = new Set<string>();
    for (const session of sessions) {
      const name = JSON.stringify(session);
      const isNew = !reported.has(name);
      if (isNew && left === 0) continue;
      now.add(name);
      if (!isNew) continue;
      left -= 1;
      report(session);
      if (left === 0)
        log.error({ perDay: MAX_REPORTED }, 'further sessions that are not proven are not reported');
    }
    reported = now;
  };
}
