/** Compares the objects in a store with an upload. Another program may have written these objects. */
import { open } from 'node:fs/promises';
import { TailcastError } from '../../errors.ts';
import type { FinishedUpload, ObjectKind, RecordingStore } from './store.ts';

type Readable = Pick<RecordingStore, 'stat' | 'read'>;

/** Maximum size of a sidecar that is compared, in bytes. */
const MAX_BYTES = 8_388_608;
/** Errors of objects that cannot be the upload. */
const UNREADABLE: ReadonlySet<string> = new Set(['ARCHIVE_DAMAGED', 'ARCHIVE_SEALED', 'RECORDING_UNKNOWN']);

/** True if the store has the notes and the sidecar of the upload, from this attempt or from an earlier one. */
export async function hasNotesAndSidecar(store: Readable, upload: FinishedUpload): Promise<boolean> {
  const { key, notesPath, notesBytes, sidecar, isOwnSidecar } = upload;
  const bytes = (await store.stat(key, 'sidecar'))?.bytes ?? Infinity;
  if (bytes > MAX_BYTES) return false;
  const content = await Array.fromAsync(store.read(key, 'sidecar', { start: 0, end: MAX_BYTES }));
  const stored = Buffer.concat(content).toString();
  if (stored !== sidecar && isOwnSidecar?.(stored) !== true) return false;
  return notesPath === undefined || hasSameBytes(store, upload, 'notes', notesPath, notesBytes);
}

/** True if an object in the store consists of the first `bytes` bytes of the file. */
export async function hasSameBytes(
  store: Readable,
  { key }: Pick<FinishedUpload, 'key'>,
  kind: ObjectKind,
  path: string,
  bytes: number,
): Promise<boolean> {
  if ((await store.stat(key, kind))?.bytes !== bytes) return false;
  const file = await open(path, 'r');
  try {
    let position = 0;
    for await (const chunk of store.read(key, kind)) {
      const ours = Buffer.alloc(chunk.length);
      const { bytesRead } = await file.read(ours, 0, ours.length, position);
      if (bytesRead !== chunk.length || !ours.equals(chunk)) return false;
      position += chunk.length;
    }
    return position === bytes;
  } catch (error) {
    if (error instanceof TailcastError && UNREADABLE.has(error.code)) return false;
    throw error;
  } finally {
    await file.close();
  }
}
