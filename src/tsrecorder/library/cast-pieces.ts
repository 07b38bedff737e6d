/**
 * Where the bytes of a cast are: most casts are one file, but one that was brought in parts, or is still growing, is
 * several files one after another.
 */
import { open, type FileHandle } from 'node:fs/promises';
import { settledWithin } from '../../async/within.ts';
import { TailcastError } from '../../errors.ts';
import { isSystemError } from '../files/durable-files.ts';
import { readFileRange } from '../files/file-range.ts';
import type { LiveRecording } from './live-recording.ts';
import type { RecordingKey } from '../store/key.ts';
import type { ByteRange } from '../files/file-range.ts';
import type { ReadableStore } from '../store/store.ts';

/** Bytes `[start, end())` of one file. */
export interface CastPiece {
  readonly start: number;
  /** May rise while `live` is set. */
  end(): number;
  /** A range of the file. */
  read(range: ByteRange): AsyncIterable<Uint8Array>;
  /** The session whose file it is, while that is not in the store. */
  readonly live: LiveRecording | undefined;
}

/** The files of one upload. */
export interface PartFiles {
  readonly cast: Omit<CastPiece, 'start'>;
  readonly notes: (() => AsyncIterable<Uint8Array>) | undefined;
}

/** An upload that is in the store. */
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

/** An upload that is in the spool, or moves from there into the store while it is read. */
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

/** @returns undefined when the recording has moved into the store meanwhile. */
export async function openSpool(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, 'r');
  } catch (error) {
    if (isSystemError(error, 'ENOENT')) return undefined;
    throw error;
  }
}

async function* readSpooled(
  store: ReadableStore,
  live: LiveRecording,
  kind: 'cast' | 'notes',
  range: ByteRange,
): AsyncGenerator<Uint8Array> {
  if (range.end <= range.start) return;
  const file = await openSpool(live.paths[kind]);
  if (file === undefined) {
    yield* store.read(await storedKey(live), kind, range);
    return;
  }
  try {
    yield* readFileRange(file, range);
  } finally {
    await file.close();
  }
}

/** How long a reader waits for a recording that moves into the store. */
export const STORED_WAIT_MS = 5000;

/**
 * The key of a recording that has left the spool. It is not always its own: another recording may have had that one.
 *
 * @throws TailcastError `RECORDING_UNKNOWN`
 */
async function storedKey({ stored }: LiveRecording): Promise<RecordingKey> {
  const key = (await settledWithin(STORED_WAIT_MS, stored)) ? await stored : undefined;
  if (key === undefined) throw new TailcastError('RECORDING_UNKNOWN', 'it is not in the store');
  return key;
}

export function pieceBytes({ start, end }: Pick<CastPiece, 'start' | 'end'>): number {
  return Math.max(0, end() - start);
}

/** Length of the cast that the pieces make. */
export function piecesBytes(pieces: readonly CastPiece[]): number {
  return pieces.reduce((sum, piece) => sum + pieceBytes(piece), 0);
}

/** A range of the cast that the pieces make. */
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
