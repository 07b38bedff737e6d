/**
 * The lock of a spool directory. Without the lock, two recorders with the same directory would each treat the running
 * uploads of the other recorder as left over from a crash.
 */
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isSystemError, TailcastError } from '../../errors.ts';
import { markFormat, SPOOL_FORMAT } from '../../folder-format.ts';
import { describeProcess } from '../../process-identity.ts';
import { makeDirectory, removeFile } from '../files/durable-files.ts';

const LOCK = 'owner';

/**
 * Creates the spool directory and locks it.
 *
 * @returns a function that releases the lock
 * @throws TailcastError `ALREADY_RUNNING` if another process holds the lock, `CONFIG_INVALID` if the files have a newer
 *   format
 */
export async function takeSpool(directory: string): Promise<() => Promise<void>> {
  await makeDirectory(directory);
  await markFormat(directory, SPOOL_FORMAT);
  const path = join(directory, LOCK);
  const mine = await describeProcess(process.pid);
  for (;;) {
    try {
      await writeFile(path, mine, { flag: 'wx', mode: 0o600 });
      return () => removeFile(path);
    } catch (error) {
      if (!isSystemError(error, 'EEXIST')) throw error;
    }
    await assertUnowned(directory);
    await removeFile(path);
  }
}

/** Checks the lock. @throws TailcastError `ALREADY_RUNNING` if a running process has the lock */
async function assertUnowned(directory: string): Promise<void> {
  const owner = await readFile(join(directory, LOCK), 'utf8').catch(() => '');
  const [pid = ''] = owner.split(' ');
  const alive = /^\d+$/.test(pid) && owner === (await describeProcess(Number(pid)));
  if (alive)
    throw new TailcastError('ALREADY_RUNNING', `process ${pid} uses the spool directory ${directory}`);
}
