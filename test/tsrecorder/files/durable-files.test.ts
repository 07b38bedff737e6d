import { mkdir, mkdtemp, open, readdir, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  createDirectorySync,
  makeDirectory,
  placeFile,
  writeAll,
  writeDurableFile,
} from '../../../src/tsrecorder/files/durable-files.ts';

const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-files-'));

describe('durable files', () => {
  it('are placed under a free name only', async () => {
    const source = join(directory, 'source');
    const target = join(directory, 'target');
    await writeDurableFile(source, [Buffer.from('new')]);
    await writeFile(target, 'old');
    await expect(placeFile(source, target)).rejects.toMatchObject({ code: 'EEXIST' });
    expect(await readFile(target, 'utf8')).toBe('old');
    await placeFile(source, `${target}-2`);
    expect(await readFile(`${target}-2`, 'utf8')).toBe('new');
    await expect(writeDurableFile(source, [])).rejects.toMatchObject({ code: 'EEXIST' });
    expect(await readFile(source, 'utf8')).toBe('new');
  });

  it('are placed by a copy on a file system without hard links, and still under a free name only', async () => {
    const noLinks = async (): Promise<never> => {
      throw Object.assign(new Error('operation not permitted'), { code: 'EPERM' });
    };
    const source = join(directory, 'unlinkable');
    const target = join(directory, 'copied');
    await writeDurableFile(source, [Buffer.from('content')]);
    await placeFile(source, target, noLinks);
    expect(await readFile(target, 'utf8')).toBe('content');
    expect(await readFile(source, 'utf8')).toBe('content');
    await writeFile(target, 'old');
    await expect(placeFile(source, target, noLinks)).rejects.toMatchObject({ code: 'EEXIST' });
    expect(await readFile(target, 'utf8')).toBe('old');
    expect((await readdir(directory)).filter((name) => name.endsWith('.part'))).toEqual([]);
  });

  it('are written whole when the kernel takes less at a time', async () => {
    const file = await open(join(directory, 'partial'), 'wx+');
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.uint8Array({ maxLength: 20 }), { maxLength: 20 }),
        fc.integer({ min: 1, max: 7 }),
        async (parts, most) => {
          const written: Buffer[] = [];
          const stingy = {
            async writev(buffers: readonly Uint8Array[]) {
              const taken = Buffer.concat(buffers).subarray(0, most);
              written.push(taken);
              return { bytesWritten: taken.length, buffers };
            },
          };
          await writeAll(Object.assign(Object.create(file), stingy), parts);
          expect(Buffer.concat(written)).toEqual(Buffer.concat(parts));
        },
      ),
    );
    await file.close();
  });

  it('have folders that are made with their parents', async () => {
    const deep = join(directory, 'a', 'b', 'c');
    await makeDirectory(deep);
    await makeDirectory(deep);
    expect(await readdir(join(directory, 'a', 'b'))).toEqual(['c']);
  });

  it('share the sync of a folder, but never one that had begun before', async () => {
    const folder = join(directory, 'synced');
    await mkdir(folder);
    const sync = createDirectorySync();
    const first = sync(folder);
    const second = sync(folder);
    const third = sync(folder);
    expect(second).not.toBe(first);
    expect(third).toBe(second);
    await Promise.all([first, second, third]);
    await expect(sync(join(directory, 'missing'))).rejects.toMatchObject({ code: 'ENOENT' });
    await sync(folder);
  });
});
