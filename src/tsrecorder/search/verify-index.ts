/**
 * Compares an index with the store. Reports missing sessions, surplus sessions and wrong versions. The verification
 * writes nothing.
 */
import type { IndexedText } from '../../search/moments.ts';
import type { Catalog } from '../library/catalog.ts';
import { recordingId } from '../store/key.ts';
import { indexOfId, newestStored } from '../library/uploads.ts';
import type { PendingIds } from '../library/session-index.ts';
import type { StoredRecording } from '../store/store.ts';
import { createLoopTurns, sortInTurns } from '../../async/loop-turns.ts';
import { indexRevision } from './layout.ts';
import type { IndexClient } from './index-client.ts';
import { indexedPages } from './indexed-ids.ts';

/** Difference between the index and the store for one session. */
export type IndexFault = 'missing' | 'tooMany' | 'version';

/** One line of the verification output. */
export type VerifyLine =
  | { readonly checked: number; readonly of: number }
  | { readonly recording: string; readonly fault: IndexFault }
  /** Last line. `pending`: number of recordings that are not indexed yet. */
  | {
      readonly done: true;
      readonly checked: number;
      readonly faults: number;
      readonly pending: number;
    };

export interface VerifyIndexOptions {
  readonly catalog: Pick<Catalog, 'find' | 'stored'>;
  readonly indexedText: IndexedText;
  readonly trusted?: string | undefined;
  readonly pending: () => PendingIds | undefined;
  /** Starts a process that reads the index. */
  readonly start: () => Promise<IndexClient>;
  readonly signal: AbortSignal;
}

const REPORT_EVERY = 1000;

/** Verifies an index. If the verification is incomplete, the generator does not yield the last line (`done`). */
export async function* verifyIndex(options: VerifyIndexOptions): AsyncGenerator<VerifyLine> {
  const { catalog, pending, signal } = options;
  const index = await options.start();
  try {
    const { newest, unlisted } = await heldAgainst(index, catalog, signal);
    const counts = { checked: 0, faults: 0, pending: 0 };
    for (const { key } of newest) {
      signal.throwIfAborted();
      const id = recordingId(key);
      const found = await checkOne(index, id, options);
      counts.checked += 1;
      if (found !== undefined && pending()?.has(id) !== false) counts.pending += 1;
      else if (found !== undefined) {
        counts.faults += 1;
        yield { recording: id, fault: found };
      }
      if (counts.checked % REPORT_EVERY === 0) yield { checked: counts.checked, of: newest.length };
    }
    for (const id of unlisted) {
      // Do not report a session that is in the catalogue: the session is running, or was stored after the store was
      // listed. Do not report a session that was removed from the index in the meantime.
      const isThere = (await catalog.find(id)) !== undefined;
      if (isThere || (await index.ask('version', { id })) === undefined) continue;
      counts.faults += 1;
      yield { recording: id, fault: 'tooMany' };
    }
    yield { done: true, ...counts };
  } finally {
    index.kill();
  }
}

/**
 * Returns the recordings in the store, newest first. Also returns the ids of indexed sessions that are missing in the
 * store.
 */
async function heldAgainst(
  index: IndexClient,
  catalog: VerifyIndexOptions['catalog'],
  signal: AbortSignal,
): Promise<{ readonly newest: readonly StoredRecording[]; readonly unlisted: readonly string[] }> {
  const turns = createLoopTurns(signal);
  const indexed: string[] = [];
  for await (const page of indexedPages(index, 'versions')) for (const { id } of page) indexed.push(id);
  const newest = await sortInTurns(await catalog.stored(), newestStored, turns);
  const unlisted: string[] = [];
  for (const id of indexed) {
    if (turns.isDue()) await turns.turn();
    if (indexOfId(newest, id) < 0) unlisted.push(id);
  }
  return { newest, unlisted };
}

async function checkOne(
  index: IndexClient,
  id: string,
  { catalog, indexedText, trusted }: VerifyIndexOptions,
): Promise<IndexFault | undefined> {
  const entry = await catalog.find(id);
  // Skip a recording that was removed during the verification or still grows.
  if (entry?.version === undefined || entry.live !== undefined) return undefined;
  const version = await index.ask('version', { id });
  // Skip later uploads, because the index contains only the first upload of a session.
  if (entry.recording.id !== id) return version === undefined ? undefined : 'tooMany';
  if (version === undefined) return 'missing';
  return version === `${entry.version}${indexRevision(indexedText, trusted)}` ? undefined : 'version';
}
