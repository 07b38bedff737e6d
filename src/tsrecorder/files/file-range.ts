/** Reads ranges of files: casts may be gigabytes long, and of sidecars there are tens of thousands in one listing. */
import type { FileHandle } from 'node:fs/promises';
import { passedThrough } from '../../memory/stream-garbage.ts';

/** A range of bytes: `start` inclusive, `end` exclusive. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

const PIECE_BYTES = 64 * 1024;

/**
 * Bytes of an open file in pieces of 64 KiB, which are the caller's; the rest of a shorter file. Not a stream of Node's: that
 * takes a whole piece of memory, and one more to find the end, for each small file.
 */
export async function* readFileRange(file: FileHandle, range: ByteRange): AsyncGenerator<Uint8Array> {
  const { size } = await file.stat();
  const end = Math.min(range.end, size);
  for (let position = range.start; position < end;) {
    const piece = new Uint8Array(Math.min(PIECE_BYTES, end - position));
    const { bytesRead } = await file.read(piece, 0, piece.length, position);
    if (bytesRead === 0) return;
    passedThrough(piece.length);
    position += bytesRead;
    yield piece.subarray(0, bytesRead);
  }
}
