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
  if (error instanceof TailcastError) return error;
  const ofFile =
    error instanceof Error && 'syscall' in error && error.syscall !== 'listen' && !('path' in error);
  const named = folders.filter((folder) => folder !== undefined).join(' and ');
  const where = ofFile ? ` with its files in ${named}` : '';
  const detail = `the ${role} cannot start${where}: ${errorText(error)}`;
  return new TailcastError('CONFIG_INVALID', detail, { cause: error });
}
