/** The play indexes that a recorder keeps in its spool. */
import { join } from 'node:path';
import type { Logger } from '../../observe/logger.ts';
import type { RecordingStore } from '../store/store.ts';
import { readGaps } from './known-gaps.ts';
import { openPlayIndexes, type PlayIndexes } from './play-indexes.ts';

const FOLDER = 'playback';
/** At a time, beside everything else that the recorder does. */
const MAX_BUILDING = 1;
const MAX_WAITING = 32;

/**
 * @param spoolDirectory of this process.
 * @param spools of all processes with the same store on this machine.
 */
export function openSpoolIndexes(
  spoolDirectory: string,
  {
    store,
    log,
    maxBytes,
    spools,
  }: {
    readonly store: RecordingStore;
    readonly log: Logger;
    readonly maxBytes: number;
    readonly spools: readonly string[];
  },
): Promise<PlayIndexes> {
  return openPlayIndexes({
    directory: join(spoolDirectory, FOLDER),
    otherDirectories: spools.filter((spool) => spool !== spoolDirectory).map((spool) => join(spool, FOLDER)),
    maxBytes,
    maxBuilding: MAX_BUILDING,
    maxWaiting: MAX_WAITING,
    log,
    async gapsOf({ key, joinedNotes }) {
      if (joinedNotes !== undefined) return readGaps(joinedNotes());
      const stat = await store.stat(key, 'notes');
      return stat === undefined ? [] : readGaps(store.read(key, 'notes'));
    },
  });
}
