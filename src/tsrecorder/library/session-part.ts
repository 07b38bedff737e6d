/**
 * Sessions that were brought in several uploads.
 *
 * A gateway that loses its recorder goes on at another one, from the last byte that was acknowledged. The other recorder
 * has nothing of what came before, so it begins a recording of its own: a part, which repeats the header line and knows
 * at which byte of the session it begins. Parts may overlap (a byte was durable, its acknowledgement was lost) but never
 * disagree: all of them are copies of one stream. Whoever sees all parts shows one recording: see `join-parts.ts`.
 */
import { createHash } from 'node:crypto';

export interface SessionPart {
  /** What the uploader calls the session, or the id of the recording. */
  readonly session: string;
  /** Counts the uploads of the session, from 1. */
  readonly number: number;
  /** Body bytes of the session before this part. */
  readonly offset: number;
  /** Length of the header line in the stored cast. */
  readonly headerBytes: number;
  /** Byte of the session that follows the header line: its uploaded length, or the offset. */
  readonly headerEnd: number;
  /** Address of the recorder that had the session before, as the uploader has it. */
  readonly before?: string;
  /** Of a part that was cut: where the uploader would have gone on, in order. */
  readonly after?: readonly string[];
}

/** Equal for the parts of one session, and only for these: two nodes that name the same session have two. */
export function sessionMark(nodeId: string, session: string): string {
  return createHash('sha256')
    .update(JSON.stringify([nodeId, session]))
    .digest('hex')
    .slice(0, 32);
}
