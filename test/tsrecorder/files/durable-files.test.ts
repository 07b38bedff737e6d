import {
  mkdir,
  mkdtemp,
  open,
  readdir,
  readFile,
  readlink,
  writeFile,
  type FileHandle,
} from 'node:fs/promises';
import { execFileSync } from 'node:child_process';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import fc from 'fast-check';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import {
  createDirectorySync,
  haveSameContent,
  makeDirectory,
  placeFile,
  removeFile,
  freeBytesIn,
  storageError,
  writeAll,
  writeDurableFile,
} from '../../../src/tsrecorder/files/durable-files.ts';
import { isSystemError } from '../../../src/errors.ts';

let directory = '';
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tsrecorder-files-'));
});

/** Counts the syncs of `work`, because only a power failure would reveal a missing sync. */
async function syncsOf(work: () => Promise<unknown>): Promise<{ contents: number; folders: number }> {
  const handle = await open(directory);
  const prototype = Object.getPrototypeOf(handle) as FileHandle;
  await handle.close();
  const contents = vi.spyOn(prototype, 'datasync');
  const folders = vi.spyOn(prototype, 'sync');
  try {
    await work();
    return { contents: contents.mock.calls.length, folders: folders.mock.calls.length };
  } finally {
    contents.mockRestore();
    folders.mockRestore();
  }
}

describe('durable files', () => {
  it('are created only under a free name', async () => {
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

  it('are copied on a file system without hard links, and still only under a free name', async () => {
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

  it.runIf(process.platform === 'linux')('leave no file open after they are copied', async () => {
    const source = join(directory, 'source');
    await writeDurableFile(source, [Buffer.from('content')]);
    const noLinks = async (): Promise<never> => {
      throw Object.assign(new Error('operation not permitted'), { code: 'EPERM' });
    };
    await placeFile(source, join(directory, 'target'), noLinks);
    const open = await readdir('/proc/self/fd');
    const names = await Promise.all(open.map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')));
    expect(names.filter((name) => name.startsWith(directory))).toEqual([]);
  });

  it('are copied only if the file system has no hard links', async () => {
    const source = join(directory, 'source');
    await writeDurableFile(source, [Buffer.from('content')]);
    const denied = async (): Promise<never> => {
      throw Object.assign(new Error('permission denied'), { code: 'EACCES' });
    };
    await expect(placeFile(source, join(directory, 'target'), denied)).rejects.toMatchObject({
      code: 'EACCES',
    });
    expect(await readdir(directory)).toEqual(['source']);
  });

  // simulates a file whose content differs on each read
  it.runIf(process.platform === 'linux')('get no name if the copy differs from the original', async () => {
    const noLinks = async (): Promise<never> => {
      throw Object.assign(new Error('cross-device link'), { code: 'EXDEV' });
    };
    await expect(
      placeFile('/proc/sys/kernel/random/uuid', join(directory, 'target'), noLinks),
    ).rejects.toMatchObject({ code: 'EIO' });
    expect(await readdir(directory)).toEqual([]);
  });

  it('have equal content if every byte is equal', async () => {
    const [one, same, other] = ['one', 'same', 'other'].map((name) => join(directory, name));
    await writeFile(one!, 'x'.repeat(300_000));
    await writeFile(same!, 'x'.repeat(300_000));
    await writeFile(other!, `${'x'.repeat(299_999)}y`);
    expect(await haveSameContent(one!, same!)).toBe(true);
    expect(await haveSameContent(one!, other!)).toBe(false);
    const [pipe, empty] = [`${one!}.pipe`, `${one!}.empty`];
    execFileSync('mkfifo', [pipe]);
    await writeFile(empty, '');
    expect(await haveSameContent(pipe, empty)).toBe(false);
  });

  it('are removed once, and a missing file is no error', async () => {
    const path = join(directory, 'file');
    await writeFile(path, 'x');
    await removeFile(path);
    expect(await readdir(directory)).toEqual([]);
    await removeFile(path);
    await expect(removeFile(directory)).rejects.toMatchObject({ syscall: 'unlink' });
  });

  it('are in a folder with free space; a missing folder is an error', async () => {
    expect(await freeBytesIn(directory)).toBeGreaterThan(0);
    await expect(freeBytesIn(join(directory, 'missing'))).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('are written completely although the kernel accepts fewer bytes at a time', async () => {
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

  it('get missing parent folders', async () => {
    const deep = join(directory, 'a', 'b', 'c');
    await makeDirectory(deep);
    await makeDirectory(deep);
    expect(await readdir(join(directory, 'a', 'b'))).toEqual(['c']);
  });

  it('share the sync of a folder, but not a sync that started before they were created', async () => {
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

describe('the syncs of an operation', () => {
  const noLinks = async (): Promise<never> => {
    throw Object.assign(new Error('operation not permitted'), { code: 'EPERM' });
  };

  it('include the content of a new file, and of a copy before it gets its name', async () => {
    const source = join(directory, 'source');
    expect(await syncsOf(() => writeDurableFile(source, [Buffer.from('x')]))).toMatchObject({ contents: 1 });
    expect(await syncsOf(() => placeFile(source, join(directory, 'copy'), noLinks))).toMatchObject({
      contents: 1,
    });
  });

  it('include the parent of every new folder', async () => {
    const deep = join(directory, 'a', 'b', 'c');
    expect(await syncsOf(() => makeDirectory(deep))).toMatchObject({ folders: 3 });
    expect(await syncsOf(() => makeDirectory(deep))).toMatchObject({ folders: 0 });
    expect(await syncsOf(() => makeDirectory(join(deep, 'd')))).toMatchObject({ folders: 1 });
  });

  it('leave no file behind after an error', async () => {
    const path = join(directory, 'broken');
    const odd = [null] as unknown as Uint8Array[];
    await expect(writeDurableFile(path, odd)).rejects.toThrow(TypeError);
    expect(await readdir(directory)).toEqual([]);
  });
});

describe('an error of the OS', () => {
  const systemError = (code: unknown): Error => Object.assign(new Error('text with /a/path'), { code });

  it('is known by its code', () => {
    expect(isSystemError(systemError('ENOSPC'), 'ENOENT', 'ENOSPC')).toBe(true);
    expect(isSystemError(systemError('ENOSPC'), 'ENOENT')).toBe(false);
    expect(isSystemError(systemError(5), 'ENOENT')).toBe(false);
    expect(isSystemError(new Error('ENOENT'), 'ENOENT')).toBe(false);
    expect(isSystemError({ code: 'ENOENT' }, 'ENOENT')).toBe(false);
    expect(isSystemError(undefined, 'ENOENT')).toBe(false);
  });

  it.each([
    [systemError('ENOSPC'), 'the disk is full'],
    [systemError('EDQUOT'), 'the disk quota is used up'],
    [systemError('EFBIG'), 'the file is too large'],
    [systemError('EIO'), 'the disk reported an error'],
    [systemError('ESTRANGE'), 'ESTRANGE'],
  ])('%o is reported to an uploader without paths', (error, detail) => {
    const reported = storageError(error);
    expect(reported).toBeInstanceOf(TailcastError);
    expect(reported.code).toBe('STORE_FAILED');
    expect(reported.message).toContain(detail);
    expect(reported.message).not.toContain('/a/path');
    expect(reported.cause).toBe(error);
  });

  it('without a code is reported with its message', () => {
    expect(storageError(new Error('odd')).message).toContain('odd');
  });
});
