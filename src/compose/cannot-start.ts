/** A role that cannot start says so in a sentence that names the thing. */
import { TailcastError, errorText } from '../errors.ts';

/**
 * What was thrown while a role started, as one of our errors: those are left as they are.
 *
 * @param folders where it keeps files: what fails while a file is written says nothing of where
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
