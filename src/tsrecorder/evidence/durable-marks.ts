/**
 * Logs how many bytes of each open session are durable, so that a loss of acknowledged bytes is detectable, except for
 * a small amount. Background entries cover many sessions at once. An acknowledgement waits for an entry only if its
 * session grows faster.
 */
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { EvidenceLog } from './evidence-log.ts';

export interface DurableMarksOptions {
  readonly log: Logger;
  /** Interval of the entries for sessions that grew, in milliseconds. */
  readonly markMs: number;
  /**
   * Interval of the entries for all open sessions, in milliseconds. These entries distinguish open sessions from
   * forgotten ones.
   */
  readonly markAllMs: number;
}

export interface DurableMarks {
  /**
   * Called when `bytes` body bytes of a logged session are durable.
   * @returns a promise that the acknowledgement must await, or undefined
   */
  grew(recording: string, bytes: number): Promise<void> | undefined;
  /** Called when a logged session is open and readable. */
  alive(recording: string): void;
  /** Called when the session has ended. */
  forget(recording: string): void;
  /** Logs the pending marks, and stops. */
  close(): Promise<void>;
}

/** Maximum number of acknowledged bytes of a session after its last mark. */
const MAX_UNMARKED_BYTES = 4 * 1024 ** 2;

/** Creates the marks of one log. */
export function createDurableMarks(
  evidence: Pick<EvidenceLog, 'append' | 'sync' | 'showTail' | 'open'>,
  { log, markMs, markAllMs }: DurableMarksOptions,
): DurableMarks {
  /** Durable bytes that the log lacks. */
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
      // The entry is in memory, and the next sync writes it.
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
    grew(recording, bytes) {
      const start = evidence.open.get(recording);
      if (start === undefined || bytes <= start.durable) return undefined;
      grown.set(recording, bytes);
      const unmarked = bytes - start.durable;
      if (unmarked > MAX_UNMARKED_BYTES) return mark([recording]);
      // Well before the limit, so that no acknowledgement has to wait.
      if (unmarked > MAX_UNMARKED_BYTES / 2) void markInBackground([recording]);
      return undefined;
    },
    alive: (recording) => void alive.add(recording),
    forget(recording) {
      grown.delete(recording);
      alive.delete(recording);
    },
    async close() {
      clearInterval(timer);
      await markInBackground([...grown.keys()]);
    },
  };
}
