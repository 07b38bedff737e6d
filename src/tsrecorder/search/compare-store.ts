/** Compares store and index in small steps, so that even a million recordings do not block the event loop. */
import { createLoopTurns, sortInTurns } from '../../async/loop-turns.ts';
import { unlessAborted } from '../../async/with-timeout.ts';
import { listedVersion } from '../library/describe-stored.ts';
import { indexOfId, newestStored } from '../library/uploads.ts';
import { recordingId } from '../store/key.ts';
import type { StoredRecording } from '../store/store.ts';
import type { IndexClient } from './index-client.ts';
import type { IndexerOptions } from './index-progress.ts';
import { indexRevision } from './layout.ts';
import { indexedPages } from './indexed-ids.ts';

/** Differences between store and index. */
export interface Compared {
  /** Recordings whose stored version is not in the index, newest first. */
  readonly missing: readonly StoredRecording[];
  /** Ids that are in the index and neither in the store nor in a spool. */
  readonly unlisted: readonly string[];
}

/** Compares store and index. @throws the reason of `signal` if it aborts */
export async function compareWithStore(
  index: Pick<IndexClient, 'ask'>,
  { store, live, text, trusted }: Pick<IndexerOptions, 'store' | 'live' | 'text' | 'trusted'>,
  signal: AbortSignal,
): Promise<Compared> {
  const openIds = (): readonly string[] => live().map(({ key }) => recordingId(key));
  // NOTE: read the live recordings before and after the store is listed, because a recording can move into the store
  // in between.
  const open = new Set(openIds());
  const listed = await unlessAborted(store.list(), signal);
  const { missing, unlisted } = await compareWithList(index, listed, indexRevision(text, trusted), signal);
  for (const id of openIds()) open.add(id);
  return { missing, unlisted: unlisted.filter((id) => !open.has(id)) };
}

async function compareWithList(
  index: Pick<IndexClient, 'ask'>,
  listed: readonly StoredRecording[],
  revision: string,
  signal: AbortSignal,
): Promise<Compared> {
  const turns = createLoopTurns(signal);
  const newest = await sortInTurns(listed, newestStored, turns);
  /** For each listed recording: 1 if its version is in the index, otherwise 0. */
  const isIndexed = new Uint8Array(newest.length);
  const unlisted: string[] = [];
  for await (const page of indexedPages(index, 'ids')) {
    signal.throwIfAborted();
    for (const { id, version } of page) {
      if (turns.isDue()) await turns.turn();
      const found = indexOfId(newest, id);
      const recording = newest[found];
      if (recording === undefined) {
        unlisted.push(id);
        continue;
      }
      if (version.endsWith(revision) && isOf(version, listedVersion(recording))) isIndexed[found] = 1;
    }
  }
  const missing: StoredRecording[] = [];
  for (const [place, recording] of newest.entries()) {
    if (turns.isDue()) await turns.turn();
    if (isIndexed[place] === 0) missing.push(recording);
  }
  return { missing, unlisted };
}

/**
 * Returns true if the indexed version may be the current version. The version of a session with several parts consists
 * of the versions of all parts.
 */
function isOf(version: string, listed: string | undefined): boolean {
  return listed === undefined || `-${version.split('.')[0]}-`.includes(`-${listed}-`);
}
