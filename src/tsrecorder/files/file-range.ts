/**
 * Reads ranges of files in small pieces to limit the memory: a recording may be several gigabytes long, and a list of
 * recordings may read tens of thousands of sidecars.
 */
import { open, type FileHandle } from 'node:fs/promises';
import { passedThrough } from '../../memory/stream-garbage.ts';

/** A range of bytes: `start` inclusive, `end` exclusive. */
export interface ByteRange {
  readonly start: number;
  readonly end: number;
}

const PIECE_BYTES = 64 * 1024;

/**
 * Yields the bytes of a range in pieces of 64 KiB that the caller may keep. A shorter file yields fewer bytes. Does not
 * use a Node.js stream, which would allocate two complete pieces for each small file.
 *
 * @param known size of the file, if the caller knows it
 */
export async function* readFileRange(
  file: FileHandle,
  range: ByteRange,
  known?: number,
): AsyncGenerator<Uint8Array> {
  const size = known ?? (await file.stat()).size;
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

/** Reads bytes `[start, end)` of a file. A shorter file yields fewer bytes. */
export async function readPart(path: string, start: number, end: number): Promise<Buffer> {
  await using file = await open(path, 'r');
  return await readRange(file, start, end);
}

export async function readRange(file: FileHandle, start: number, end: number): Promise<Buffer> {
  const { bytesRead, buffer } = await file.read(Buffer.alloc(end - start), 0, end - start, start);
  return buffer.subarray(0, bytesRead);
}
