/**
 * Names and order of the objects that contain open sessions. If the machine of a recorder is lost, the objects lack
 * only the last seconds of each session.
 *
 * ```text
 * .open/<recorder>/<recording id>/notes-000000000000000   journal of the spool from that byte on
 * .open/<recorder>/<recording id>/cast-000000000000000    cast of the spool from that byte on
 * .open/<recorder>/<recording id>/proof                   signed lengths and digests of both files, see `checkpoint.ts`
 * .recorders/<recorder>                                   signed, written four times per lease duration: see `lease.ts`
 * ```
 *
 * A small segment is rewritten with new bytes until it is large enough. Then the next segment starts. If the segments
 * are joined in the order of their names, the result is the two files of the spool.
 */
import { forEachConcurrent } from '../../async/for-each-concurrent.ts';
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
  /** Segments that follow each other without gaps, from byte 0. */
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
/**
 * Maximum numbers of open sessions that are listed, with and without a signed statement. Further sessions stay in the
 * bucket and are ignored.
 */
const MAX_SIGNED_SESSIONS = 20_000;
const MAX_UNSIGNED_SESSIONS = 1000;
/** Maximum number of segments of one spool file. A recorder writes at most one segment per MiB. */
const MAX_SEGMENTS = 50_000;
/** Maximum number of signed statements that are read concurrently. */
const READ_CONCURRENCY = 8;

interface Found extends OpenSession {
  readonly cast: Segment[];
  readonly notes: Segment[];
  proof: BucketObject | undefined;
}

/**
 * Lists the open sessions of all recorders.
 *
 * @param isSigned returns true if a trusted key signed the statement of a session. Unsigned sessions have a lower
 * limit. By default, all sessions count as signed
 */
export async function listOpenSessions(
  bucket: Bucket,
  isSigned: (session: OpenSession) => Promise<boolean> = () => Promise.resolve(true),
): Promise<readonly OpenSession[]> {
  const signed: OpenSession[] = [];
  const unsigned: OpenSession[] = [];
  const keep = (sessions: readonly OpenSession[]): Promise<void> =>
    forEachConcurrent(sessions, READ_CONCURRENCY, async (session) => {
      const [list, max] = (await isSigned(session))
        ? [signed, MAX_SIGNED_SESSIONS]
        : [unsigned, MAX_UNSIGNED_SESSIONS];
      if (list.length < max) list.push(session);
    });
  // The listing is sorted by name, so the objects of a session follow each other.
  let last: Found | undefined;
  for await (const { objects } of bucket.list({ prefix: OPEN_FOLDER })) {
    const complete: OpenSession[] = [];
    for (const object of objects) {
      const found = parseName(object.name);
      if (found === undefined) continue;
      const { recorder, key, kind, start } = found;
      if (last?.recorder !== recorder || recordingId(last.key) !== recordingId(key)) {
        if (last !== undefined) complete.push(last);
        last = { recorder, key, cast: [], notes: [], proof: undefined };
      }
      if (kind === undefined) last.proof = object;
      else addSegment(last[kind], { name: object.name, start, bytes: object.bytes });
    }
    await keep(complete);
  }
  if (last !== undefined) await keep([last]);
  return [...signed, ...unsigned];
}

/** Parses the name of an object. `kind` is undefined for the signed statement. */
function parseName(
  name: string,
): (Pick<OpenSession, 'recorder' | 'key'> & { kind: SegmentKind | undefined; start: number }) | undefined {
  const [, recorder = '', id = '', kind, start = '0'] = NAME.exec(name) ?? [];
  const key = parseRecordingId(id);
  if (key === undefined) return undefined;
  return {
    recorder,
    key,
    kind: kind === 'cast' || kind === 'notes' ? kind : undefined,
    start: Number(start),
  };
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
    // Each range has an explicit end, because a segment may have grown since the listing.
    yield* bucket.get(name, { start: position - start, end: end - start });
    position = end;
  }
}

/** Removes all objects of a session. */
export async function removeFolder(bucket: Bucket, folder: string): Promise<void> {
  for await (const { objects } of bucket.list({ prefix: folder })) {
    // Remove the last object first: after an interrupted removal, the remaining segments still start at byte 0.
    for (const { name } of objects.toReversed()) await bucket.remove(name);
  }
}

/**
 * Adds the next segment in the order of the names. Skips a segment after a gap, and a segment without new bytes.
 * Segments may overlap, because a restarted recorder copies from the start.
 */
function addSegment(segments: Segment[], segment: Segment): void {
  const reached = segmentsBytes(segments);
  if (segment.start > reached || segment.start + segment.bytes <= reached) return;
  if (segments.length < MAX_SEGMENTS) segments.push(segment);
}
