/** What verification says. Plain data, JSON as it stands. */

/**
 * Stable names. Everything that begins with `log` is about a recorder's log, `cast`, `notes`, `sidecar` and `recording`
 * are about one recording.
 */
export type FindingCode =
  /** Faults: something is not as it was. */
  | 'log-entries-missing'
  | 'log-entry-changed'
  | 'log-entry-unreadable'
  | 'log-segment-unexpected'
  | 'log-signature-wrong'
  | 'log-key-unknown'
  | 'log-key-changed'
  | 'log-rolled-back'
  | 'key-missing'
  | 'key-changed'
  | 'cast-changed'
  | 'notes-changed'
  | 'notes-missing'
  | 'notes-unexpected'
  | 'sidecar-missing'
  | 'sidecar-changed'
  | 'recording-missing'
  | 'recording-moved'
  | 'recording-unreadable'
  | 'archive-damaged'
  | 'recording-not-in-log'
  | 'recording-differs-from-log'
  /** Another recorder took the session over, and the log of the first one does not have it. */
  | 'adoption-unproven'
  | 'removal-untrusted'
  | 'document-missing'
  | 'document-changed'
  /** What came before a part of a session is in none of the stores. A notice when only one store was looked at. */
  | 'part-missing'
  /** Acknowledged bytes are gone. */
  | 'lost'
  | 'unfinished-too-long'
  /** Faults where evidence is required, notices elsewhere. */
  | 'no-evidence'
  /** Notices: worth knowing, and nothing to worry about by themselves. */
  | 'unfinished'
  | 'end-pending'
  /** Another recorder than the one that began the session finished and signed it. */
  | 'adopted'
  /** A session was cut, and what may have followed at another recorder is in none of the stores. */
  | 'part-after'
  | 'removal-pending'
  | 'no-trusted-key';

export interface Finding {
  readonly severity: 'fault' | 'notice';
  readonly code: FindingCode;
  /** One sentence. */
  readonly message: string;
  /** Id of the recording. */
  readonly recording?: string;
  /** Name of the log, and number of the entry. */
  readonly log?: string;
  readonly entry?: number;
  /** Name in the store. */
  readonly object?: string;
  /** Offsets in that object: `start` inclusive, `end` exclusive. */
  readonly bytes?: { readonly start: number; readonly end: number };
  /** The lines of these bytes, from 1, both inclusive. */
  readonly lines?: { readonly first: number; readonly last: number };
}

export function fault(
  code: FindingCode,
  message: string,
  where: Omit<Finding, 'severity' | 'code' | 'message'>,
): Finding {
  return { severity: 'fault', code, message, ...where };
}

export function notice(
  code: FindingCode,
  message: string,
  where: Omit<Finding, 'severity' | 'code' | 'message'>,
): Finding {
  return { severity: 'notice', code, message, ...where };
}
