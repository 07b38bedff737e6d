/** Copies what open sessions have added into a shared bucket: see `segments.ts`. */
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import { isSystemError } from '../files/durable-files.ts';
import { readPart } from '../intake/finisher.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import type { Bucket } from '../store/bucket.ts';
import { createGatekeeper } from '../../async/gatekeeper.ts';
import {
  listOpenSessions,
  removeFolder,
  segmentName,
  sessionFolder,
  type Segment,
  type SegmentKind,
} from './segments.ts';

export interface CopiesOptions {
  readonly bucket: Bucket;
  /** Name of this recorder; it may change, then everything is copied anew. */
  readonly recorder: () => string;
  readonly live: () => readonly LiveRecording[];
  readonly log: Logger;
  readonly onBytes: (bytes: number) => void;
  readonly onFailure: () => void;
}

export interface Copies {
  /** Copies what was added since, and removes the copies of what is in the store now. */
  update(): Promise<void>;
  /** Goes on where an earlier process of this recorder left off. */
  resume(): Promise<void>;
}

/** A segment of this size is not written again. */
const SEGMENT_BYTES = 1024 ** 2;
/** The largest copy at a time. */
const MAX_COPY_BYTES = 4 * 1024 ** 2;
const CONCURRENCY = 4;

/** How far a file of a session is copied. */
interface Progress {
  /** Where the segment begins that may be written again. */
  start: number;
  /** Up to where the file is copied. */
  end: number;
}

/** One per recorder with a shared bucket. */
export function createCopies(options: CopiesOptions): Copies {
  const { bucket, recorder, log } = options;
  const progress = new Map<string, Record<SegmentKind, Progress>>();

  async function copyFile(
    folder: string,
    kind: SegmentKind,
    path: string,
    durable: number,
    at: Progress,
  ): Promise<void> {
    while (at.end < durable) {
      const end = Math.min(durable, at.start + MAX_COPY_BYTES);
      const content = await readPart(path, at.start, end).catch((error: unknown) => {
        if (isSystemError(error, 'ENOENT')) return undefined;
        throw error;
      });
      // the spool has moved into the store
      if (content === undefined || content.length < end - at.start) return;
      await bucket.put(segmentName(folder, kind, at.start), content);
      options.onBytes(content.length);
      at.end = end;
      if (content.length >= SEGMENT_BYTES) at.start = end;
    }
  }

  async function copySession(live: LiveRecording): Promise<void> {
    const folder = sessionFolder(recorder(), live.key);
    const { castBytes, notesBytes } = live.durable();
    let known = progress.get(folder);
    if (known === undefined) {
      known = { cast: { start: 0, end: 0 }, notes: { start: 0, end: 0 } };
      progress.set(folder, known);
    }
    // NOTE: the journal first, as in the spool: a cast that is ahead of it could not be read
    await copyFile(folder, 'notes', live.paths.notes, notesBytes, known.notes);
    await copyFile(folder, 'cast', live.paths.cast, castBytes, known.cast);
  }

  return {
    async update() {
      const live = options.live();
      const open = new Set(live.map(({ key }) => sessionFolder(recorder(), key)));
      const gatekeeper = createGatekeeper({ maxActive: CONCURRENCY });
      const results = await Promise.allSettled(
        live.map((session) => gatekeeper.run(() => copySession(session))),
      );
      const failures = results.filter((result) => result.status === 'rejected');
      if (failures.length > 0) {
        options.onFailure();
        const error = errorText(failures[0]?.reason);
        log.warn({ sessions: failures.length, error }, 'open sessions could not be copied to the bucket');
      }
      for (const folder of progress.keys()) {
        if (open.has(folder)) continue;
        await removeFolder(bucket, folder);
        progress.delete(folder);
      }
    },
    async resume() {
      const open = new Set(options.live().map(({ key }) => sessionFolder(recorder(), key)));
      for (const { key, cast, notes } of await listOpenSessions(bucket, recorder())) {
        const folder = sessionFolder(recorder(), key);
        // what is not open is not ours to remove: the store may not have it
        if (open.has(folder)) progress.set(folder, { cast: progressOf(cast), notes: progressOf(notes) });
      }
    },
  };
}

function progressOf(segments: readonly Segment[]): Progress {
  const last = segments.at(-1);
  if (last === undefined) return { start: 0, end: 0 };
  const end = last.start + last.bytes;
  return { start: last.bytes >= SEGMENT_BYTES ? end : last.start, end };
}
