/** Reads data about processes from the OS. */
import { readFile } from 'node:fs/promises';
import { isSystemError } from './errors.ts';

/**
 * Returns the process id and, if the OS reports it, the start time of the process. The start time is needed because the
 * OS reuses ids; in a container, it may reuse an id immediately. Returns an empty text if there is no such process.
 */
export async function describeProcess(pid: number): Promise<string> {
  try {
    return `${pid} ${(await statFields(pid))[19] ?? ''}`;
  } catch {
    return isRunning(pid) ? `${pid} ` : '';
  }
}

/** Returns the CPU time that a process has used, in milliseconds. Undefined if the OS does not report it. */
export async function processCpuMs(pid: number): Promise<number | undefined> {
  try {
    const [user, system] = (await statFields(pid)).slice(11, 13);
    const ms = (Number(user) + Number(system)) * MS_PER_TICK;
    return Number.isFinite(ms) ? ms : undefined;
  } catch {
    return undefined;
  }
}

/** Unit of CPU times that Linux reports to programs: 10 ms, regardless of the kernel's own tick. */
const MS_PER_TICK = 10;

/** Returns the fields of `/proc/<pid>/stat` after the name of the program. */
async function statFields(pid: number): Promise<string[]> {
  const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
  // the name, in parentheses, may contain any character
  return stat.slice(stat.lastIndexOf(')') + 2).split(' ');
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return isSystemError(error, 'EPERM');
  }
}
