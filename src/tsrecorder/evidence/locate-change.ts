/** Compares a file with its seal, and locates the difference. */
import { createHash } from 'node:crypto';
import type { LineSeal, SealedBlock } from './line-seal.ts';

/** Reads a range of a file, or the complete file. */
export type ReadBytes = (range?: {
  readonly start: number;
  readonly end: number;
}) => AsyncIterable<Uint8Array>;

/** Location of the changed bytes. All bytes before and after this range are unchanged. */
export interface LocatedChange {
  /** Range in the current file; empty if bytes are only missing. */
  readonly start: number;
  readonly end: number;
  readonly firstLine: number;
  readonly lastLine: number;
  /** Current length of the file minus its sealed length. */
  readonly addedBytes: number;
}

const LINE_FEED = 0x0a;

/** Returns the location of the change, or undefined if the file matches its seal. */
export async function locateChange(
  seal: Pick<LineSeal, 'bytes' | 'blocks'>,
  read: ReadBytes,
): Promise<LocatedChange | undefined> {
  const { same, bytes } = await compareForward(seal.blocks, read());
  const start = bytesOf(seal.blocks.slice(0, same));
  if (same === seal.blocks.length && bytes === seal.bytes) return undefined;
  const end = await compareBackward(seal.blocks.slice(same), { start, end: bytes }, read);
  const before = await countLines(read({ start: 0, end: start }));
  const within = await countLines(read({ start, end }));
  return {
    start,
    end,
    firstLine: before + 1,
    lastLine: before + Math.max(1, within),
    addedBytes: bytes - seal.bytes,
  };
}

/** Returns the number of unchanged blocks at the start of the file, and the length of the file. */
async function compareForward(
  blocks: readonly SealedBlock[],
  chunks: AsyncIterable<Uint8Array>,
): Promise<{ readonly same: number; readonly bytes: number }> {
  let same = 0;
  let bytes = 0;
  let used = 0;
  let hash = createHash('sha256');
  let differs = false;
  for await (const chunk of chunks) {
    bytes += chunk.length;
    for (let start = 0; start < chunk.length && !differs;) {
      const block = blocks[same];
      if (block === undefined) break;
      const end = Math.min(chunk.length, start + block[0] - used);
      hash.update(chunk.subarray(start, end));
      used += end - start;
      start = end;
      if (used < block[0]) break;
      differs = hash.digest('hex') !== block[1];
      if (!differs) same += 1;
      hash = createHash('sha256');
      used = 0;
    }
  }
  return { same, bytes };
}

/** Returns the offset of the unchanged blocks at the end of the file. */
async function compareBackward(
  blocks: readonly SealedBlock[],
  range: { readonly start: number; readonly end: number },
  read: ReadBytes,
): Promise<number> {
  let end = range.end;
  for (const [length, digest] of blocks.toReversed()) {
    const start = end - length;
    if (start < range.start) break;
    const hash = createHash('sha256');
    for await (const chunk of read({ start, end })) hash.update(chunk);
    if (hash.digest('hex') !== digest) break;
    end = start;
  }
  return end;
}

async function countLines(chunks: AsyncIterable<Uint8Array>): Promise<number> {
  let lines = 0;
  for await (const chunk of chunks) {
    for (let at = chunk.indexOf(LINE_FEED); at >= 0; at = chunk.indexOf(LINE_FEED, at + 1)) lines += 1;
  }
  return lines;
}

function bytesOf(blocks: readonly SealedBlock[]): number {
  return blocks.reduce((sum, [bytes]) => sum + bytes, 0);
}
