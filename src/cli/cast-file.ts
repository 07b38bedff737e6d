/** A cast in a local file of the user. */
import { createReadStream } from 'node:fs';
import { open, readFile, stat } from 'node:fs/promises';
import type { CastBytes } from '../screen/cast-lines.ts';
import { castFromVersion1, isVersion1, MAX_VERSION1_BYTES } from '../wire/asciicast/version1.ts';
import { readTextLines } from '../wire/lines.ts';
import { MAX_LINE_BYTES } from './archive.ts';

export interface CastFile {
  readonly lines: () => AsyncIterable<string>;
  readonly bytes: CastBytes;
  readonly close: () => Promise<void>;
}

const BEGINNING_BYTES = 4096;

/**
 * Opens a file in any version of asciicast.
 *
 * @returns undefined if there is no such file
 * @throws WireError for a damaged file in version 1
 */
export async function openCastFile(path: string): Promise<CastFile | undefined> {
  if ((await stat(path).catch(() => undefined))?.isFile() !== true) return undefined;
  const file = await open(path);
  const { size } = await file.stat();
  const read = async (start: number, end: number): Promise<Uint8Array> => {
    const block = Buffer.alloc(end - start);
    const { bytesRead } = await file.read(block, 0, block.length, start);
    return block.subarray(0, bytesRead);
  };
  const beginning = Buffer.from(await read(0, Math.min(size, BEGINNING_BYTES))).toString();
  if (size > MAX_VERSION1_BYTES || !isVersion1(beginning)) {
    return {
      lines: () => readTextLines(createReadStream(path), MAX_LINE_BYTES),
      bytes: { bytes: size, read },
      close: () => file.close(),
    };
  }
  await file.close();
  const cast = Buffer.from(castFromVersion1(await readFile(path, 'utf8')));
  return {
    async *lines() {
      yield* cast.toString().split('\n').slice(0, -1);
    },
    bytes: { bytes: cast.length, read: async (start, end) => cast.subarray(start, end) },
    close: async () => undefined,
  };
}
