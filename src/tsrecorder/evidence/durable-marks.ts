/**
 * Writes *durable marks* to the evidence log: the number of durable bytes of each open session. With these marks,
 * `verify` detects a loss of acknowledged bytes, except for the last few MiB. Entries are written in the background,
 * and each entry covers many sessions. If a session grows by several MiB between two entries, its acknowledgements wait
 * for the next entry.
 */
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { EvidenceLog } from './evidence-log.ts';

export interface DurableMarksOptions {
  readonly log: Logger;
  /** Interval between entries for sessions with new durable bytes, in milliseconds. */
  readonly markMs: number;
  /**
   * Interval between entries for all open sessions, in milliseconds. These entries show that idle sessions are still
   * open.
   */
  readonly markAllMs: number;
}

export type DurableMarks = ReturnType<typeof createDurableMarks>;

/** Maximum number of acknowledged bytes of a session after its last durable mark. */
const MAX_UNMARKED_BYTES = 4 * 1024 ** 2;

/** Creates the writer of the durable marks for one evidence log. */
export function createDurableMarks(
  evidence: Pick<EvidenceLog, 'append' | 'sync' | 'showTail' | 'open'>,
  { log, markMs, markAllMs }: DurableMarksOptions,
) {
  /** Number of durable bytes of each session whose last durable mark is outdated. */
  const grown = new Map<string, number>();
  const alive = new Set<string>();
  let sinceAllMs = 0;

  async function mark(recordings: Iterable<string>): Promise<void> {
    const sessions = Array.from(recordings).flatMap((recording): [number, number][] => {
      const start = evidence.open.get(recording);
      const bytes = grown.get(recording) ?? start?.durable ?? 0;
      grown.delete(recording);
      return start?.header === undefined ? [] : [[start.n, bytes]];
    });
    if (sessions.length === 0) return;
    evidence.append({ kind: 'durable', sessions });
    await evidence.sync();
    evidence.showTail();
  }

  async function markInBackground(recordings: Iterable<string>): Promise<void> {
    try {
      await mark(recordings);
    } catch (error) {
      // The entry stays in memory, and the next sync retries the write.
      log.warn({ error: errorText(error) }, 'the evidence log could not be written');
    }
  }

  const timer = setInterval(() => {
    sinceAllMs += markMs;
    const all = sinceAllMs >= markAllMs;
    if (all) sinceAllMs = 0;
    void markInBackground([...(all ? alive : grown).keys()]);
  }, markMs);
  timer.unref();

  return {
    /**
     * Called when `bytes` body bytes of a logged session are durable.
     * @returns a promise that must resolve before the acknowledgement, or undefined
     */
    grew(recording: string, bytes: number): Promise<void> | undefined {
      const start = evidence.open.get(recording);
      if (start === undefined || bytes <= start.durable) return undefined;
      grown.set(recording, bytes);
      const unmarked = bytes - start.durable;
      if (unmarked > MAX_UNMARKED_BYTES) return mark([recording]);
      // Write an entry at half of the limit, so that acknowledgements rarely wait.
      if (unmarked > MAX_UNMARKED_BYTES / 2) void markInBackground([recording]);
      return undefined;
    },
    /** Called when a logged session is open and its spool is readable. */
    alive: (recording: string): void => void alive.add(recording),
    /** Called when the session has ended. */
    forget(recording: string): void {
      grown.delete(recording);
      alive.delete(recording);
    },
    /** Writes the pending durable marks, and stops. */
    async close(): Promise<void> {
      clearInterval(timer);
      await markInBackground([...grown.keys()]);
    },
  };
}
