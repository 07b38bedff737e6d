/** What `ls` and `play` know of an archive, whatever it is kept in. */
import { z } from 'zod';
import { TailcastError } from '../errors.ts';

/** Longest line a cast may have here; our recorder writes far shorter ones. */
export const MAX_LINE_BYTES = 64 * 1024 * 1024;

/** A recording as the recorder's read API gives it, as far as the tools show it. */
export const RECORDING = z.object({
  id: z.string(),
  state: z.string(),
  startedAt: z.string(),
  durationSeconds: z.number().optional(),
  bytes: z.number(),
  command: z.string().optional(),
  kind: z.string(),
  source: z.object({
    node: z.string(),
    user: z.string().optional(),
    tags: z.array(z.string()).readonly().optional(),
  }),
  kubernetes: z.object({ namespace: z.string(), pod: z.string(), container: z.string() }).optional(),
  exitCode: z.number().optional(),
  problem: z.string().optional(),
});

/** The fields of a recording that the tools show. */
export type ListedRecording = z.infer<typeof RECORDING>;

/** What `ls` narrows the list to, as query parameters of the read API. */
export type ArchiveQuery = Readonly<Record<string, string>>;

export interface Archive {
  /** Newest first; asks for further pages as they are needed. */
  list(query: ArchiveQuery): AsyncIterable<ListedRecording>;
  /** The recording with this id, the only one whose id begins so, or the newest for `latest`. */
  find(id: string): Promise<ListedRecording>;
  /** The cast, line by line. With `follow`, a running session's lines as they come, until it ends. */
  lines(recording: ListedRecording, options: { readonly follow: boolean }): AsyncIterable<string>;
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
