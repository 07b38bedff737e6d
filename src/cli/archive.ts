/** Interface of an archive: the recordings in a store or at a recorder, as the commands read them. */
import { hash } from 'node:crypto';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { TailcastError } from '../errors.ts';
import type { BundleSources } from '../bundle/write-bundle.ts';
import type { CastBytes } from '../screen/cast-lines.ts';

/** Maximum length of a line in a cast, in bytes. The recorders of tailcast write much shorter lines. */
export const MAX_LINE_BYTES = 64 * 1024 * 1024;

/** Filters of `ls`, as query parameters of the read API. */
export type ArchiveQuery = Readonly<Record<string, string>>;

/** Functions from which an export reads the data of a recording. */
export interface ExportSources extends BundleSources {
  /** Returns the transcript as a JSON document; undefined if the recording has no transcript. */
  readonly transcript: () => Promise<Uint8Array | undefined>;
}

/** A recording of an archive. */
export interface ArchivedRecording extends ListedRecording {
  /** True if `trust` is `unverified` because the user did not specify a public key. */
  readonly isUnchecked?: true;
}

export interface Archive {
  /** Yields the recordings, newest first. Requests later pages on demand. */
  list(query: ArchiveQuery): AsyncIterable<ArchivedRecording>;
  /**
   * Returns the name of the viewer if no viewer rule of the recorder matches this viewer; otherwise undefined. Call
   * this method after `list`.
   */
  noRuleFor?(): string | undefined;
  /** Finds a recording, see {@link findRecording}. */
  find(id: string): Promise<ListedRecording>;
  /**
   * Yields the lines of the cast. With `follow`, also yields the new lines of a running session until the session
   * stops.
   */
  lines(recording: ListedRecording, options: { readonly follow: boolean }): AsyncIterable<string>;
  /** Returns a reader with random access to the bytes of the cast. */
  bytes(recording: ListedRecording): CastBytes;
  /** Calls `use` with all sources for an export. The recording must be finished. */
  withSources<T>(recording: ListedRecording, use: (sources: ExportSources) => Promise<T>): Promise<T>;
}

/** Minimum number of digits of a short id. */
const SHORT_ID = 6;

/** Short name of a recording for users: the first digits of the SHA-256 of its id. */
export function shortId(id: string, digits = SHORT_ID): string {
  return hash('sha256', id).slice(0, digits);
}

/** Returns short ids with enough digits to be unique among these recordings. */
export function shortIds(ids: readonly string[]): ReadonlyMap<string, string> {
  const distinct = new Set(ids).size;
  let digits = SHORT_ID;
  while (digits < 64 && new Set(ids.map((id) => shortId(id, digits))).size < distinct) digits += 1;
  return new Map(ids.map((id) => [id, shortId(id, digits)]));
}

/**
 * Finds a recording by its id, a prefix of its id, a prefix of its time, a short id, or `latest`.
 *
 * @throws TailcastError `RECORDING_UNKNOWN`; `USAGE` if several recordings match
 */
export async function findRecording(archive: Pick<Archive, 'list'>, id: string): Promise<ListedRecording> {
  const found: ListedRecording[] = [];
  const isShort = id.length >= SHORT_ID && /^[0-9a-f]+$/.test(id);
  for await (const recording of archive.list({})) {
    if (recording.id === id || id === 'latest') return recording;
    const isFound =
      recording.id.startsWith(id) ||
      recording.id.slice(recording.id.lastIndexOf('_') + 1).startsWith(id) ||
      (isShort && shortId(recording.id, id.length) === id);
    if (isFound) found.push(recording);
  }
  const [only] = found;
  if (only === undefined) throw new TailcastError('RECORDING_UNKNOWN', id);
  if (found.length > 1) {
    const few = found.slice(0, 5).map((recording) => recording.id);
    throw new TailcastError(
      'USAGE',
      `${id} is the beginning of ${found.length} recordings: ${few.join(', ')}`,
    );
  }
  return only;
}
