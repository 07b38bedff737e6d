/**
 * File operations that make data durable: write all bytes, place a file without overwriting another file, and make a
 * directory entry survive a power failure.
 */
import { createHash } from 'node:crypto';
import { constants } from 'node:fs';
import { copyFile, link, open, rename, stat, statfs, unlink, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import { makeDirectories, syncDirectory } from '../../directories.ts';
import { errorReason, isSystemError, TailcastError } from '../../errors.ts';

/**
 * Calls `writev` until all bytes are written. The kernel may write fewer bytes per call, for example on a full disk.
 */
export async function writeAll(file: FileHandle, parts: readonly Uint8Array[]): Promise<void> {
  let rest: readonly Uint8Array[] = parts.filter((part) => part.length > 0);
  while (rest.length > 0) {
    // Pass at most 1024 buffers, which is IOV_MAX on Linux.
    const { bytesWritten } = await file.writev(rest.slice(0, 1024));
    rest = withoutLeading(rest, bytesWritten);
  }
}

/**
 * Returns a function that syncs directories. Concurrent calls for one directory share a sync: a caller waits for the
 * first sync that *starts* after its call.
 */
export function createDirectorySync(): (directory: string) => Promise<void> {
  const running = new Map<string, Promise<void>>();
  const queued = new Map<string, Promise<void>>();

  function start(directory: string): Promise<void> {
    const sync = syncDirectory(directory).finally(() => running.delete(directory));
    running.set(directory, sync);
    return sync;
  }

  return (directory) => {
    const current = running.get(directory);
    if (current === undefined) return start(directory);
    const next =
      queued.get(directory) ??
      current
        .catch(() => undefined)
        .then(() => {
          queued.delete(directory);
          return start(directory);
        });
    queued.set(directory, next);
    return next;
  };
}

/** Creates a directory and its parents, and makes each entry durable. */
export async function makeDirectory(directory: string): Promise<void> {
  const first = await makeDirectories(directory);
  if (first === undefined) return;
  for (let created = directory; ; created = dirname(created)) {
    await syncDirectory(dirname(created));
    if (created === first || created === dirname(created)) return;
  }
}

/** Writes a new file durably; the caller syncs the directory. Fails if the file exists. */
export async function writeDurableFile(path: string, parts: readonly Uint8Array[]): Promise<void> {
  await using file = await open(path, 'wx', 0o600);
  try {
    await writeAll(file, parts);
    await file.datasync();
  } catch (error) {
    await unlink(path).catch(() => undefined);
    throw error;
  }
}

/** Error codes of file systems that do not support a hard link. */
const NO_LINK = ['EXDEV', 'EPERM', 'ENOTSUP', 'EOPNOTSUPP', 'ENOSYS'] as const;

/**
 * Gives the durable file `source` a second name, atomically and without overwriting an existing file. If a hard link is
 * impossible, a durable, verified copy gets the name instead.
 *
 * @param linkFile creates a hard link
 * @throws a system error with code `EEXIST` if `target` exists
 */
export async function placeFile(source: string, target: string, linkFile = link): Promise<void> {
  try {
    await linkFile(source, target);
  } catch (error) {
    if (!isSystemError(error, ...NO_LINK)) throw error;
    const temporary = `${target}.part`;
    try {
      await copyDurably(source, temporary);
      await nameFile(temporary, target, linkFile);
    } finally {
      await removeFile(temporary);
    }
  }
}

async function copyDurably(source: string, target: string): Promise<void> {
  // An earlier attempt may have left a copy at this path. The path may also be a symbolic link, which must not be
  // followed.
  await removeFile(target);
  await copyFile(source, target, constants.COPYFILE_EXCL);
  await using copy = await open(target, 'r+');
  await copy.datasync();
  if (!(await haveSameContent(source, target))) {
    throw Object.assign(new Error('the copy differs from the original'), { code: 'EIO' });
  }
}

/**
 * Gives a file its final name. On a file system without hard links, the rename would replace a file that another
 * process creates with this name at the same moment. Recording keys are unique, so no other process uses the name.
 */
async function nameFile(file: string, target: string, linkFile: typeof link): Promise<void> {
  try {
    await linkFile(file, target);
  } catch (error) {
    if (!isSystemError(error, ...NO_LINK)) throw error;
    const taken = await stat(target).catch(() => undefined);
    if (taken !== undefined) throw Object.assign(new Error('the name is taken'), { code: 'EEXIST' });
    await rename(file, target);
  }
}

/** Returns true if two regular files have the same content. */
export async function haveSameContent(one: string, other: string): Promise<boolean> {
  const digest = await digestOf(one);
  return digest !== undefined && digest === (await digestOf(other));
}

/** Returns undefined for a named pipe or another special file, whose content may be endless. */
async function digestOf(path: string): Promise<string | undefined> {
  const hash = createHash('sha256');
  // The flags prevent blocking on a named pipe and following a symbolic link.
  const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK);
  if (!(await file.stat()).isFile()) {
    await file.close();
    return undefined;
  }
  const content: AsyncIterable<Uint8Array> = file.createReadStream({ highWaterMark: 262_144 });
  for await (const chunk of content) hash.update(chunk);
  return hash.digest('hex');
}

/** Deletes a file, if it exists. */
export async function removeFile(path: string): Promise<void> {
  try {
    await unlink(path);
  } catch (error) {
    if (!isSystemError(error, 'ENOENT')) throw error;
  }
}

/** Minimum number of free inodes. A session needs two inodes for its spool and three for the store. */
const MIN_FREE_FILES = 100;

/** Returns the free bytes of a directory, or 0 if it has almost no free inodes. @throws a system error */
export async function freeBytesIn(directory: string): Promise<number> {
  const { bavail, bsize, files, ffree } = await statfs(directory);
  // File systems without an inode limit report 0 for `files` and `ffree`.
  return files > 0 && ffree < MIN_FREE_FILES ? 0 : bavail * bsize;
}

/** Returns the error that an uploader gets if the disk fails. The text contains no paths of this machine. */
export function storageError(error: unknown): TailcastError {
  if (error instanceof TailcastError) return error;
  const reason = errorReason(error);
  const hasCode = error instanceof Error && 'code' in error && reason === error.message;
  return new TailcastError('STORE_FAILED', hasCode ? String(error.code) : reason, { cause: error });
}

function withoutLeading(parts: readonly Uint8Array[], count: number): readonly Uint8Array[] {
  let rest = count;
  for (const [index, part] of parts.entries()) {
    if (rest < part.length) return [part.subarray(rest), ...parts.slice(index + 1)];
    rest -= part.length;
  }
  return [];
}

/** Maximum number of copies that are kept of one damaged file. */
const MAX_DAMAGED = 100;

/** Makes a durable copy of a damaged file: `<path>.damaged`, or a name with a number if earlier copies exist. */
export async function keepDamaged(path: string): Promise<void> {
  for (let number = 1; number <= MAX_DAMAGED; number += 1) {
    const target = number === 1 ? `${path}.damaged` : `${path}.damaged-${number}`;
    try {
      await copyFile(path, target, constants.COPYFILE_EXCL);
      await using copy = await open(target, 'r+');
      await copy.sync();
      await syncDirectory(dirname(path));
      return;
    } catch (error) {
      if (!isSystemError(error, 'EEXIST')) throw error;
    }
  }
}
