/** Identifies a process beyond its id, because the OS reuses ids, and containers reuse them at once. */
import { readFile } from 'node:fs/promises';

/**
 * Returns the process id and, if the OS reports it, the start time of the process. Empty if there is no such process.
 */
export async function describeProcess(pid: number): Promise<string> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    // the name, in parentheses, may contain any character; the start time is the 20th field after it
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    return `${pid} ${fields[19] ?? ''}`;
  } catch {
    return isRunning(pid) ? `${pid} ` : '';
  }
}

function isRunning(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (error) {
    return error instanceof Error && 'code' in error && error.code === 'EPERM';
  }
}
