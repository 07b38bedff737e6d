/**
 * Finds the spool directory if `--spool` is not set. The directory is next to the store and not inside, so that write
 * access to the store does not give write access to the spool.
 *
 * ```
 * /data/recordings/…          the store
 * /data/recordings.spool/…    the spool
 * /data/recordings/.spool/…   the spool, if nothing can be created next to the store
 * ```
 */
import { readFile, realpath, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { errorText, isSystemError } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import { makeDirectory } from '../files/durable-files.ts';

/** Error codes which mean that the recorder cannot create a directory next to the store. */
const CREATE_DENIED = ['EACCES', 'EPERM', 'EROFS', 'EXDEV', 'EBUSY'] as const;

/** Returns the default spool directory of the store in `directory`. */
export function defaultSpoolOf(directory: string): string {
  return `${resolve(directory)}.spool`;
}

/** Returns the spool directory of a store whose directory is a mounted volume. */
export function spoolInside(directory: string): string {
  return join(directory, '.spool');
}

/**
 * Creates the store directory `directory`, and the spool directory next to it if possible. Returns the spool directory.
 */
export async function placeSpool(directory: string, log: Pick<Logger, 'warn'>): Promise<string> {
  const beside = defaultSpoolOf(directory);
  await makeDirectory(directory);
  const reason = (await isDirectory(beside)) ? undefined : await createNextTo(directory, beside);
  if (reason === undefined) return beside;
  const inside = spoolInside(directory);
  log.warn({ spool: inside, reason }, 'the spool is inside the store; name another directory with --spool');
  return inside;
}

/** Creates the spool directory next to the store. @returns the reason why that is impossible, or undefined */
async function createNextTo(directory: string, beside: string): Promise<string | undefined> {
  // A directory next to a mounted volume may be lost with the container.
  if (await isVolume(directory)) return 'the store is a volume of its own';
  try {
    await makeDirectory(beside);
    return undefined;
  } catch (error) {
    if (isSystemError(error, ...CREATE_DENIED)) return errorText(error);
    throw error;
  }
}

async function isVolume(directory: string): Promise<boolean> {
  const path = await realpath(directory);
  const [own, parent] = await Promise.all([stat(path), stat(dirname(path))]);
  if (own.dev !== parent.dev) return true;
  // On Linux, a mounted directory may also belong to the same file system as its parent.
  const mounts = await readFile('/proc/self/mountinfo', 'utf8').catch(() => '');
  return mounts.split('\n').some((line) => line.split(' ')[4] === path);
}

async function isDirectory(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isDirectory() === true;
}
