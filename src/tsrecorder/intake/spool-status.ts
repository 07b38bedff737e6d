/** Counts what is in a spool. Pure. */
import type { UploadSession } from './upload-session.ts';

/** What is in the spool. */
export interface SpoolStatus {
  /** Sessions that a connection uploads. */
  readonly running: number;
  /** Sessions that were cut and may be continued. */
  readonly cut: number;
  /** Sessions that are over and not in the store. */
  readonly storing: number;
  /** Durable bytes of all of them. */
  readonly bytes: number;
  /** How long the session has waited for the store that has waited longest; 0 when none waits. */
  readonly oldestStoringMs: number;
}

/** A session in the spool. */
export interface SpooledSession {
  readonly session: Pick<UploadSession, 'attached' | 'durable'>;
  /** Set once the session is over. */
  readonly over: object | undefined;
  /** When that was, in milliseconds since the epoch. */
  readonly overAtMs: number;
}

/** @param nowMs milliseconds since the epoch */
export function spoolStatus(sessions: Iterable<SpooledSession>, nowMs: number): SpoolStatus {
  let [running, cut, storing, bytes, oldestStoringMs] = [0, 0, 0, 0, 0];
  for (const { session, over, overAtMs } of sessions) {
    bytes += session.durable.castBytes + session.durable.notesBytes;
    if (over !== undefined) {
      storing += 1;
      oldestStoringMs = Math.max(oldestStoringMs, nowMs - overAtMs);
    } else if (session.attached) running += 1;
    else cut += 1;
  }
  return { running, cut, storing, bytes, oldestStoringMs };
}
