import { constants, inflateRawSync } from 'node:zlib';

/**
 * Inflates one sync-flushed block of a SPDY header stream. `history` is the last 32 KiB of dictionary and earlier
 * output. Throws if the data is invalid, or if the output exceeds `maxOutputBytes`.
 */
export function inflateBlock(deflated: Uint8Array, history: Uint8Array, maxOutputBytes: number): Uint8Array {
  return inflateRawSync(deflated, {
    dictionary: history,
    finishFlush: constants.Z_SYNC_FLUSH,
    maxOutputLength: maxOutputBytes,
  });
}
