/**
 * Maps the bytes of a cast to files. Most casts are one file. The cast of a session with several parts consists of one
 * file per part, and the last file may still grow.
 */
import { open, type FileHandle } from 'node:fs/promises';
import { settledWithin } from '../../async/with-timeout.ts';
import { ifPresent, TailcastError } from '../../errors.ts';
import { readFileRange } from '../files/file-range.ts';
import type { LiveRecording } from './live-recording.ts';
import type { RecordingKey } from '../store/key.ts';
import type { ByteRange } from '../files/file-range.ts';
import type { ReadableStore } from '../store/store.ts';

/** Bytes `[start, end())` of one file. */
export interface CastPiece {
  readonly start: number;
  /** Current end. While `live` is set, later calls may return a greater offset. */
  end(): number;
  /** Reads a range of the file. */
  read(range: ByteRange): AsyncIterable<Uint8Array>;
  /** The running or finished session of a spool file; undefined if the file is in the store. */
  readonly live: LiveRecording | undefined;
}

/** Files of one upload. */
export interface PartFiles {
  readonly cast: Omit<CastPiece, 'start'>;
  readonly notes: (() => AsyncIterable<Uint8Array>) | undefined;
}

/** Returns the files of an upload in the store. */
export function storedFiles(
  store: ReadableStore,
  key: RecordingKey,
  bytes: number,
  hasNotes: boolean,
): PartFiles {
  return {
    cast: { end: () => bytes, read: (range) => store.read(key, 'cast', range), live: undefined },
    notes: hasNotes ? () => store.read(key, 'notes') : undefined,
  };
}

/** Returns the files of an upload in the spool. The upload may move into the store during a read. */
export function spooledFiles(store: ReadableStore, live: LiveRecording): PartFiles {
  return {
    cast: {
      end: () => live.durable().castBytes,
      read: (range) => readSpooled(store, live, 'cast', range),
      live,
    },
    notes: () => readSpooled(store, live, 'notes', { start: 0, end: live.durable().notesBytes }),
  };
}

/** Opens a spool file. @returns undefined if the recording has moved into the store */
export function openSpool(path: string): Promise<FileHandle | undefined> {
  return ifPresent(open(path, 'r'));
}

async function* readSpooled(
  store: ReadableStore,
  live: LiveRecording,
  kind: 'cast' | 'notes',
  range: ByteRange,
): AsyncGenerator<Uint8Array> {
  if (range.end <= range.start) return;
  await using file = await openSpool(live.paths[kind]);
  if (file === undefined) {
    yield* store.read(await storedKey(live), kind, range);
    return;
  }
  yield* readFileRange(file, range);
}

/** Maximum wait of a reader for a recording that moves into the store, in milliseconds. */
export const STORED_WAIT_MS = 5000;

/**
 * Returns the key of a recording that has left the spool. The key differs from the original key if the store already
 * had a recording with that key.
 *
 * @throws TailcastError `RECORDING_UNKNOWN` if the recording is not in the store
 */
async function storedKey({ stored }: LiveRecording): Promise<RecordingKey> {
  const key = (await settledWithin(STORED_WAIT_MS, stored)) ? await stored : undefined;
  if (key === undefined) throw new TailcastError('RECORDING_UNKNOWN', 'it is not in the store');
  return key;
}

/** Returns the current length of a piece, in bytes. */
export function pieceBytes({ start, end }: Pick<CastPiece, 'start' | 'end'>): number {
  return Math.max(0, end() - start);
}

/** Returns the length of the joined cast, in bytes. */
export function piecesBytes(pieces: readonly CastPiece[]): number {
  return pieces.reduce((sum, piece) => sum + pieceBytes(piece), 0);
}

/** Reads a range of the joined cast. */
export async function* readPieces(
  pieces: readonly CastPiece[],
  range: ByteRange,
): AsyncGenerator<Uint8Array> {
  let before = 0;
  for (const piece of pieces) {
    const bytes = pieceBytes(piece);
    const start = Math.max(0, range.start - before);
    const end = Math.min(bytes, range.end - before);
    if (start < end) yield* piece.read({ start: piece.start + start, end: piece.start + end });
    before += bytes;
  }
}
