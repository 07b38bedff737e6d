/** Error messages for roles that cannot start. */
import { TailcastError, errorText } from '../errors.ts';

/**
 * Converts an error during the start of a role to a `TailcastError`. A `TailcastError` is returned unchanged, unless
 * its code is `STORE_FAILED`.
 *
 * @param folders directories of the role. The message names them for `STORE_FAILED`, and for system errors without a
 *   file name
 */
export function cannotStart(
  role: 'gateway' | 'recorder',
  error: unknown,
  folders: readonly (string | undefined)[],
): TailcastError {
  if (error instanceof TailcastError && error.code !== 'STORE_FAILED') return error;
  const ofFile =
    error instanceof TailcastError ||
    (error instanceof Error && 'syscall' in error && error.syscall !== 'listen' && !('path' in error));
  const named = folders.filter((folder) => folder !== undefined).join(' and ');
  const reason = error instanceof TailcastError ? (error.detail ?? error.message) : errorText(error);
  const where = ofFile ? ` with its files in ${named}` : '';
  return new TailcastError('START_FAILED', `${role}${where}: ${reason}`, { cause: error });
}
