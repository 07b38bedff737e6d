/**
 * Moves finished uploads from the spool into the store. Retries each upload until the store has it. A spool is deleted
 * only after the store has the recording; until then the recording is listed and served from the spool.
 */
import { hash, randomUUID } from 'node:crypto';
import { open, type FileHandle } from 'node:fs/promises';
import { TailcastError, errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import { readRange } from '../files/file-range.ts';
import { readCastTail } from '../library/cast-tail.ts';
import { blockBytesFor, createLineSealer, type LineSeal } from '../evidence/line-seal.ts';
import type { SessionEvidence } from '../evidence/session-evidence.ts';
import { isSidecarOf } from '../evidence/signed-sidecar.ts';
import { describeHead, joinProblems } from '../library/describe-head.ts';
import type { Recording } from '../../wire/recorder-api/recording.ts';
import { finalResult, finalState, problemOf } from '../library/session-facts.ts';
import { sessionMark as markOf, type SessionPart } from '../library/session-part.ts';
import { encodeSidecar } from '../library/sidecar.ts';
import { removeSpool, type SpoolPosition } from '../spool/spool-file.ts';
import type { SpoolMeta } from '../spool/spool-journal.ts';
import { formatTime, parseTime, recordingId, recordingKey, type RecordingKey } from '../store/key.ts';
import type { RecordingStore, StoredRecording } from '../store/store.ts';
import type { StartedUpload } from './started-upload.ts';
import { createBackoff } from '../../async/backoff.ts';
import { createLimiter } from '../../async/limiter.ts';
import { pause } from '../../async/pause.ts';

/** A finished upload. Both spool files are durable and end with a line feed. */
export interface OverUpload extends StartedUpload, SpoolPosition {
  readonly oddLines: number;
  /** True if the upload is complete: the uploader ended the body, or the last line marks the end of the session. */
  readonly clean: boolean;
  /**
   * Returns true if the uploader still waits for the confirmation. An uploader that no longer waits may send
   * unconfirmed bytes to another recorder.
   */
  readonly awaited: () => boolean;
  /** True if other recorders may have parts of the session. */
  readonly hasOthers: boolean;
  /** Reason why the upload is incomplete. */
  readonly cutReason: string | undefined;
  /** End of the upload, RFC 3339 in UTC. */
  readonly endedAt: string;
}

export interface FinisherOptions {
  readonly store: RecordingStore;
  readonly evidence: Pick<SessionEvidence, 'sign' | 'ended' | 'key'>;
  readonly log: Logger;
  /** Pause after the first failure. The pause doubles with each failure, up to `maxRetryMs`. */
  readonly retryMs: number;
  readonly maxRetryMs: number;
  readonly onRetry: () => void;
}

/** Moves finished uploads into the store. */
export type Finisher = ReturnType<typeof createFinisher>;

/** Number of uploads that are stored in parallel. */
const CONCURRENCY = 4;
/**
 * Number of bytes that are read and hashed in one step. One step blocks the event loop for less than a millisecond.
 * With half this size, the work would need 8 % more CPU time.
 */
const SEAL_READ_BYTES = 512 * 1024;

/** Creates the finisher of a recorder. */
export function createFinisher(options: FinisherOptions) {
  const closing = new AbortController();
  const running = new Set<Promise<void>>();
  const limiter = createLimiter({ maxActive: CONCURRENCY });

  async function attempt(upload: OverUpload): Promise<StoredRecording | undefined> {
    try {
      return await limiter.run(() => store(upload, options.store, options.evidence));
    } catch (error) {
      options.onRetry();
      options.log.error(
        { recording: recordingId(upload.meta), error: errorText(error) },
        'recording could not be stored and will be tried again',
      );
      return undefined;
    }
  }

  async function retry(upload: OverUpload): Promise<StoredRecording | undefined> {
    const backoff = createBackoff({ baseMs: options.retryMs, maxMs: options.maxRetryMs });
    while (await pause(backoff.next(), closing.signal)) {
      const stored = await attempt(upload);
      if (stored !== undefined) return stored;
    }
    return undefined;
  }

  return {
    /**
     * Stores an upload. `firstTry` resolves after the first attempt, even if the attempt failed. `done` resolves when
     * the store has the recording.
     */
    submit(upload: OverUpload) {
      const first = attempt(upload);
      const all = Promise.withResolvers<StoredRecording>();
      const work = first
        .then(async (stored) => stored ?? (await retry(upload)))
        .then((stored) => {
          if (stored !== undefined) all.resolve(stored);
        })
        .finally(() => running.delete(work));
      running.add(work);
      return { firstTry: first.then(() => undefined), done: all.promise };
    },
    /** Stops all attempts. Recordings that are not stored stay in the spool. */
    async close(): Promise<void> {
      closing.abort();
      await Promise.all(running);
    },
  };
}

/**
 * Stores one upload and deletes its spool. The caller may repeat the call after a failure.
 *
 * @returns the stored recording. Its key differs from the key of the upload if the store already had another recording
 *   with that key
 */
async function store(
  upload: OverUpload,
  into: RecordingStore,
  evidence: FinisherOptions['evidence'],
): Promise<StoredRecording> {
  const { paths, castBytes } = upload;
  const notes = upload.facts.noteCount > 0 ? paths.notes : undefined;
  const notesBytes = notes === undefined ? 0 : upload.notesBytes;
  const { files, durationSeconds, start } = await readFiles(upload, notes);
  const described = describeUpload(upload, durationSeconds);
  const { part, isWhole } = placeOf(upload);
  const mark = markOf(upload.meta.nodeId, part.session);
  let key: RecordingKey = upload.meta;
  let isSingle = isWhole;
  for (let conflicts = 1; ; conflicts += 1) {
    const recording = { ...described, id: recordingId(key), key: recordingKey(key) };
    const document = encodeSidecar(
      {
        tailcast: 1,
        recording,
        cast: { bytes: castBytes, resizeOrder: upload.head.resizeOrder },
        upload: {
          protocol: upload.meta.protocol,
          address: upload.meta.address,
          bodyBytes: upload.bodyBytes,
          endedAt: upload.endedAt,
        },
        part,
        gaps: upload.facts.gaps,
        gapCount: upload.facts.gapCount,
        noteCount: upload.facts.noteCount,
      },
      upload.facts.session,
    );
    const sidecar = await evidence.sign(start, files, document);
    try {
      const sources = { castPath: paths.cast, castBytes, notesPath: notes, notesBytes };
      const isOwnSidecar = (stored: string): boolean =>
        isSidecarOf(stored, recording.id, files, evidence.key);
      const sessionMark = isSingle ? undefined : mark;
      await into.finish({ key, ...sources, sidecar, isOwnSidecar, sessionMark });
      break;
    } catch (error) {
      if (!(error instanceof TailcastError) || error.code !== 'UPLOAD_CONFLICT') throw error;
      key = nextKey(key, conflicts);
      // The store may contain two copies of the session. The session mark joins them.
      isSingle = false;
    }
  }
  const kept = await into.stat(key, 'cast');
  if (kept?.bytes !== castBytes) {
    throw new TailcastError('STORE_FAILED', 'the stored cast is not as long as the spool');
  }
  await evidence.ended(start.recording, recordingId(key), mark, files);
  await removeSpool(paths, upload.adopted !== undefined);
  return { key, hasSidecar: true, ...(isSingle ? {} : { sessionMark: mark }) };
}

/** Returns the description of the recording for listings. */
export function describeUpload(upload: OverUpload, durationSeconds: number | undefined): Recording {
  const { facts, head, meta } = upload;
  const problem = problemOf(facts, upload.oddLines, upload.cutReason);
  return {
    ...describeHead(meta, head),
    state: finalState(facts, upload.clean),
    ...(durationSeconds === undefined ? {} : { durationSeconds }),
    bytes: upload.castBytes,
    ...finalResult(facts),
    ...joinProblems(head.problem, problem),
  };
}

/**
 * Returns the position of the upload in its session. If the upload is complete and the uploader still waits for the
 * confirmation, the upload is the last part of the session.
 */
function placeOf(upload: OverUpload): { readonly part: SessionPart; readonly isWhole: boolean } {
  const isLast = upload.clean && upload.awaited();
  const { after = [], ...place } = describePart(upload.meta);
  return {
    part: isLast || after.length === 0 ? place : { ...place, after },
    isWhole:
      isLast && place.number === 1 && place.offset === 0 && !upload.hasOthers && upload.adopted === undefined,
  };
}

/** Returns the position of a recording in its session, from the journal of the recording. */
export function describePart(meta: SpoolMeta): SessionPart {
  const { number, offset } = meta.part ?? { number: 1, offset: 0 };
  const session = meta.token ?? recordingId(meta);
  const { storedHeaderBytes: headerBytes, uploadedHeaderBytes: headerEnd, neighbours = {} } = meta;
  return { session, number, offset, headerBytes, headerEnd, ...neighbours };
}

/** Number of conflicts after which the next key is unpredictable. */
const MAX_ORDERLY_CONFLICTS = 4;
/** Maximum difference between an unpredictable key and the previous key, in nanoseconds. */
const MAX_STEP_NS = 1_000_000;

/** Secret of this process, so that an attacker cannot predict the keys. */
const KEY_SECRET = randomUUID();

/**
 * Returns a key with a slightly later time. Used if the store already has a recording with the given key, for example
 * a copy. The step is one nanosecond, and unpredictable after some conflicts, because an attacker may have occupied the
 * following keys. A retry chooses the same keys again. After a restart of the recorder, the keys differ, so a recording
 * that was stored just before may be stored twice.
 */
function nextKey(key: RecordingKey, conflicts: number): RecordingKey {
  const seed = `${KEY_SECRET} ${recordingKey(key)}`;
  const step =
    conflicts < MAX_ORDERLY_CONFLICTS ? 0 : hash('sha256', seed, 'buffer').readUInt32BE() % MAX_STEP_NS;
  return { nodeId: key.nodeId, time: formatTime((parseTime(key.time) ?? 0n) + BigInt(step) + 1n) };
}

/**
 * Hashes the files of an upload, and reads the time of its last event and the data for its start entry in the evidence
 * log.
 */
async function readFiles(upload: OverUpload, notes: string | undefined) {
  const { meta, paths, bodyBytes, castBytes, adopted } = upload;
  const { nodeId, nodeName, address, storedHeaderBytes } = meta;
  await using file = await open(paths.cast, 'r');
  await using notesFile = notes === undefined ? undefined : await open(notes, 'r');
  const cast = await sealFile(file, castBytes);
  const { durationSeconds } = await readCastTail((start, end) => readRange(file, start, end), castBytes);
  const header = await readRange(file, 0, storedHeaderBytes);
  const recording = recordingId(meta);
  const from = adopted === undefined ? {} : { adopted };
  const start = { recording, header, nodeId, nodeName, address, durable: bodyBytes, ...from };
  const sealedNotes = notesFile === undefined ? undefined : await sealFile(notesFile, upload.notesBytes);
  return { files: { cast, notes: sealedNotes }, durationSeconds, start };
}

/** Hashes a file. Reads without a stream: a stream would allocate memory for the complete file outside the V8 heap. */
async function sealFile(file: FileHandle, expectedBytes: number): Promise<LineSeal> {
  const sealer = createLineSealer(blockBytesFor(expectedBytes));
  // Allocate one byte more than expected, so that one read shows the end of a short file.
  const block = Buffer.allocUnsafeSlow(Math.min(expectedBytes + 1, SEAL_READ_BYTES));
  for (let bytes = 0; ;) {
    const { bytesRead } = await file.read(block, 0, block.length);
    if (bytesRead > 0) sealer.push(block.subarray(0, bytesRead));
    bytes += bytesRead;
    if (bytesRead === 0 || (bytes === expectedBytes && bytesRead < block.length)) return sealer.finish();
  }
}
