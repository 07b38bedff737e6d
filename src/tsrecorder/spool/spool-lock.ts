/**
 * Keeps two recorder processes out of one spool directory: each would take the other's running uploads for remains of a
 * crash.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TailcastError } from '../../errors.ts';
import { isSystemError, removeFile } from '../files/durable-files.ts';

const LOCK = 'owner';

/**
 * @returns how to give the directory back.
 * @throws TailcastError `CONFIG_INVALID` when a process that lives has it.
 */
export async function lockSpool(directory: string): Promise<() => Promise<void>> {
  const path = join(directory, LOCK);
  const mine = await describeProcess(process.pid);
  for (;;) {
    try {
      await writeFile(path, mine, { flag: 'wx', mode: 0o600 });
      return () => removeFile(path);
    } catch (error) {
      if (!isSystemError(error, 'EEXIST')) throw error;
    }
    const owner = await readFile(path, 'utf8').catch(() => '');
    const [pid = ''] = owner.split(' ');
    const alive = /^\d+$/.test(pid) && owner === (await describeProcess(Number(pid)));
    if (alive) {
      throw new TailcastError('CONFIG_INVALID', `the spool directory is in use by process ${pid}`);
    }
    await removeFile(path);
  }
}

/** The process id and, where the system tells, when that process started: ids are used again, in containers at once. */
async function describeProcess(pid: number): Promise<string> {
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
    return isSystemError(error, 'EPERM');
  }
}
