/** Checks that the files in settings are readable. */
import { closeSync, openSync, statSync } from 'node:fs';
import { errorReason } from '../errors.ts';
import type { SettingCheck, SettingTable } from './settings.ts';

/** Returns one check for each setting. A setting without a value passes the check. */
export function readableFiles<Table extends SettingTable>(
  ...settings: readonly (keyof Table & string)[]
): readonly SettingCheck<Table>[] {
  return settings.map((key) => ({
    settings: [key],
    check(values) {
      const path: unknown = values[key];
      if (typeof path !== 'string' || path === '') return;
      try {
        closeSync(openSync(path, 'r'));
      } catch (error) {
        throw new Error(`${key}: ${path} cannot be read: ${errorReason(error)}`, { cause: error });
      }
      if (statSync(path).isDirectory()) throw new Error(`${key}: ${path} cannot be read: it is a folder`);
    },
  }));
}
