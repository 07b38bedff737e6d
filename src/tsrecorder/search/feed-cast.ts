/** Sends the bytes of a cast to the index writer process. */
import type { CatalogEntry } from '../library/catalog-entry.ts';
import { readCast } from '../library/replay.ts';
import type { IndexClient } from './index-client.ts';
import type { Followed } from './live-waits.ts';
import type { WorkDone } from './messages.ts';

/**
 * Size of a piece, in bytes. Larger pieces would make sending faster, but reading a large piece can delay other
 * sessions.
 */
const FEED_BYTES = 65_536;

/** Yields bytes `[start, end)` of a cast in pieces. */
export async function* piecesOf(
  entry: CatalogEntry,
  start: number,
  end: number,
): AsyncGenerator<Uint8Array, void> {
  let parts: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of readCast(entry, { start, end })) {
    parts.push(chunk);
    bytes += chunk.length;
    if (bytes < FEED_BYTES) continue;
    yield Buffer.concat(parts);
    parts = [];
    bytes = 0;
  }
  if (bytes > 0) yield Buffer.concat(parts);
}

/**
 * Sends the new bytes of a running session up to `end`, except the last piece. Stops if the session is too costly to
 * index. @returns the last piece, which the caller sends; undefined if there are no new bytes
 */
export async function feedGrowth(
  index: IndexClient,
  followed: Followed,
  end: number,
  charge: (done: WorkDone) => void,
): Promise<Uint8Array | undefined> {
  let last: Uint8Array | undefined;
  for await (const bytes of piecesOf(followed.entry, followed.fed, end)) {
    if (last !== undefined) charge(await index.ask('feed', { key: followed.key, bytes: last }));
    last = bytes;
    if (followed.isDone) break;
  }
  return last;
}
