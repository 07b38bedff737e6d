/** Current state of a recorder for its metrics. */
import type { SessionEvidence } from '../evidence/session-evidence.ts';
import type { GroupCommit } from './group-commit.ts';
import type { Ingest } from './ingest.ts';
import type { IntakeStatus } from './recorder-metrics.ts';

/** Returns the state. Called at each scrape. */
export function intakeStatusOf(ingest: Ingest, group: GroupCommit, evidence: SessionEvidence): IntakeStatus {
  const { bytes, oldestStoringMs, ...sessions } = ingest.status();
  return {
    sessions,
    spoolBytes: bytes,
    waitingBytes: group.waitingBytes,
    oldestStoringSeconds: oldestStoringMs / 1000,
    unpublishedEntries: evidence.unpublished,
  };
}
