/** Checks of the files and directories in settings. The checks change nothing. */
import { accessSync, closeSync, constants, existsSync, openSync, statSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { errorReason, errorText } from '../errors.ts';
import type { SettingCheck, SettingTable } from './settings.ts';

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
 * Returns, for each setting, a check that the process can read the file. A setting without a value passes the check.
 */
export function readableFiles<Table extends SettingTable>(
  ...settings: readonly (keyof Table & string)[]
): readonly SettingCheck<Table>[] {
  return pathChecks<Table>(settings, (key, path) => {
    try {
      closeSync(openSync(path, 'r'));
    } catch (error) {
      throw new Error(`${key}: ${path} cannot be read: ${errorReason(error)}`, { cause: error });
    }
    if (statSync(path).isDirectory()) throw new Error(`${key}: ${path} cannot be read: it is a folder`);
  });
}

/**
 * Returns, for each setting, a check that the process can write to the directory or create it. A setting without a
 * value, or with a URL, passes the check.
 */
export function writableDirectories<Table extends SettingTable>(
  ...settings: readonly (keyof Table & string)[]
): readonly SettingCheck<Table>[] {
  return pathChecks<Table>(settings, (key, path) => {
    if (path.includes('://')) return;
    try {
      assertWritable(resolve(path));
    } catch (error) {
      throw new Error(directoryProblem(key, path, error), { cause: error });
    }
  });
}

/**
 * Returns a sentence with the setting, the value, the reason and the fix.
 *
 * @param error the error of a system call on the directory
 */
export function directoryProblem(setting: string, path: string, error: unknown): string {
  const reason = REASONS.get(error instanceof Error && 'code' in error ? error.code : undefined);
  const flag = setting.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);
  const problem = `${setting}: ${path} cannot be used: ${reason ?? errorText(error)}`;
  return `${problem}. Set --${flag} to a directory that this process can write to`;
}

function pathChecks<Table extends SettingTable>(
  settings: readonly (keyof Table & string)[],
  check: (key: string, path: string) => void,
): readonly SettingCheck<Table>[] {
  return settings.map((key) => ({
    settings: [key],
    check(values) {
      const path: unknown = values[key];
      if (typeof path === 'string' && path !== '') check(key, path);
    },
  }));
}

/** Checks the directory, or its closest existing parent. @throws an error with the code of a system error */
function assertWritable(path: string): void {
  let existing = path;
  while (!existsSync(existing)) existing = dirname(existing);
  const isDirectory = statSync(existing).isDirectory();
  if (!isDirectory)
    throw Object.assign(new Error('not a directory'), { code: existing === path ? 'EEXIST' : 'ENOTDIR' });
  accessSync(existing, constants.W_OK);
}
