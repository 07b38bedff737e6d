/**
 * After a restart, compares the spool with the evidence log. Missing acknowledged bytes are reported in the evidence
 * log and in the process log.
 */
import { hash } from 'node:crypto';
import type { Logger } from '../../observe/logger.ts';
import { recordingId, type RecordingKey } from '../store/key.ts';
import type { DurableMarks } from './durable-marks.ts';
import type { EvidenceLog } from './evidence-log.ts';

/** A session in the spool after a restart. */
export interface SessionLookup {
  readonly recording: string;
  /** Stored header line with its line feed. */
  readonly header: Uint8Array;
  /** Number of body bytes in the spool. */
  readonly durable: number;
}

const NOTHING_DURABLE = 'nothing of it was durable';
const SPOOL_LOST = 'its spool is gone';
const SPOOL_SHORT = 'its spool is shorter than it was';
const SPOOL_OTHER = 'its spool holds another session';
const COPY_SHORT = 'they were not in the bucket when its recorder was lost';

/** Creates the check for one evidence log. */
export function createLostSessions(
  evidence: Pick<EvidenceLog, 'append' | 'sync' | 'open'>,
  marks: Pick<DurableMarks, 'alive' | 'forget'>,
  log: Pick<Logger, 'error'>,
) {
  function lose(
    recording: string,
    found: number,
    reason: string,
    durable = evidence.open.get(recording)?.durable ?? 0,
  ): string {
    const { n = 0 } = evidence.open.get(recording) ?? {};
    evidence.append({ kind: 'lost', start: n, recording, durable, found, reason });
    const problem = `${durable - found} acknowledged bytes are lost: ${reason}`;
    log.error({ recording, problem }, 'acknowledged bytes are lost');
    return problem;
  }

  function vanished(recording: string): void {
    const begun = evidence.open.get(recording);
    marks.forget(recording);
    if (begun === undefined) return;
    if (begun.header !== undefined) lose(recording, 0, SPOOL_LOST);
    else evidence.append({ kind: 'void', start: begun.n, recording, reason: NOTHING_DURABLE });
  }

  return {
    /** Called for each session in the spool. @returns a sentence about missing bytes, or undefined */
    found({ recording, header, durable }: SessionLookup): string | undefined {
      const begun = evidence.open.get(recording);
      if (begun?.header === undefined) return undefined;
      if (begun.header !== hash('sha256', header)) return lose(recording, 0, SPOOL_OTHER);
      marks.alive(recording);
      return durable < begun.durable ? lose(recording, durable, SPOOL_SHORT) : undefined;
    },
    /** Called for a session of the evidence log that is not in the spool. */
    vanished,
    /**
     * Called if the bucket's copies of an adopted session lack durable bytes. @returns a sentence about the missing
     * bytes
     */
    short: (recording: string, durable: number, found: number): string =>
      lose(recording, found, COPY_SHORT, durable),
    /** Reports all other open sessions of the evidence log as lost. Resolves when the entries are durable. */
    async settle(keys: readonly RecordingKey[]): Promise<void> {
      const open = new Set(keys.map(recordingId));
      for (const recording of evidence.open.keys()) if (!open.has(recording)) vanished(recording);
      await evidence.sync();
    },
  };
}
