/** Options of `Ingest`. */
import type { Logger } from '../../observe/logger.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import type { SessionEvidence } from '../evidence/session-evidence.ts';
import type { StoredRecording } from '../store/store.ts';
import type { Finisher } from './finisher.ts';
import type { GroupCommit } from './group-commit.ts';
import type { SessionLimits, UploadMeter } from './upload-session.ts';

export interface IngestOptions {
  readonly spoolDirectory: string;
  readonly group: GroupCommit;
  readonly finisher: Finisher;
  readonly evidence: Pick<SessionEvidence, 'started' | 'grew' | 'found' | 'adopted' | 'vanished' | 'settle'>;
  readonly meter: UploadMeter;
  readonly limits: SessionLimits & {
    /**
     * Maximum number of sessions in the spool: open sessions, interrupted sessions that can be continued, and finished
     * sessions. One tailnet node may use at most half of the slots that other nodes leave free.
     */
    readonly maxSessions: number;
    /** Maximum number of uncommitted bytes of all sessions together. */
    readonly maxTotalPendingBytes: number;
    /** Maximum number of bytes in memory for the long lines of all sessions together. */
    readonly maxLongLineBytes: number;
  };
  /** Time for which an interrupted upload may be continued, in milliseconds. */
  readonly resumeGraceMs: number;
  /** Maximum time from the start of a connection to the end of the header line, in milliseconds. */
  readonly headerTimeoutMs: number;
  /**
   * Pause before an unreadable spool is read again, in milliseconds. The pause doubles with each failure, up to
   * `maxRetryMs`.
   */
  readonly retryMs: number;
  readonly maxRetryMs: number;
  /** Returns the time in milliseconds since the epoch. */
  readonly now: () => number;
  /** Returns the receive time for a new key. Each call returns a later time than all earlier calls. */
  readonly issueTime: () => string;
  readonly log: Logger;
  /** Called when an upload ends. */
  readonly onOutcome: (recording: Recording) => void;
  /** Called when a recording was stored, before it is removed from the result of `live`. */
  readonly onStored: (recording: Recording, stored: StoredRecording) => void;
}
