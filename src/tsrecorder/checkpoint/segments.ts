/**
 * Names and order of the objects that contain open sessions. With them, the loss of a machine loses only seconds of a
 * session.
 *
 * ```
 * .open/<recorder>/<recording id>/notes-000000000000000   journal of the spool from that byte on
 * .open/<recorder>/<recording id>/cast-000000000000000    cast of the spool from that byte on
 * .open/<recorder>/<recording id>/proof                   signed lengths and digests of both files, see `checkpoint.ts`
 * .recorders/<recorder>                                   signed, written four times per lease duration: see `lease.ts`
 * ```
 *
 * A small segment is rewritten with new bytes until it is large enough. Then the next segment starts. Joined in the
 * order of their names, the segments are the two files of the spool.
 */
import type { Bucket, BucketObject } from '../store/bucket.ts';
import { parseRecordingId, recordingId, type RecordingKey } from '../store/key.ts';
import type { ByteRange } from '../files/file-range.ts';

const OPEN_FOLDER = '.open/';
/** Name prefix of the leases. */
export const RECORDERS_FOLDER = '.recorders/';

/** Spool file that a segment belongs to: the cast, or the journal (`notes`). */
export type SegmentKind = 'cast' | 'notes';

/** An object with consecutive bytes of a spool file. */
export interface Segment {
  readonly name: string;
  /** Offset of its first byte in the file. */
  readonly start: number;
  readonly bytes: number;
}

/** Objects of one open session in the bucket. */
export interface OpenSession {
  readonly recorder: string;
  readonly key: RecordingKey;
  /** Segments from the start, without gaps. */
  readonly cast: readonly Segment[];
  readonly notes: readonly Segment[];
  /** The signed statement; undefined if it is missing. */
  readonly proof: BucketObject | undefined;
}

/** Returns the name prefix of all segments of a session. */
export function sessionFolder(recorder: string, key: RecordingKey): string {
  return `${OPEN_FOLDER}${recorder}/${recordingId(key)}/`;
}

/** Returns the name of the segment that starts at byte `start` of its file. */
export function segmentName(folder: string, kind: SegmentKind, start: number): string {
  return `${folder}${kind}-${String(start).padStart(15, '0')}`;
}

/** Returns the name of the signed statement of a session. */
export function proofName(folder: string): string {
  return `${folder}proof`;
}

const NAME = /^\.open\/([0-9a-f]{1,64})\/([^/]+)\/(?:(cast|notes)-(\d{15})|proof)$/;
/** Maximum number of open sessions that are read. Segments of others stay in the bucket. */
const MAX_OPEN_SESSIONS = 20_000;

interface Found {
  readonly owner: string;
  readonly key: RecordingKey;
  readonly segments: Record<SegmentKind, Segment[]>;
  proof: BucketObject | undefined;
}

/** Lists the open sessions of all recorders. */
export async function listOpenSessions(bucket: Bucket): Promise<readonly OpenSession[]> {
  const sessions = new Map<string, Found>();
  for await (const { objects } of bucket.list({ prefix: OPEN_FOLDER })) {
    for (const object of objects) {
      const { name, bytes } = object;
      const match = NAME.exec(name);
      const [, owner = '', id = '', kind, start = ''] = match ?? [];
      const key = parseRecordingId(id);
      if (match === null || key === undefined) continue;
      const folder = sessionFolder(owner, key);
      let known = sessions.get(folder);
      if (known === undefined) {
        if (sessions.size >= MAX_OPEN_SESSIONS) continue;
        known = { owner, key, segments: { cast: [], notes: [] }, proof: undefined };
        sessions.set(folder, known);
      }
      if (kind === 'cast' || kind === 'notes')
        known.segments[kind].push({ name, start: Number(start), bytes });
      else known.proof = object;
    }
  }
  return [...sessions.values()].map(({ owner, key, segments, proof }) => ({
    recorder: owner,
    key,
    cast: contiguous(segments.cast),
    notes: contiguous(segments.notes),
    proof,
  }));
}

/** Returns the length of the joined file, in bytes. */
export function segmentsBytes(segments: readonly Segment[]): number {
  const last = segments.at(-1);
  return last === undefined ? 0 : last.start + last.bytes;
}

/** Reads the bytes `[start, end)` of the joined file. */
export async function* readSegments(
  bucket: Bucket,
  segments: readonly Segment[],
  range: ByteRange,
): AsyncGenerator<Uint8Array> {
  let position = range.start;
  for (const { name, start, bytes } of segments) {
    const end = Math.min(start + bytes, range.end);
    if (position >= end) continue;
    // The ranges have explicit ends, because a segment may have grown since the listing.
    yield* bucket.get(name, { start: position - start, end: end - start });
    position = end;
  }
}

/** Removes all objects of a session. */
export async function removeFolder(bucket: Bucket, folder: string): Promise<void> {
  for await (const { objects } of bucket.list({ prefix: folder })) {
    // The last object goes first, so that the rest of an interrupted removal still starts at byte 0.
    for (const { name } of objects.toReversed()) await bucket.remove(name);
  }
}

/**
 * Returns the segments up to the first gap. Listings are sorted by name, so the segments are in order. Segments may
 * overlap, because a restarted recorder copies from the start.
 */
function contiguous(segments: readonly Segment[]): readonly Segment[] {
  let reached = 0;
  const usable: Segment[] = [];
  for (const segment of segments) {
    if (segment.start > reached) break;
    if (segment.start + segment.bytes <= reached) continue;
    usable.push(segment);
    reached = segment.start + segment.bytes;
  }
  return usable;
}
