import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';

const POLL_MS = 250;
/**
 * Maximum time in milliseconds for which one process may try to remove the lock of a dead owner. The removal takes only
 * microseconds.
 */
const STEAL_LIMIT_MS = 10_000;

/**
 * Acquires a lock file that names its owner, so that the lock of a killed process can be taken over.
 * @param path the file; its folder is created
 * @param onWait called once with the owner's process id if another process has the lock
 * @returns a function that releases the lock
 */
export async function acquireLock(path: string, onWait: (pid: number) => void): Promise<() => void> {
  mkdirSync(dirname(path), { recursive: true });
  const mine = `${process.pid} ${startTimeOf(process.pid) ?? 0}\n`;
  let waiting = false;
  for (;;) {
    if (createExclusively(path, mine)) return () => rmSync(path, { force: true });
    const owner = readOwner(path);
    if (owner !== undefined && startTimeOf(owner.pid) !== owner.startTime) {
      steal(path, owner.text);
      continue;
    }
    if (owner !== undefined && !waiting) {
      waiting = true;
      onWait(owner.pid);
    }
    await delay(POLL_MS);
  }
}

function createExclusively(path: string, text: string): boolean {
  try {
    writeFileSync(path, text, { flag: 'wx' });
    return true;
  } catch (error) {
    if (codeOf(error) === 'EEXIST') return false;
    throw error;
  }
}

/** Removes a lock if its owner is dead. Only one process at a time may check and remove the lock. */
function steal(path: string, seen: string): void {
  const right = `${path}.steal`;
  if (!createExclusively(right, '')) {
    if (ageMs(right) > STEAL_LIMIT_MS) rmSync(right, { force: true });
    return;
  }
  try {
    if (readOwner(path)?.text === seen) rmSync(path, { force: true });
  } finally {
    rmSync(right, { force: true });
  }
}

function readOwner(path: string): { pid: number; startTime: number; text: string } | undefined {
  try {
    const text = readFileSync(path, 'utf8');
    const [pid, startTime] = text.trim().split(' ').map(Number);
    if (pid === undefined || startTime === undefined || !(pid > 0)) {
      // The owner has created the file but not yet written to it, or was killed in between.
      return ageMs(path) > STEAL_LIMIT_MS ? { pid: 0, startTime: -1, text } : undefined;
    }
    return { pid, startTime, text };
  } catch {
    return undefined;
  }
}

function ageMs(path: string): number {
  try {
    return Date.now() - statSync(path).mtimeMs;
  } catch {
    return 0;
  }
}

/** Returns the start time of a process in clock ticks after boot. Distinguishes processes with the same id. */
export function startTimeOf(pid: number): number | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
    // The second field, the command in parentheses, may contain any character. The start time is field 22.
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return fields[0] === 'Z' ? undefined : Number(fields[19]);
  } catch {
    return undefined;
  }
}

function codeOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error ? String(error.code) : undefined;
}
