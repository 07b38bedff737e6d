/**
 * Copies new bytes of open sessions to a shared bucket, and signs their lengths and digests: see `segments.ts` and
 * `checkpoint.ts`.
 */
import { createHash, hash, type Hash } from 'node:crypto';
import { errorText, ifPresent } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import { readPart } from '../files/file-range.ts';
import type { LiveRecording } from '../library/live-recording.ts';
import type { SessionEvidence } from '../evidence/session-evidence.ts';
import { encodeStatement } from '../evidence/statement.ts';
import type { Bucket } from '../store/bucket.ts';
import { recordingId } from '../store/key.ts';
import { createLimiter } from '../../async/limiter.ts';
import { MAX_META_BYTES, type Checkpoint } from './checkpoint.ts';
import { proofName, removeFolder, segmentName, sessionFolder, type SegmentKind } from './segments.ts';

export interface CopiesOptions {
  readonly bucket: Bucket;
  /** Returns the name of this recorder. If the name changes, the recorder copies all bytes again. */
  readonly recorder: () => string;
  readonly evidence: Pick<SessionEvidence, 'log' | 'key' | 'startOf'>;
  readonly live: () => readonly LiveRecording[];
  readonly log: Logger;
  readonly onBytes: (bytes: number) => void;
  readonly onFailure: () => void;
}

/** Keeps copies of this recorder's open sessions in the shared bucket. */
export type Copies = ReturnType<typeof createCopies>;

/** Minimum size of a finished segment, in bytes. Finished segments are never rewritten. */
const SEGMENT_BYTES = 1024 ** 2;
/** Maximum size of one copied object, in bytes. */
const MAX_COPY_BYTES = 4 * 1024 ** 2;
const CONCURRENCY = 4;

/** Progress of copying one file. */
interface Progress {
  /** Offset of the last segment, which may still be rewritten. */
  start: number;
  /** Number of copied bytes. */
  end: number;
  /** Hash of the copied bytes. */
  readonly hash: Hash;
}

type SessionProgress = Record<SegmentKind, Progress> & {
  readonly recording: string;
  /** Lengths of the cast and the journal in the last signed statement. */
  signed: string;
  /** SHA-256 of the first line of the journal. */
  meta: string | undefined;
};

/** Returns the object that copies the open sessions of a recorder to its shared bucket. */
export function createCopies(options: CopiesOptions) {
  const { bucket, recorder, log } = options;
  const progress = new Map<string, SessionProgress>();

  async function copyFile(
    folder: string,
    kind: SegmentKind,
    path: string,
    durable: number,
    at: Progress,
  ): Promise<void> {
    while (at.end < durable) {
      const end = Math.min(durable, at.start + MAX_COPY_BYTES);
      const content = await ifPresent(readPart(path, at.start, end));
      // Stop if the spool has moved into the store.
      if (content === undefined || content.length < end - at.start) return;
      await bucket.put(segmentName(folder, kind, at.start), content);
      options.onBytes(content.length);
      at.hash.update(content.subarray(at.end - at.start));
      at.end = end;
      if (content.length >= SEGMENT_BYTES) at.start = end;
    }
  }

  async function copySession(live: LiveRecording): Promise<void> {
    const owner = recorder();
    const folder = sessionFolder(owner, live.key);
    const { castBytes, notesBytes, bodyBytes } = live.durable();
    let known = progress.get(folder);
    if (known === undefined) {
      known = {
        recording: recordingId(live.key),
        cast: beginning(),
        notes: beginning(),
        signed: '',
        meta: undefined,
      };
      progress.set(folder, known);
    }
    // NOTE: copy the journal before the cast; the spool is written in the same order. A cast that is longer than its
    // journal describes would be unreadable.
    await copyFile(folder, 'notes', live.paths.notes, notesBytes, known.notes);
    await copyFile(folder, 'cast', live.paths.cast, castBytes, known.cast);
    if (known.cast.end === castBytes && known.notes.end === notesBytes)
      await sign(options, owner, live, bodyBytes, known);
  }

  return {
    /** Copies new bytes, and removes the copies of sessions that are in the store. */
    async update(): Promise<void> {
      const live = options.live();
      const open = new Set(live.map(({ key }) => sessionFolder(recorder(), key)));
      const limiter = createLimiter({ maxActive: CONCURRENCY });
      const results = await Promise.allSettled(
        live.map((session) => limiter.run(() => copySession(session))),
      );
      const failures = results.filter((result) => result.status === 'rejected');
      if (failures.length > 0) {
        options.onFailure();
        const error = errorText(failures[0]?.reason);
        log.warn({ sessions: failures.length, error }, 'open sessions could not be copied to the bucket');
      }
      const running = new Set(live.map(({ key }) => recordingId(key)));
      for (const [folder, { recording }] of progress) {
        if (open.has(folder)) continue;
        // Keep the copies under an earlier name of this recorder: until the new copies are signed, no other valid
        // copies exist. `takeover.ts` removes the old copies afterwards.
        if (!running.has(recording)) await removeFolder(bucket, folder);
        progress.delete(folder);
      }
    },
  };
}

/**
 * Signs the copied bytes. Does nothing while the session has no durable bytes. At that time, no byte is acknowledged,
 * and the evidence log has no start entry of the session.
 */
async function sign(
  { bucket, evidence }: CopiesOptions,
  owner: string,
  { key, paths }: LiveRecording,
  bodyBytes: number,
  known: SessionProgress,
): Promise<void> {
  const recording = recordingId(key);
  const start = evidence.startOf(recording);
  const reached = `${known.cast.end} ${known.notes.end}`;
  if (start === undefined || known.cast.end === 0 || known.signed === reached) return;
  known.meta ??= await digestOfFirstLine(paths.notes);
  if (known.meta === undefined) return;
  const checkpoint: Checkpoint = {
    recorder: owner,
    recording,
    log: evidence.log,
    start: start.n,
    header: start.header,
    meta: known.meta,
    bodyBytes,
    cast: digestOf(known.cast),
    notes: digestOf(known.notes),
  };
  const text = encodeStatement('checkpoint', checkpoint, evidence.key);
  await bucket.put(proofName(sessionFolder(owner, key)), Buffer.from(text));
  known.signed = reached;
}

/** Returns the digest, or undefined if the spool has moved into the store. */
async function digestOfFirstLine(path: string): Promise<string | undefined> {
  const content = await ifPresent(readPart(path, 0, MAX_META_BYTES));
  const end = content?.indexOf(0x0a) ?? -1;
  if (content === undefined || end < 0) return undefined;
  return hash('sha256', content.subarray(0, end + 1));
}

function beginning(): Progress {
  return { start: 0, end: 0, hash: createHash('sha256') };
}

function digestOf(copied: Progress): { readonly bytes: number; readonly sha256: string } {
  return { bytes: copied.end, sha256: copied.hash.copy().digest('hex') };
}
