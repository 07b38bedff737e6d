import { randomBytes } from 'node:crypto';
import { mkdtemp, open, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { readFileRange } from '../../../src/tsrecorder/files/file-range.ts';

const PIECE = 64 * 1024;
let folder = '';

beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'file-range-'));
});

describe('a range of a file', () => {
  it.each([
    [0, 0, Infinity, []],
    [10, 0, Infinity, [10]],
    [10, 3, 7, [4]],
    [10, 3, 3, []],
    [10, 7, 3, []],
    [10, 8, 20, [2]],
    [10, 11, 20, []],
    [PIECE, 0, PIECE, [PIECE]],
    [PIECE + 1, 0, PIECE + 1, [PIECE, 1]],
    [3 * PIECE, 1, 3 * PIECE - 1, [PIECE, PIECE, PIECE - 2]],
  ])('of %i bytes: [%i, %i)', async (bytes, start, end, pieces) => {
    const content = randomBytes(bytes);
    const path = join(folder, 'file');
    await writeFile(path, content);
    await using file = await open(path);
    const read = await Array.fromAsync(readFileRange(file, { start, end }));
    expect(read.map(({ length }) => length)).toEqual(pieces);
    expect(Buffer.concat(read)).toEqual(content.subarray(start, Math.max(start, end)));
  });
});
