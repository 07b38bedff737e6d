import { errorText } from '../../errors.ts';
import type { Logger } from '../../observe/logger.ts';
import type { PlayIndexes } from './play-indexes.ts';

/** Removes the play indexes of removed recordings. */
export function forgetRemoved(
  playIndexes: PlayIndexes,
  removed: readonly { readonly id: string }[],
  log: Logger,
): void {
  if (removed.length === 0) return;
  playIndexes
    .forget(removed.map(({ id }) => id))
    .catch((error: unknown) => log.warn({ error: errorText(error) }, 'play indexes could not be removed'));
}
