/**
 * Access to the files of a store directory. Other programs may write to the directory. Symbolic links below the
 * directory are not followed, and named pipes, sockets and devices are never read. Only the store directory itself may
 * be a link.
 *
 * Another program may replace a folder by a link between a check and the use of a path. On Linux, such a link cannot
 * redirect a read, a write or a removal: the kernel reports the path of an open file, and files are written and
 * removed relative to an open directory. On other systems, the folders of the path are checked only after the file was
 * opened.
 */
import { randomUUID } from 'node:crypto';
import { constants, readlinkSync, type Stats } from 'node:fs';
import { lstat, open, realpath, rename, type FileHandle } from 'node:fs/promises';
import { dirname, join, relative, sep } from 'node:path';
import { isSystemError, TailcastError } from '../../errors.ts';

/** Flags for reading. Without O_NONBLOCK, opening a named pipe without a writer would wait forever. */
const READ_FLAGS = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

const FOLDER_FLAGS = constants.O_RDONLY | constants.O_DIRECTORY;
const NO_DIRECTORY = 'a folder of the store is not a directory';

/** Error codes of the kernel if a file does not exist. */
const ABSENT = ['ENOENT', 'ENOTDIR', 'ENAMETOOLONG'] as const;

/** Maximum number of remembered paths that were already reported. */
const MAX_REPORTED = 1000;

/** An open file and its status. */
interface OpenFile {
  readonly file: FileHandle;
  readonly found: Stats;
}

export type DiskFiles = ReturnType<typeof createDiskFiles>;

/** @param onRefused called once for each skipped name, relative to `directory` */
export function createDiskFiles(directory: string, onRefused: (name: string) => void) {
  const reported = new Set<string>();
  const heldPath = createHeldPath(directory, (path) => isInside(path));

  function report(path: string): void {
    if (reported.has(path) || reported.size >= MAX_REPORTED) return;
    reported.add(path);
    onRefused(relative(directory, path));
  }

  async function isInside(path: string): Promise<boolean> {
    let folder = directory;
    for (const name of relative(directory, dirname(path)).split(sep)) {
      if (name === '') continue;
      folder = join(folder, name);
      const found = await statLink(folder);
      if (found === undefined) return true;
      if (found.isDirectory()) continue;
      report(folder);
      return false;
    }
    return true;
  }

  async function inFolder<T>(folder: string, use: (held: string) => Promise<T>): Promise<T> {
    await using handle = await openFolder(folder, folder === directory);
    const held = handle === undefined ? undefined : await heldPath(handle, folder);
    if (held !== undefined) return await use(held);
    report(folder);
    throw new TailcastError('STORE_FAILED', NO_DIRECTORY);
  }

  async function openChecked(path: string): Promise<OpenFile | undefined> {
    const file = await openWithoutWaiting(path);
    if (file === undefined) return undefined;
    if (file === 'refused') {
      report(path);
      return undefined;
    }
    try {
      const found = await file.stat();
      if (found.isFile()) {
        if ((await heldPath(file, path)) !== undefined) return { file, found };
        // If a folder of the path is a link, this call reports it.
        await isInside(path);
      } else report(path);
    } catch (error) {
      await file.close();
      throw error;
    }
    await file.close();
    return undefined;
  }

  return {
    /** Opens a regular file for reading. @returns undefined if no regular file exists */
    open: openChecked,
    /** Returns the status of a regular file, or undefined if no regular file exists. */
    async stat(path: string): Promise<Stats | undefined> {
      const found = await statLink(path);
      if (found === undefined || !(await isInside(path))) return undefined;
      if (found.isFile()) return found;
      report(path);
      return undefined;
    },
    /** Returns true if no folder between the store directory and `path` is a symbolic link. */
    isInside,
    /**
     * Calls `use` with a safe path of `folder`. The path refers to the same directory even if another program replaces
     * a folder by a link.
     *
     * @throws TailcastError `STORE_FAILED` if a folder of the path is a symbolic link
     * @throws a system error if `folder` does not exist
     */
    inFolder,
    /** Checks a path. @throws TailcastError `STORE_FAILED` if {@link isInside} is false */
    async assertInside(path: string): Promise<void> {
      if (!(await isInside(path))) throw new TailcastError('STORE_FAILED', NO_DIRECTORY);
    },
    /**
     * Moves a link, pipe or other special file at `path` to a hidden name, so that it does not prevent the recorder
     * from writing there.
     *
     * @returns true if a regular file is at `path`
     */
    async putAside(path: string): Promise<boolean> {
      const found = await statLink(path);
      if (found === undefined) return false;
      if (found.isFile()) return true;
      report(path);
      await rename(path, join(dirname(path), `.${randomUUID()}.refused`));
      return false;
    },
    /** Reports a path that is not a regular file, once for each path. */
    report,
  };
}

/** Opens a folder. @returns undefined for a link or a file. @throws a system error if it does not exist */
async function openFolder(folder: string, mayBeLink: boolean): Promise<FileHandle | undefined> {
  try {
    return await open(folder, mayBeLink ? FOLDER_FLAGS : FOLDER_FLAGS | constants.O_NOFOLLOW);
  } catch (error) {
    if (isSystemError(error, 'ELOOP', 'ENOTDIR')) return undefined;
    throw error;
  }
}

/**
 * Creates a function that returns a safe path of an open file, or undefined if the file is not at `path` below
 * `directory`. The result refers to the file even after a rename. If the OS does not report the path of an open file,
 * the result is `path`, after a check of its folders.
 */
function createHeldPath(
  directory: string,
  isInside: (path: string) => Promise<boolean>,
): (file: FileHandle, path: string) => Promise<string | undefined> {
  /** Path of the store directory without links; undefined before the first use. */
  let real: string | undefined;
  return async ({ fd }, path) => {
    const held = `/proc/self/fd/${fd}`;
    const actual = pathOfOpen(held);
    if (actual === undefined) return (await isInside(path)) ? path : undefined;
    const below = relative(directory, path);
    if (real !== undefined && actual === join(real, below)) return held;
    // The store directory may be a link that was changed.
    real = await realpath(directory);
    return actual === join(real, below) ? held : undefined;
  };
}

/** Returns the path of an open file; undefined if the OS does not report it. Reads no disk. */
function pathOfOpen(held: string): string | undefined {
  try {
    return readlinkSync(held);
  } catch {
    // Only Linux reports the path of an open file.
    return undefined;
  }
}

async function openWithoutWaiting(path: string): Promise<FileHandle | 'refused' | undefined> {
  try {
    return await open(path, READ_FLAGS);
  } catch (error) {
    if (isSystemError(error, ...ABSENT)) return undefined;
    // ELOOP means that the path is a link. ENXIO means that the path is a socket, or a device without a driver.
    if (isSystemError(error, 'ELOOP', 'ENXIO')) return 'refused';
    throw error;
  }
}

async function statLink(path: string): Promise<Stats | undefined> {
  try {
    return await lstat(path);
  } catch (error) {
    if (isSystemError(error, ...ABSENT)) return undefined;
    throw error;
  }
}
