/** Directories that settings name. */
import { mkdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Makes a directory and the parents that are missing. Node's `recursive` tries again without end where the system says of a
 * new entry in a directory that it is not there, as `/proc` does, and keeps a thread busy with it.
 *
 * @returns the first one that was made, from above; undefined when nothing was missing
 * @throws a system error
 */
export async function makeDirectories(path: string, mode = 0o700): Promise<string | undefined> {
  try {
    return (await makeOne(path, mode)) ? path : undefined;
  } catch (error) {
    const parent = dirname(path);
    const isMissing = error instanceof Error && 'code' in error && error.code === 'ENOENT';
    if (!isMissing || parent === path) throw error;
    const first = await makeDirectories(parent, mode);
    // no third try
    const isNew = await makeOne(path, mode);
    return first ?? (isNew ? path : undefined);
  }
}

/** @returns false when it is there */
async function makeOne(path: string, mode: number): Promise<boolean> {
  try {
    await mkdir(path, { mode });
    return true;
  } catch (error) {
    const found = await stat(path).catch(() => undefined);
    if (found?.isDirectory() === true) return false;
    throw error;
  }
}
