import { mkdtemp, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { makeDirectories } from '../src/directories.ts';

const scratch = (): Promise<string> => mkdtemp(join(tmpdir(), 'directories-'));

describe('a directory that a setting names', () => {
  it('is made with the parents that are missing, and the first of them is told', async () => {
    const root = await scratch();
    const deep = join(root, 'a', 'b', 'c');
    expect(await makeDirectories(deep, 0o750)).toBe(join(root, 'a'));
    for (const path of [join(root, 'a'), deep]) expect((await stat(path)).mode & 0o7777).toBe(0o750);
    expect(await makeDirectories(deep)).toBeUndefined();
    expect(await makeDirectories(join(deep, 'd'))).toBe(join(deep, 'd'));
    expect((await stat(join(deep, 'd'))).mode & 0o7777).toBe(0o700);
  });

  it('may be made by several at once', async () => {
    const root = await scratch();
    const deep = join(root, 'a', 'b', 'c');
    await Promise.all(Array.from({ length: 20 }, () => makeDirectories(deep)));
    expect((await stat(deep)).isDirectory()).toBe(true);
  });

  it('may be relative', async () => {
    expect(await makeDirectories('.')).toBeUndefined();
  });

  it('is an error where a file stands in the way', async () => {
    const root = await scratch();
    await writeFile(join(root, 'file'), '');
    await expect(makeDirectories(join(root, 'file'))).rejects.toMatchObject({ code: 'EEXIST' });
    await expect(makeDirectories(join(root, 'file', 'a', 'b'))).rejects.toMatchObject({ code: 'ENOTDIR' });
  });

  it('is an error where the system takes no new entries, and not tried for ever', async () => {
    await expect(makeDirectories('/proc/nothere')).rejects.toMatchObject({ code: 'ENOENT' });
    await expect(makeDirectories('/proc/nothere/state')).rejects.toMatchObject({ code: 'ENOENT' });
  });

  it('is an error below a link that leads nowhere', async () => {
    const root = await scratch();
    await symlink(join(root, 'gone'), join(root, 'link'));
    await expect(makeDirectories(join(root, 'link', 'b'))).rejects.toMatchObject({ code: 'EEXIST' });
  });
});
