/** Creates directories. */
import { mkdir, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isSystemError } from './errors.ts';

/**
 * Creates a directory and its missing parents. Node's `recursive` loops forever in file systems such as `/proc`, which
 * report ENOENT for a new entry of an existing directory.
 *
 * @returns the topmost created directory; undefined if nothing was missing
 * @throws a system error
 */
export async function makeDirectories(path: string, mode = 0o700): Promise<string | undefined> {
  try {
    return (await makeOne(path, mode)) ? path : undefined;
  } catch (error) {
    const parent = dirname(path);
    const isMissing = isSystemError(error, 'ENOENT');
    if (!isMissing || parent === path) throw error;
    const first = await makeDirectories(parent, mode);
    // the second failure is final
    const isNew = await makeOne(path, mode);
    return first ?? (isNew ? path : undefined);
  }
}

/** @returns false if the directory already exists */
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
