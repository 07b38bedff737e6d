import { constants, inflateRawSync } from 'node:zlib';
import type { InflateBlock } from '../wire/spdy/headers.ts';
import { WireError } from '../wire/wire-error.ts';

/**
 * Inflates one SPDY header block with node:zlib, for `createHeaderInflater`.
 *
 * Runs synchronously: a connection has only a few blocks, each takes less than 0.2 ms, and an asynchronous tap would
 * have to keep the bytes after the block. node:zlib has no synchronous inflater that keeps its state between blocks.
 * Inflating each block with the previous output as a preset dictionary gives the same result, because each block ends
 * with a sync flush.
 *
 * @throws WireError `limit` if the output is longer than `maxOutputBytes` (the output is never allocated),
 * `malformed` if the block is not deflate data
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
