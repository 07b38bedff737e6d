/** Findings of a verification. Plain data that is valid JSON. */

/**
 * Stable names. Codes that start with `log` concern the log of a recorder. Codes that start with `cast`, `notes`,
 * `sidecar` or `recording` concern one recording.
 */
export type FindingCode =
  /** Faults: an object changed. */
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
  /** A recorder took the session over, and the log of the first recorder does not contain it. */
  | 'adoption-unproven'
  | 'removal-untrusted'
  /** A recorder removed a held recording. */
  | 'removed-while-held'
  | 'document-missing'
  | 'document-changed'
  /** No log has this batch of events. A notice if a trusted key signed it. */
  | 'document-unknown'
  /** The document of a hold is missing or replaced. */
  | 'hold-missing'
  /** Notice: a document without a trusted signature keeps a recording. */
  | 'hold-unproven'
  /** A document is larger than any document of a recorder, and was not read. */
  | 'document-oversized'
  /** None of the stores has the bytes before a part. A notice if only one store was checked. */
  | 'part-missing'
  /** Acknowledged bytes are lost. */
  | 'lost'
  | 'unfinished-too-long'
  /** Fault if evidence is required, otherwise a notice. */
  | 'no-evidence'
  /** Notices: no fault by themselves. */
  | 'unfinished'
  | 'end-pending'
  /** Another recorder finished and signed the session. */
  | 'adopted'
  /** None of the stores has a continuation of an interrupted session. */
  | 'part-after'
  /** A missing or changed recording may be a part of a selected session. */
  | 'part-unknown'
  | 'removal-pending'
  | 'no-trusted-key';

/** One result of a verification: a fault or a notice, and its location. */
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
  /** Offsets in that object: `start` is inclusive, `end` is exclusive. */
  readonly bytes?: { readonly start: number; readonly end: number };
  /** Lines of these bytes, starting with 1, both inclusive. */
  readonly lines?: { readonly first: number; readonly last: number };
}

/** Creates a finding that makes the verification fail. */
export function fault(
  code: FindingCode,
  message: string,
  where: Omit<Finding, 'severity' | 'code' | 'message'>,
): Finding {
  return { severity: 'fault', code, message, ...where };
}

/** Creates a finding that does not make the verification fail. */
export function notice(
  code: FindingCode,
  message: string,
  where: Omit<Finding, 'severity' | 'code' | 'message'>,
): Finding {
  return { severity: 'notice', code, message, ...where };
}
