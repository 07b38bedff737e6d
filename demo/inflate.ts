import { constants, inflateRawSync } from 'node:zlib';

/**
 * Inflates one sync-flushed block of a SPDY header stream. `history` is the last 32 KiB of dictionary and earlier
 * output. Throws for damaged data, or if the output exceeds `maxOutputBytes`.
 */
export function inflateBlock(deflated: Uint8Array, history: Uint8Array, maxOutputBytes: number): Uint8Array {
  return inflateRawSync(deflated, {
    dictionary: history,
    finishFlush: constants.Z_SYNC_FLUSH,
    maxOutputLength: maxOutputBytes,
  });
}
