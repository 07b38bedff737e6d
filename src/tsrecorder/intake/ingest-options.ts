/** Options of `Ingest`. */
import type { Logger } from '../../observe/logger.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import type { SessionEvidence } from '../evidence/session-evidence.ts';
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
    /** Maximum number of sessions that are open, can be continued or wait for the store. One node may have as many as are free. */
    readonly maxSessions: number;
    /** Bytes of all sessions that may wait for the disk. */
    readonly maxTotalPendingBytes: number;
  };
  /** How long a cut upload that named its session may be continued. */
  readonly resumeGraceMs: number;
  /** Maximum time from the start of a connection to the end of the header line. */
  readonly headerTimeoutMs: number;
  /** Pause before a spool that cannot be read is read again; doubles up to `maxRetryMs`. */
  readonly retryMs: number;
  readonly maxRetryMs: number;
  /** Milliseconds since the epoch. */
  readonly now: () => number;
  /** A receive time for a key, later than every one before. */
  readonly issueTime: () => string;
  readonly log: Logger;
  /** An upload is over. */
  readonly onOutcome: (recording: Recording) => void;
  /** The store has a recording that `live` still lists. */
  readonly onStored: (recording: Recording) => void;
}
