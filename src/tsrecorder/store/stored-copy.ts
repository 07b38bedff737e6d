/** Compares the objects in a store with an upload. Another program may have written these objects. */
import { open, type FileHandle } from 'node:fs/promises';
import { TailcastError } from '../../errors.ts';
import type { FinishedUpload, ObjectKind, RecordingStore } from './store.ts';

type Readable = Pick<RecordingStore, 'stat' | 'read'>;

/** Maximum size of a sidecar that is compared, in bytes. */
const MAX_BYTES = 8_388_608;
/** Codes of read errors which show that the object is not the upload. */
const UNREADABLE: ReadonlySet<string> = new Set(['ARCHIVE_DAMAGED', 'ARCHIVE_SEALED', 'RECORDING_UNKNOWN']);

/** True if the store has the notes and the sidecar of the upload, from this attempt or from an earlier attempt. */
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
  await using file = await open(path, 'r');
  try {
    return await equalsFile(store.read(key, kind), file, bytes);
  } catch (error) {
    if (error instanceof TailcastError && UNREADABLE.has(error.code)) return false;
    throw error;
  }
}

/**
 * Returns true if the chunks are the first `bytes` bytes of the file.
 *
 * @throws TailcastError `STORE_FAILED` if the file is shorter
 */
export async function equalsFile(
  chunks: AsyncIterable<Uint8Array>,
  file: FileHandle,
  bytes: number,
): Promise<boolean> {
  let position = 0;
  for await (const chunk of chunks) {
    if (position + chunk.length > bytes) return false;
    const ours = await readExactly(file, position, chunk.length);
    if (Buffer.compare(ours, chunk) !== 0) return false;
    position += chunk.length;
  }
  return position === bytes;
}

/** Reads `bytes` bytes of a file. @throws TailcastError `STORE_FAILED` if the file is shorter */
export async function readExactly(file: FileHandle, start: number, bytes: number): Promise<Uint8Array> {
  const content = Buffer.allocUnsafe(bytes);
  let filled = 0;
  while (filled < bytes) {
    const { bytesRead } = await file.read(content, filled, bytes - filled, start + filled);
    if (bytesRead === 0) throw new TailcastError('STORE_FAILED', 'the spool is shorter than it was');
    filled += bytesRead;
  }
  return content;
}
