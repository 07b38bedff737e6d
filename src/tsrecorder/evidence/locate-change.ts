/** Compares a file with its seal, and finds the place where it differs. */
import { createHash } from 'node:crypto';
import type { LineSeal, SealedBlock } from './line-seal.ts';

/** Bytes of a file, all of them or a range. */
export type ReadBytes = (range?: {
  readonly start: number;
  readonly end: number;
}) => AsyncIterable<Uint8Array>;

/** Where a file is no longer what was sealed. Everything before and after is as it was. */
export interface LocatedChange {
  /** In the file as it is; empty when bytes are only missing. */
  readonly start: number;
  readonly end: number;
  readonly firstLine: number;
  readonly lastLine: number;
  /** Length of the file less the length that was sealed. */
  readonly addedBytes: number;
}

const LINE_FEED = 0x0a;

/** @returns undefined when the file is what was sealed. */
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

/** How many blocks are as they were, from the first one on, and the length of the file. */
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

/** Where the blocks that are as they were, counted from the end, begin. */
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
