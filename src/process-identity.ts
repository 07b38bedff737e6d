/** Which process a process id means: ids are used again, in containers at once. */
import { readFile } from 'node:fs/promises';

/** The process id and, where the system tells, when that process started; empty when there is no such process. */
export async function describeProcess(pid: number): Promise<string> {
  try {
    const stat = await readFile(`/proc/${pid}/stat`, 'utf8');
    // the name, in parentheses, may hold anything; the start time is the 20th field after it
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
