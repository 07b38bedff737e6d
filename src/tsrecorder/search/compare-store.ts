/** What the store has and the index has not, and the other way round. A million of both are held against each other while uploads go on. */
import { createLoopTurns, sortInTurns } from '../../async/loop-turns.ts';
import { EXTRACTOR } from '../../search/search-index.ts';
import type { IndexedText } from '../../search/moments.ts';
import { listedVersion } from '../library/describe-stored.ts';
import { indexOfId, newestStored } from '../library/newest.ts';
import type { StoredRecording } from '../store/store.ts';
import type { IndexClient } from './index-client.ts';
import { indexedPages } from './indexed-ids.ts';

export interface Compared {
  /** What is not in the index as it is in the store, newest first. */
  readonly missing: readonly StoredRecording[];
  /** What is in the index, and was not listed. */
  readonly unlisted: readonly string[];
}

/** @throws the reason of `signal` when it is aborted */
export async function compareWithStore(
  index: Pick<IndexClient, 'ask'>,
  listed: readonly StoredRecording[],
  text: IndexedText,
  signal: AbortSignal,
): Promise<Compared> {
  const turns = createLoopTurns(signal);
  const newest = await sortInTurns(listed, newestStored, turns);
  /** By its place: 1 when the index has it as it is. */
  const isIndexed = new Uint8Array(newest.length);
  const unlisted: string[] = [];
  let at = 0;
  for await (const page of indexedPages(index, 'ids')) {
    signal.throwIfAborted();
    for (const { id, version } of page) {
      if (turns.isDue()) await turns.turn();
      const found = indexOfId(newest, id, at);
      const recording = newest[found];
      if (recording === undefined) {
        unlisted.push(id);
        continue;
      }
      at = found;
      if (version.endsWith(`.${EXTRACTOR}.${text}`) && isOf(version, listedVersion(recording)))
        isIndexed[found] = 1;
    }
  }
  const missing: StoredRecording[] = [];
  for (const [place, recording] of newest.entries()) {
    if (turns.isDue()) await turns.turn();
    if (isIndexed[place] === 0) missing.push(recording);
  }
  return { missing, unlisted };
}

/** Whether an indexed version is of a recording as it is listed: it may have been joined with others. Nobody knows: it is. */
function isOf(version: string, listed: string | undefined): boolean {
  return listed === undefined || `-${version.split('.')[0]}-`.includes(`-${listed}-`);
}
