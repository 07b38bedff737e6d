// A lock that permits only one build at a time in a checkout. Import only built-in modules of Node here, because
// `run.mjs` uses this file before `npm ci`.
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmdirSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';

const LOOK_MS = 100;
const SAY_AFTER_MS = 1000;
/** Error codes of a rename to a folder that exists already. Windows reports additional codes. */
const TAKEN = ['EEXIST', 'ENOTEMPTY', ...(process.platform === 'win32' ? ['EPERM', 'EACCES', 'EBUSY'] : [])];

/**
 * Waits until no other process has the lock, then takes it. The lock is the folder `path`, which contains an empty file
 * for each process that works under the lock. A rename creates the folder, so that the folder always contains these
 * files. If all of these processes have exited, a waiting process takes the lock over.
 *
 * @param onWait called once with the processes that have the lock, if the lock is not free after a short time
 * @returns `release()`, and `hold(pid)`, which adds a child process to the lock, because the child may outlive this
 *   process
 * @throws Error if the folder cannot be created
 */
export async function takeLock(path, onWait) {
  const mine = [nameOf(process.pid)];
  const begun = performance.now();
  let said = false;
  while (!tryToTake(path, mine[0])) {
    if (!said && performance.now() - begun > SAY_AFTER_MS) {
      said = true;
      onWait(entries(path).filter(isAlive).map(pidOf));
    }
    await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
  }
  return {
    hold(pid) {
      const name = nameOf(pid);
      if (name === undefined) return;
      writeFileSync(join(path, name), '');
      mine.push(name);
    },
    release() {
      leave(path, mine);
    },
  };
}

function tryToTake(path, name) {
  // Only the files of exited processes are removed, so this removal does not release a lock that another process has
  // taken in the meantime.
  const held = entries(path);
  const left = held.filter((entry) => !isAlive(entry));
  if (left.length === held.length) leave(path, left);
  if (existsSync(path)) return false;
  const made = `${path}.${name}`;
  mkdirSync(made, { recursive: true });
  writeFileSync(join(made, name), '');
  try {
    renameSync(made, path);
    return true;
  } catch (error) {
    rmSync(made, { recursive: true, force: true });
    if (TAKEN.includes(error.code)) return false;
    throw error;
  }
}

/** Removes files from the lock, and the lock itself if it is empty afterwards. */
function leave(path, names) {
  for (const name of names) rmSync(join(path, name), { force: true });
  try {
    rmdirSync(path);
  } catch {
    // The folder does not exist any more, or it contains files of another process.
  }
}

function entries(path) {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}

function pidOf(entry) {
  return Number.parseInt(entry, 10);
}

function isAlive(entry) {
  return nameOf(pidOf(entry)) === entry;
}

/**
 * Returns a name for a process: its id, and its start time if the OS reports it, because ids are reused. Returns
 * undefined if the process has exited.
 */
function nameOf(pid) {
  if (existsSync('/proc/self/stat')) {
    try {
      // NOTE: the second field is the name of the program in parentheses, which may contain any character.
      const [state, ...rest] = readFileSync(`/proc/${pid}/stat`, 'latin1')
        .replace(/^.*\) /s, '')
        .split(' ');
      return state === 'Z' || state === 'X' ? undefined : `${pid}-${rest[18]}`;
    } catch {
      return undefined;
    }
  }
  try {
    process.kill(pid, 0);
  } catch (error) {
    if (error.code !== 'EPERM') return undefined;
  }
  return `${pid}-`;
}
