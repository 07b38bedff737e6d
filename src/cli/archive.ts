/** What `ls` and `play` know of an archive, whatever it is kept in. */
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

/** Finds by id, by the beginning of an id, or `latest`. */
export async function findRecording(archive: Pick<Archive, 'list'>, id: string): Promise<ListedRecording> {
  const found: ListedRecording[] = [];
  for await (const recording of archive.list({})) {
    if (recording.id === id || id === 'latest') return recording;
    if (recording.id.startsWith(id) || recording.id.split('_')[1]?.startsWith(id) === true)
      found.push(recording);
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
