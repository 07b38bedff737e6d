/**
 * Keeps the log up to date on how much of each open session is durable, so that no more than a little of what was acknowledged
 * can go without being missed. Most marks are made in the background, many sessions to an entry; an acknowledgement waits for
 * one only when a session is quicker than that.
 */
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { EvidenceLog } from './evidence-log.ts';

export interface DurableMarksOptions {
  readonly log: Logger;
  /** How often the sessions that grew are marked. */
  readonly markMs: number;
  /** How often all open sessions are, so that one that is open can be told from one that was forgotten. */
  readonly markAllMs: number;
}

export interface DurableMarks {
  /**
   * So many bytes of the body of a session that the log has are durable.
   *
   * @returns what their acknowledgement has to wait for; undefined: for nothing.
   */
  grew(recording: string, bytes: number): Promise<void> | undefined;
  /** A session that the log has is open, and can be read. */
  alive(recording: string): void;
  /** It is over. */
  forget(recording: string): void;
  /** Marks what has grown, and stops. */
  close(): Promise<void>;
}

/** Acknowledged bytes of a session beyond its last mark, at most. */
const MAX_UNMARKED_BYTES = 4 * 1024 ** 2;

/** One per log. */
export function createDurableMarks(
  evidence: Pick<EvidenceLog, 'append' | 'sync' | 'showTail' | 'open'>,
  { log, markMs, markAllMs }: DurableMarksOptions,
): DurableMarks {
  /** Durable bytes that the log does not have yet. */
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
      // the entry is there, and the next sync takes it along
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
      // well before the limit, so that nobody has to wait
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
