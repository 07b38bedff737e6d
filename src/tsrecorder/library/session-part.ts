/**
 * Sessions with several uploads.
 *
 * A gateway that loses its recorder continues at another recorder, from the last acknowledged byte. The other recorder
 * lacks the earlier bytes, so it starts a separate recording, a *part*. The part repeats the header line, and stores
 * the offset of the part in the session. Parts may overlap, because an acknowledgement of durable bytes may get lost.
 * Overlapping bytes are equal, because all parts are copies of one stream. A reader with access to all parts shows one
 * recording: see `join-parts.ts`.
 */
import { hash } from 'node:crypto';
import { z } from 'zod';

/** Schema of the position of an upload in its session. */
export const PART_SCHEMA = z.object({
  /** Name of the session, chosen by the uploader. Default: the id of the recording. */
  session: z.string(),
  /** Number of the upload in its session, starting with 1. */
  number: z.int().min(1),
  /** Number of body bytes of the session before this part. */
  offset: z.int().min(0),
  /** Length of the header line in the stored cast. */
  headerBytes: z.number(),
  /**
   * Position in the session of the first byte after the header line. In the first part, this is the uploaded length of
   * the header line; in later parts, it is `offset`.
   */
  headerEnd: z.number(),
  /** Address of the previous recorder of the session, as reported by the uploader. */
  before: z.string().exactOptional(),
  /** Addresses of the recorders to which the uploader would send the rest of an interrupted part, in order. */
  after: z.array(z.string()).readonly().exactOptional(),
});
/** Position of an upload in its session. */
export type SessionPart = z.infer<typeof PART_SCHEMA>;

/**
 * Returns the session mark, which all parts of one session share. Sessions of different uploading nodes have different
 * marks, even if the sessions have the same name.
 */
export function sessionMark(nodeId: string, session: string): string {
  return hash('sha256', JSON.stringify([nodeId, session])).slice(0, 32);
}
