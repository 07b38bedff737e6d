/** Hands the process that writes an index the bytes of a cast. */
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { readCast } from '../library/replay.ts';
import type { IndexClient } from './index-client.ts';

const FEED_BYTES = 262_144;

/** Feeds bytes `[start, end)` of a cast, as fast as they are taken. */
export async function feedCast(
  index: IndexClient,
  key: number,
  entry: CatalogEntry,
  start: number,
  end: number,
): Promise<void> {
  const rest = await feedBeginning(index, key, entry, start, end);
  if (rest !== undefined) await index.ask('feed', { key, bytes: rest });
}

/** The same without the last piece. @returns it, if there is one */
export async function feedBeginning(
  index: IndexClient,
  key: number,
  entry: CatalogEntry,
  start: number,
  end: number,
): Promise<Uint8Array | undefined> {
  let parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of readCast(entry, { start, end })) {
    if (bytes >= FEED_BYTES) {
      await index.ask('feed', { key, bytes: Buffer.concat(parts) });
      parts = [];
      bytes = 0;
    }
    parts.push(chunk);
    bytes += chunk.length;
  }
  return bytes === 0 ? undefined : Buffer.concat(parts);
}
