/** Play indexes (the keyframes for seeking) that a recorder stores in its spool. */
import { join } from 'node:path';
import type { Logger } from '../../observe/logger.ts';
import type { RecordingStore } from '../store/store.ts';
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { notesOf } from '../library/notes-of.ts';
import type { KnownPlace } from '../../bundle/build-index.ts';
import { readGaps } from './known-gaps.ts';
import { openPlayIndexes, type PlayIndexes } from './play-indexes.ts';

const FOLDER = 'playback';
/**
 * Maximum number of concurrent builds. The recordings of one user can occupy only one of the two slots, so one user
 * cannot block all other users.
 */
const MAX_BUILDING = 2;
const MAX_WAITING = 32;

/** Opens the play indexes in the spool. */
export function openSpoolIndexes(
  spoolDirectory: string,
  {
    store,
    log,
    maxBytes,
  }: {
    readonly store: RecordingStore;
    readonly log: Logger;
    readonly maxBytes: number;
  },
): Promise<PlayIndexes> {
  return openPlayIndexes({
    directory: join(spoolDirectory, FOLDER),
    maxBytes,
    maxBuilding: MAX_BUILDING,
    maxWaiting: MAX_WAITING,
    log,
    placesOf: (entry) => placesOf(entry, store),
  });
}

/** Returns the starts of parts and the positions of missing output, sorted by offset in the cast. */
export async function placesOf(
  entry: CatalogEntry,
  store: Pick<RecordingStore, 'stat' | 'read'>,
): Promise<readonly KnownPlace[]> {
  const notes = await notesOf(entry, store);
  const gaps = notes === undefined ? [] : await readGaps(notes);
  return [...partsOf(entry), ...gaps].toSorted((left, right) => left.offset - right.offset);
}

/** Returns the start of each part after the first. */
function partsOf({ pieces }: CatalogEntry): readonly KnownPlace[] {
  let offset = 0;
  return pieces.flatMap((piece, index) => {
    const place: KnownPlace = { offset, kind: 'part', text: `part ${index + 1} of ${pieces.length}` };
    offset += piece.end() - piece.start;
    return index === 0 ? [] : [place];
  });
}
