/**
 * Where a recorder has its spool when nobody names a place: beside the store and not in it, so that whoever may write to the
 * one need not be able to write to the other.
 *
 * ```
 * /data/recordings/…          the store
 * /data/recordings.spool/…    the spool
 * /data/recordings/.spool/…   where it was before, and is where it cannot be beside
 * ```
 */
import { readFile, readdir, realpath, rename, stat } from 'node:fs/promises';
import { dirname, join, resolve } from 'node:path';
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import { isSystemError, makeDirectory, syncDirectory } from '../files/durable-files.ts';
import { assertUnowned } from './spool-lock.ts';

export interface SpoolPlace {
  readonly directory: string;
  /** A spool inside the store that could not be taken over, because there is one beside as well. */
  readonly left: string | undefined;
}

/** What keeps anything from being made beside the store. */
const NOT_BESIDE = ['EACCES', 'EPERM', 'EROFS', 'EXDEV', 'EBUSY'] as const;
/** Of the second and any further process of a recorder that had several. */
const PROCESS_FOLDER = /^worker-\d+$/;

/** @returns where the spool of the store in `directory` is by default. */
export function spoolBeside(directory: string): string {
  return `${resolve(directory)}.spool`;
}

/** @returns where it was by default, and is on volumes that hold nothing but the store. */
export function spoolInside(directory: string): string {
  return join(directory, '.spool');
}

/** @returns what the further processes of a recorder of an earlier version have left in its spool. */
export async function processSpools(spool: string): Promise<readonly string[]> {
  const names = await readdir(spool).catch(() => []);
  return names.filter((name) => PROCESS_FOLDER.test(name)).map((name) => join(spool, name));
}

/**
 * Finds or makes the place, and brings there what an earlier version has left inside the store.
 *
 * @throws TailcastError `CONFIG_INVALID` when a process that lives has the spool inside the store.
 */
export async function placeSpool(directory: string, log: Pick<Logger, 'info' | 'warn'>): Promise<SpoolPlace> {
  const beside = spoolBeside(directory);
  const inside = spoolInside(directory);
  await makeDirectory(directory);
  if (!(await isDirectory(beside))) {
    const refusal = await takePlace({ directory, beside, inside });
    if (refusal !== undefined) {
      log.warn(
        { spool: inside, reason: refusal },
        'the spool is inside the store; name another place with --spool',
      );
      return { directory: inside, left: undefined };
    }
  }
  if (!(await isDirectory(inside))) return { directory: beside, left: undefined };
  log.info({ spool: inside }, 'a spool inside the store is settled');
  return { directory: beside, left: inside };
}

/** @returns why the spool cannot be beside the store. */
async function takePlace(place: {
  readonly directory: string;
  readonly beside: string;
  readonly inside: string;
}): Promise<string | undefined> {
  const { directory, beside, inside } = place;
  // what is beside a volume may be gone with the container
  if (await isVolume(directory)) return 'the store is a volume of its own';
  try {
    if (await isDirectory(inside)) await moveSpool(inside, beside);
    else await makeDirectory(beside);
    return undefined;
  } catch (error) {
    if (isSystemError(error, ...NOT_BESIDE)) return errorText(error);
    throw error;
  }
}

/** In one step; of several processes that want the same, one does it. */
async function moveSpool(from: string, to: string): Promise<void> {
  // no process of the version before may be at it
  for (const folder of [from, ...(await processSpools(from))]) await assertUnowned(folder);
  try {
    await rename(from, to);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT', 'ENOTEMPTY', 'EEXIST')) throw error;
  }
  await syncDirectory(dirname(to));
  await syncDirectory(dirname(from));
}

async function isVolume(directory: string): Promise<boolean> {
  const path = await realpath(directory);
  const [own, parent] = await Promise.all([stat(path), stat(dirname(path))]);
  if (own.dev !== parent.dev) return true;
  // Linux: a folder of the same file system that is mounted here
  const mounts = await readFile('/proc/self/mountinfo', 'utf8').catch(() => '');
  return mounts.split('\n').some((line) => line.split(' ')[4] === path);
}

async function isDirectory(path: string): Promise<boolean> {
  return (await stat(path).catch(() => undefined))?.isDirectory() === true;
}
