/** Creates directories, and replaces files. */
import { constants } from 'node:fs';
import { mkdir, open, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { isSystemError } from './errors.ts';

/**
 * Creates a directory and its missing parents. Node.js' `mkdir` with `recursive` loops forever in file systems such as
 * `/proc`, which report ENOENT for a new entry in an existing directory.
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
    // if the directory still cannot be created, the error is thrown
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

/** Makes the entries of a directory durable. */
export async function syncDirectory(directory: string): Promise<void> {
  await using handle = await open(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  await handle.sync();
}

/** Atomically and durably writes or replaces a file. Only the owner can read the file. */
export async function replaceFile(path: string, content: string | Uint8Array): Promise<void> {
  const draft = `${path}.part`;
  try {
    await rm(draft, { force: true });
    await writeFile(draft, content, { flag: 'wx', mode: 0o600, flush: true });
    await rename(draft, path);
  } catch (error) {
    await rm(draft, { force: true });
    throw error;
  }
  await syncDirectory(dirname(path));
}
