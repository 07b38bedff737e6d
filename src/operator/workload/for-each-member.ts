/** Runs a task for each member of a group, or each route of a Gateway. If a task fails, the other tasks still run. */
import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';

/**
 * Runs `task` for each member, one after another.
 *
 * @param nameOf returns the name of a member for the log
 * @returns the first failure; all failures are logged
 * @throws the error of a task after `signal` has aborted
 */
export async function forEachMember<Member>(
  { log, signal }: { readonly log: Logger; readonly signal: AbortSignal },
  members: Iterable<Member>,
  nameOf: (member: Member) => string,
  task: (member: Member) => Promise<void>,
): Promise<Error | undefined> {
  let failure: Error | undefined;
  for (const member of members) {
    try {
      await task(member);
    } catch (error) {
      if (signal.aborted) throw error;
      failure ??= error instanceof Error ? error : new Error(errorText(error));
      log.warn(
        { member: nameOf(member), error: errorText(error) },
        'group member failed; the others continue',
      );
    }
  }
  return failure;
}

/** Throws the first failure, if any. */
export function throwFirst(...failures: readonly (Error | undefined)[]): void {
  const failure = failures.find((one) => one !== undefined);
  if (failure !== undefined) throw failure;
}
