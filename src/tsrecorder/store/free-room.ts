/** Free space for new recordings and events. */
import { TailcastError } from '../../errors.ts';
import { freeBytesIn } from '../files/durable-files.ts';
import type { RecordingStore } from './store.ts';

/** Returns the free bytes of the store or of the spool, whichever is smaller. @throws TailcastError `STORE_FAILED` */
export async function freeSpaceOf(
  store: RecordingStore,
  spoolDirectory: string,
): Promise<number | undefined> {
  const stored = await store.freeBytes();
  const spooled = await freeSpoolSpace(spoolDirectory);
  return Math.min(spooled, stored ?? Infinity);
}

/** Returns the free bytes of the spool. @throws TailcastError `STORE_FAILED` */
export async function freeSpoolSpace(spoolDirectory: string): Promise<number> {
  return freeBytesIn(spoolDirectory).catch((error: unknown) => {
    throw new TailcastError('STORE_FAILED', 'the spool cannot be used', { cause: error });
  });
}
