/**
 * Names and order of the objects that hold what is known of open sessions, so that the loss of a whole machine loses
 * seconds of them and not all.
 *
 * ```
 * .open/<recorder>/<recording id>/notes-000000000000000   the journal of the spool from that byte on
 * .open/<recorder>/<recording id>/cast-000000000000000    the cast of the spool from that byte on
 * .recorders/<recorder>                                   written again and again while the recorder lives
 * ```
 *
 * A segment is written again as long as it is small, with what was added; then the next one begins. Put together in the
 * order of their names, the segments are the two files of the spool as they were.
 */
import type { Bucket } from '../store/bucket.ts';
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
}

/** Name prefix of all segments of a session. */
export function sessionFolder(recorder: string, key: RecordingKey): string {
  return `${OPEN_FOLDER}${recorder}/${recordingId(key)}/`;
}

export function segmentName(folder: string, kind: SegmentKind, start: number): string {
  return `${folder}${kind}-${String(start).padStart(15, '0')}`;
}

const NAME = /^\.open\/([0-9a-f]{1,64})\/([^/]+)\/(cast|notes)-(\d{15})$/;

/** @param recorder only sessions of this one; undefined for those of all. */
export async function listOpenSessions(bucket: Bucket, recorder?: string): Promise<readonly OpenSession[]> {
  const sessions = new Map<string, { session: OpenSession; segments: Record<SegmentKind, Segment[]> }>();
  const prefix = recorder === undefined ? OPEN_FOLDER : `${OPEN_FOLDER}${recorder}/`;
  for await (const { objects } of bucket.list({ prefix })) {
    for (const { name, bytes } of objects) {
      const [, owner = '', id = '', kind = '', start = ''] = NAME.exec(name) ?? [];
      const key = parseRecordingId(id);
      if (key === undefined || (kind !== 'cast' && kind !== 'notes')) continue;
      const folder = sessionFolder(owner, key);
      let known = sessions.get(folder);
      if (known === undefined) {
        const segments = { cast: [], notes: [] };
        known = { session: { recorder: owner, key, ...segments }, segments };
        sessions.set(folder, known);
      }
      known.segments[kind].push({ name, start: Number(start), bytes });
    }
  }
  return [...sessions.values()].map(({ session: { recorder: owner, key }, segments }) => ({
    recorder: owner,
    key,
    cast: contiguous(segments.cast),
    notes: contiguous(segments.notes),
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
