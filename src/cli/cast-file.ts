/** A cast in a local file of the user. */
import { createReadStream } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import type { CastBytes } from '../screen/cast-lines.ts';
import { readTextLines } from '../wire/lines.ts';
import { MAX_LINE_BYTES } from './archive.ts';

export interface CastFile {
  readonly lines: () => AsyncIterable<string>;
  readonly bytes: CastBytes;
  readonly close: () => Promise<void>;
}

/** Opens a file. @returns undefined if there is no such file */
export async function openCastFile(path: string): Promise<CastFile | undefined> {
  if ((await stat(path).catch(() => undefined))?.isFile() !== true) return undefined;
  const file = await open(path);
  const { size } = await file.stat();
  return {
    lines: () => readTextLines(createReadStream(path), MAX_LINE_BYTES),
    bytes: {
      bytes: size,
      async read(start, end) {
        const block = Buffer.alloc(end - start);
        const { bytesRead } = await file.read(block, 0, block.length, start);
        return block.subarray(0, bytesRead);
      },
    },
    close: () => file.close(),
  };
}
