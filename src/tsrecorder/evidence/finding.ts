/** Findings of a verification. Each finding can be encoded as JSON. */

/**
 * Stable names. Codes that start with `log` concern the evidence log of a recorder. Codes that start with `cast`,
 * `notes`, `sidecar` or `recording` concern one recording.
 */
export type FindingCode =
  /** The following codes are faults unless stated otherwise: an object is missing, changed or invalid. */
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
  /** A recorder took the session over from another recorder, whose evidence log does not contain the session. */
  | 'adoption-unproven'
  | 'removal-untrusted'
  /**
   * A recorder logged the removal of a recording under a legal hold. Severity: a notice if the recording is unchanged,
   * otherwise a fault.
   */
  | 'removed-while-held'
  | 'document-missing'
  | 'document-changed'
  /**
   * No evidence log has this batch of events. Severity: a notice if a trusted key signed the batch, otherwise a fault.
   */
  | 'document-unknown'
  /** The document of a legal hold is missing or replaced. */
  | 'hold-missing'
  /** Notice: the document of a legal hold has no trusted signature. Retention keeps the recording. */
  | 'hold-unproven'
  /** A document was not read, because it is larger than any document that a recorder writes. */
  | 'document-oversized'
  /**
   * None of the stores has the part of the session that precedes this part. Severity: a notice if a single store was
   * checked, otherwise a fault.
   */
  | 'part-missing'
  /** Acknowledged bytes are lost. */
  | 'lost'
  | 'unfinished-too-long'
  /** Severity: a fault if evidence is required, otherwise a notice. */
  | 'no-evidence'
  /** All following codes are notices. */
  | 'unfinished'
  | 'end-pending'
  /** Another recorder finished and signed the session. */
  | 'adopted'
  /** None of the stores has the next part of an interrupted session. */
  | 'part-after'
  /**
   * Occurs only if the verification is limited to selected sessions: a missing or changed recording may be a part of
   * one of these sessions.
   */
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
  /** Name of the evidence log, and number of the entry. */
  readonly log?: string;
  readonly entry?: number;
  /** Name of the object in the store. */
  readonly object?: string;
}

type Where = Omit<Finding, 'severity' | 'code' | 'message'>;

/** Creates a finding that makes the verification fail. */
export function fault(code: FindingCode, message: string, where: Where): Finding {
  return { severity: 'fault', code, message, ...where };
}

/** Creates a finding that does not make the verification fail. */
export function notice(code: FindingCode, message: string, where: Where): Finding {
  return { severity: 'notice', code, message, ...where };
}
