import { createHash } from 'node:crypto';
import { constants, deflateSync } from 'node:zlib';
import { expect, it } from 'vitest';
import { SPDY_DICTIONARY, SPDY_DICTIONARY_ID } from '../../../src/wire/spdy/dictionary.ts';

it('is the dictionary of SPDY/3 to the byte', () => {
  expect(SPDY_DICTIONARY).toHaveLength(1423);
  expect(createHash('sha256').update(SPDY_DICTIONARY).digest('hex')).toBe(
    '51d27341373f923f3cd88e1eb7162aeaa3723d7585ff2399201dc06498407f02',
  );
});

it('has the Adler-32 that zlib computes for it', () => {
  const options = { dictionary: SPDY_DICTIONARY, finishFlush: constants.Z_SYNC_FLUSH };
  expect(deflateSync(Buffer.from('x'), options).readUInt32BE(2)).toBe(SPDY_DICTIONARY_ID);
  expect(SPDY_DICTIONARY_ID).toBe(0xe3c6_a7c2);
});
