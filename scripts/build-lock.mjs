// One command of a checkout builds at a time. Only Node's own modules may be imported here: `run.mjs` uses it in a fresh clone.
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
/** Error codes for a folder that exists already. Windows has more. */
const TAKEN = ['EEXIST', 'ENOTEMPTY', ...(process.platform === 'win32' ? ['EPERM', 'EACCES', 'EBUSY'] : [])];

/**
 * Waits until no other process has the lock and takes it. The lock is the folder `path`, with an empty file for each
 * process that needs it. A rename creates it complete. After all of these processes have exited, a waiting process
 * takes it over.
 *
 * @param onWait called once, with the processes waited for, when it is not free after a moment
 * @returns `hold(pid)`, for a child that works under the lock and may outlive this process, and `release()`
 * @throws Error when the folder cannot be made
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
  // Only files of exited processes are removed, never a lock that another process has taken meanwhile.
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

/** Removes these files, and the folder if it is then empty. */
function leave(path, names) {
  for (const name of names) rmSync(join(path, name), { force: true });
  try {
    rmdirSync(path);
  } catch {
    // the folder does not exist, or another process has taken it
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
 * Returns the id of a process and its start time if the OS reports it, because ids are reused. Undefined: it has
 * exited.
 */
function nameOf(pid) {
  if (existsSync('/proc/self/stat')) {
    try {
      // NOTE: the second field is a name in parentheses, which may contain any character
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
