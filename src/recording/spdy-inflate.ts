import { constants, inflateRawSync } from 'node:zlib';
import type { InflateBlock } from '../wire/spdy/headers.ts';
import { WireError } from '../wire/wire-error.ts';

/**
 * Raw inflate of one SPDY header block with node:zlib, for `createHeaderInflater`.
 *
 * Synchronous on purpose: there are a few blocks per connection, each under 0.2 ms, and a tap that had to wait here
 * would have to hold the bytes behind the block. node:zlib has no synchronous object that lives across calls; a preset
 * window gives the same result, because every block ends with a sync flush.
 *
 * @throws WireError `limit` when the output would be longer than `maxOutputBytes` (it is never allocated),
 *   `malformed` when the block is not deflate.
 */
export const inflateSpdyBlock: InflateBlock = (deflated, history, maxOutputBytes) => {
  try {
    return inflateRawSync(deflated, {
      dictionary: history,
      finishFlush: constants.Z_SYNC_FLUSH,
      maxOutputLength: maxOutputBytes,
    });
  } catch (cause) {
    const tooLong = cause instanceof RangeError && 'code' in cause && cause.code === 'ERR_BUFFER_TOO_LARGE';
    throw tooLong
      ? new WireError('limit', 'SPDY header block inflates to too much', { cause })
      : new WireError('malformed', 'SPDY header block cannot be inflated', { cause });
  }
};
