/** Directories in the settings. */
import { access, constants } from 'node:fs/promises';
import { makeDirectories } from '../directories.ts';
import { errorText, TailcastError } from '../errors.ts';

const REASONS: ReadonlyMap<unknown, string> = new Map([
  ['ENOENT', 'the file system there accepts no new directories'],
  ['ENOTDIR', 'a part of the path is a file'],
  ['EEXIST', 'the path is a file'],
  ['EACCES', 'this process may not write there'],
  ['EPERM', 'this process may not write there'],
  ['EROFS', 'the file system is read-only'],
  ['ENOSPC', 'the disk is full'],
]);

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
    const reason = REASONS.get(error instanceof Error && 'code' in error ? error.code : undefined);
    const flag = setting.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
    const detail = `${setting}: ${path} cannot be used: ${reason ?? errorText(error)}. Set --${flag} to a directory that this process can write to`;
    throw new TailcastError('CONFIG_INVALID', detail);
  }
}

/** Calls {@link openSettingDirectory} for each of the settings that has a value. */
export async function openSettingDirectories<Key extends string>(
  config: Readonly<Record<Key, string | undefined>>,
  settings: readonly Key[],
): Promise<void> {
  for (const setting of settings) {
    const path = config[setting];
    if (path !== undefined) await openSettingDirectory(setting, path);
  }
}
