import type { ReadableStore } from '../store/store.ts';
import type { CatalogEntry } from './catalog-entry.ts';

/** Returns the notes of all uploads of a finished recording, or undefined if no upload has notes. */
export async function notesOf(
  { key, joinedNotes }: CatalogEntry,
  store: Pick<ReadableStore, 'stat' | 'read'>,
): Promise<AsyncIterable<Uint8Array> | undefined> {
  if (joinedNotes !== undefined) return joinedNotes();
  return (await store.stat(key, 'notes')) === undefined ? undefined : store.read(key, 'notes');
}
