/** Directories in the settings. */
import { access, constants } from 'node:fs/promises';
import { directoryProblem } from '../config/setting-paths.ts';
import { makeDirectories } from '../directories.ts';
import { TailcastError } from '../errors.ts';

/**
 * Creates the directory of a setting if it is missing, and checks that the process can write to it.
 *
 * @param setting key of the setting, such as `stateDirectory`
 * @throws TailcastError `CONFIG_INVALID` with the setting, the value and the fix
 */
export async function openSettingDirectory(setting: string, path: string): Promise<void> {
  try {
    await makeDirectories(path);
    await access(path, constants.W_OK);
  } catch (error) {
    throw new TailcastError('CONFIG_INVALID', directoryProblem(setting, path, error));
  }
}
