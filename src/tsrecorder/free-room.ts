/** How much more can be taken in. */
import { statfs } from 'node:fs/promises';
import { TailcastError } from '../errors.ts';
import type { RecordingStore } from './store/store.ts';

/** Free bytes, in the store or in the spool, whichever has fewer. @throws TailcastError `STORE_FAILED` */
export async function roomFor(store: RecordingStore, spoolDirectory: string): Promise<number | undefined> {
  const stored = await store.freeBytes();
  const { bavail, bsize } = await statfs(spoolDirectory).catch((error: unknown) => {
    throw new TailcastError('STORE_FAILED', 'the spool cannot be used', { cause: error });
  });
  return Math.min(bavail * bsize, stored ?? Infinity);
}
