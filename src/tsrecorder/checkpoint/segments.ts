/**
 * Names and order of the objects that hold what is known of open sessions, so that the loss of a whole machine loses
 * seconds of them and not all.
 *
 * ```
 * .open/<recorder>/<recording id>/notes-000000000000000   the journal of the spool from that byte on
 * .open/<recorder>/<recording id>/cast-000000000000000    the cast of the spool from that byte on
 * .open/<recorder>/<recording id>/proof                   signed: lengths and digests of both files, see `checkpoint.ts`
 * .recorders/<recorder>                                   signed, and written every quarter of a lease: see `lease.ts`
 * ```
 *
 * A segment is written again as long as it is small, with what was added; then the next one begins. Put together in the
 * order of their names, the segments are the two files of the spool as they were.
 */
import type { Bucket, BucketObject } from '../store/bucket.ts';
import { parseRecordingId, recordingId, type RecordingKey } from '../store/key.ts';
import type { ByteRange } from '../files/file-range.ts';

const OPEN_FOLDER = '.open/';
export const RECORDERS_FOLDER = '.recorders/';

export type SegmentKind = 'cast' | 'notes';

export interface Segment {
  readonly name: string;
  /** Offset in the file of its first byte. */
  readonly start: number;
  readonly bytes: number;
}

/** What the bucket holds of one open session. */
export interface OpenSession {
  readonly recorder: string;
  readonly key: RecordingKey;
  /** From the beginning, without a gap. */
  readonly cast: readonly Segment[];
  readonly notes: readonly Segment[];
  /** The signed statement, if there is one. */
  readonly proof: BucketObject | undefined;
}

/** Name prefix of all segments of a session. */
export function sessionFolder(recorder: string, key: RecordingKey): string {
  return `${OPEN_FOLDER}${recorder}/${recordingId(key)}/`;
}

export function segmentName(folder: string, kind: SegmentKind, start: number): string {
  return `${folder}${kind}-${String(start).padStart(15, '0')}`;
}

/** Name of the signed statement of a session. */
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

export function segmentsBytes(segments: readonly Segment[]): number {
  const last = segments.at(-1);
  return last === undefined ? 0 : last.start + last.bytes;
}

/** Bytes `[start, end)` of the file that the segments are of. */
export async function* readSegments(
  bucket: Bucket,
  segments: readonly Segment[],
  range: ByteRange,
): AsyncGenerator<Uint8Array> {
  let position = range.start;
  for (const { name, start, bytes } of segments) {
    const end = Math.min(start + bytes, range.end);
    if (position >= end) continue;
    // explicit ends: a segment may have grown since it was listed
    yield* bucket.get(name, { start: position - start, end: end - start });
    position = end;
  }
}

export async function removeFolder(bucket: Bucket, folder: string): Promise<void> {
  for await (const { objects } of bucket.list({ prefix: folder })) {
    // the end first: what is left of an interrupted removal is still a beginning
    for (const { name } of objects.toReversed()) await bucket.remove(name);
  }
}

/**
 * Names are listed in order, so the segments are. They may overlap: a recorder that could not ask what it had begins
 * anew.
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
