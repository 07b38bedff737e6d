/** What `ls` and `play` know of an archive, whatever it is kept in. */
import { createHash } from 'node:crypto';
import type { ListedRecording } from '../wire/recorder-api/recording.ts';
import { TailcastError } from '../errors.ts';
import type { BundleSources } from '../bundle/write-bundle.ts';
import type { CastBytes } from '../screen/cast-lines.ts';

/** Longest line a cast may have here; our recorder writes far shorter ones. */
export const MAX_LINE_BYTES = 64 * 1024 * 1024;

/** What `ls` narrows the list to, as query parameters of the read API. */
export type ArchiveQuery = Readonly<Record<string, string>>;

/** What a recording is exported from. */
export interface ExportSources extends BundleSources {
  /** JSON. Undefined where there is none. */
  readonly transcript: () => Promise<Uint8Array | undefined>;
}

export interface Archive {
  /** Newest first; asks for further pages as they are needed. */
  list(query: ArchiveQuery): AsyncIterable<ListedRecording>;
  /** The recording with this id, the only one whose id begins so, or the newest for `latest`. */
  find(id: string): Promise<ListedRecording>;
  /** The cast, line by line. With `follow`, a running session's lines as they come, until it ends. */
  lines(recording: ListedRecording, options: { readonly follow: boolean }): AsyncIterable<string>;
  /** The bytes of the cast, from anywhere. */
  bytes(recording: ListedRecording): CastBytes;
  /** Gives `use` everything that is known about a recording that is over. */
  withSources<T>(recording: ListedRecording, use: (sources: ExportSources) => Promise<T>): Promise<T>;
}

/** Shortest number of digits of a short id. */
const SHORT_ID = 6;

/** The short name of a recording for people: the first digits of the SHA-256 of its id. */
export function shortId(id: string, digits = SHORT_ID): string {
  return createHash('sha256').update(id).digest('hex').slice(0, digits);
}

/** Short ids with as many digits as tell these recordings apart. */
export function shortIds(ids: readonly string[]): ReadonlyMap<string, string> {
  const distinct = new Set(ids).size;
  let digits = SHORT_ID;
  while (digits < 64 && new Set(ids.map((id) => shortId(id, digits))).size < distinct) digits += 1;
  return new Map(ids.map((id) => [id, shortId(id, digits)]));
}

/**
 * Finds by id, by its beginning, by the beginning of its time, by a short id, or `latest`.
 *
 * @throws TailcastError `RECORDING_UNKNOWN`; `USAGE` when several recordings match
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
