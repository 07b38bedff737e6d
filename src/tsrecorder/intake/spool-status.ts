/** Counts the sessions in a spool. Pure functions. */
import type { UploadSession } from './upload-session.ts';

/** Summary of the spool. */
export interface SpoolStatus {
  /** Number of sessions with a connection. */
  readonly running: number;
  /** Number of interrupted sessions that may be continued. */
  readonly cut: number;
  /** Number of finished sessions that are not in the store. */
  readonly storing: number;
  /** Number of unreadable spools. */
  readonly unreadable: number;
  /** Durable bytes of all sessions. */
  readonly bytes: number;
  /** Longest time that a finished session has waited for the store, in milliseconds; 0 if no session waits. */
  readonly oldestStoringMs: number;
}

/** A session in the spool. */
export interface SpooledSession {
  readonly session: Pick<UploadSession, 'attached' | 'durable'>;
  /** Recording of a finished session; undefined for an open session. */
  readonly over: object | undefined;
  /** End of the session, in milliseconds since the epoch. */
  readonly overAtMs: number;
}

/** Returns the summary. @param unreadable number of unreadable spools @param nowMs milliseconds since the epoch */
export function spoolStatus(
  sessions: Iterable<SpooledSession>,
  unreadable: number,
  nowMs: number,
): SpoolStatus {
  let [running, cut, storing, bytes, oldestStoringMs] = [0, 0, 0, 0, 0];
  for (const { session, over, overAtMs } of sessions) {
    bytes += session.durable.castBytes + session.durable.notesBytes;
    if (over !== undefined) {
      storing += 1;
      oldestStoringMs = Math.max(oldestStoringMs, nowMs - overAtMs);
    } else if (session.attached) running += 1;
    else cut += 1;
  }
  return { running, cut, storing, unreadable, bytes, oldestStoringMs };
}
