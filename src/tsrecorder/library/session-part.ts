/**
 * Sessions with several uploads.
 *
 * A gateway that loses its recorder continues at another recorder, from the last acknowledged byte. The other
 * recorder lacks the earlier bytes, so it starts a separate recording, a *part*. The part repeats the header line and
 * stores its offset in the session. Parts may overlap, because an acknowledgement of durable bytes may get lost.
 * Overlapping bytes are equal, because all parts are copies of one stream. A reader with access to all parts shows
 * one recording: see `join-parts.ts`.
 */
import { createHash } from 'node:crypto';

/** Position of an upload in its session. */
export interface SessionPart {
  /** Name of the session, chosen by the uploader. Default: the id of the recording. */
  readonly session: string;
  /** Number of the upload in its session, starting with 1. */
  readonly number: number;
  /** Number of body bytes of the session before this part. */
  readonly offset: number;
  /** Length of the header line in the stored cast. */
  readonly headerBytes: number;
  /**
   * Position in the session of the first byte after the header line. In the first part, this is the uploaded length of
   * the header line; in later parts, it is `offset`.
   */
  readonly headerEnd: number;
  /** Address of the previous recorder of the session, as reported by the uploader. */
  readonly before?: string;
  /** Addresses of the recorders to which the uploader would send the rest of an interrupted part, in order. */
  readonly after?: readonly string[];
}

/**
 * Returns the mark of a session. All parts of one session have the same mark. Sessions of different nodes have
 * different marks, even if they have the same name.
 */
export function sessionMark(nodeId: string, session: string): string {
  return createHash('sha256')
    .update(JSON.stringify([nodeId, session]))
    .digest('hex')
    .slice(0, 32);
}
