/** Checks that a directory is writable, and reads its free space. */
import { constants } from 'node:fs';
import { access, open, rm, stat, statfs } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { errorText } from '../errors.ts';

export type DirectoryState =
  | {
      readonly usable: true;
      /** False if the directory does not exist, but the gateway or the recorder can create it. */
      readonly exists: boolean;
      readonly freeBytes: number;
      readonly totalBytes: number;
      /** Number of further files that the file system can store; undefined if it has no limit. */
      readonly freeFiles: number | undefined;
    }
  | { readonly usable: false; readonly problem: string; readonly remedy: string };

const PROBE = Buffer.from('tailcast doctor\n');

/** Writes a small file, calls fsync, and removes the file. Does not create a missing directory. */
export async function directoryState(directory: string): Promise<DirectoryState> {
  try {
    const exists = await isDirectory(directory);
    const place = exists ? directory : await nearestDirectory(directory);
    if (exists) await writeProbe(directory);
    else await access(place, constants.W_OK);
    const { bavail, blocks, bsize, ffree, files } = await statfs(place);
    return {
      usable: true,
      exists,
      freeBytes: bavail * bsize,
      totalBytes: blocks * bsize,
      freeFiles: files === 0 ? undefined : ffree,
    };
  } catch (error) {
    return { usable: false, problem: errorText(error), remedy: remedyFor(error) };
  }
}

async function isDirectory(path: string): Promise<boolean> {
  try {
    if ((await stat(path)).isDirectory()) return true;
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return false;
    throw error;
  }
  throw Object.assign(new Error(`${path} is not a directory`), { code: 'ENOTDIR' });
}

async function nearestDirectory(path: string): Promise<string> {
  const parent = dirname(resolve(path));
  return (await isDirectory(parent)) ? parent : nearestDirectory(parent);
}

async function writeProbe(directory: string): Promise<void> {
  const path = join(directory, `.doctor-${process.pid}`);
  const file = await open(path, 'wx', 0o600);
  try {
    await file.writeFile(PROBE);
    await file.sync();
  } finally {
    await file.close();
    await rm(path, { force: true });
  }
}

function remedyFor(error: unknown): string {
  const uid = process.getuid?.();
  switch (codeOf(error)) {
    case 'EACCES':
    case 'EPERM':
      return `make user ID ${uid ?? '?'} the owner of the directory with chown, or set fsGroup in the pod`;
    case 'EROFS':
      return 'the file system is read-only: mount a volume, or use another directory';
    case 'ENOSPC':
    case 'EDQUOT':
      return 'free space, or use a directory on a larger volume';
    case 'ENOTDIR':
      return 'use a directory';
    default:
      return 'use a directory on a local disk that this user may write to';
  }
}

function codeOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}
