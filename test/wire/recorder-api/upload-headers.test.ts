import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeUploadFields,
  encodeDurableOffset,
  encodeUploadFields,
  offersUpgrade,
  UPGRADE_OFFER,
} from '../../../src/wire/recorder-api/upload-headers.ts';
import { WireError } from '../../../src/wire/wire-error.ts';

describe('the fields of an upload', () => {
  it('are these, on the wire', () => {
    const at = { offset: 81_920, number: 2, preambleBytes: 512, frames: 65_011 };
    expect(encodeUploadFields({ session: '6f1c', at, waits: true })).toEqual({
      'tailcast-session': '6f1c',
      'tailcast-offset': '81920',
      'tailcast-part': '2',
      'tailcast-preamble': '512',
      'tailcast-frames': '65011',
      'tailcast-waits': '1',
    });
    const neighbours = { before: '100.64.0.8:80', after: ['100.64.0.9:80', '[fd7a::1]:80'] };
    expect(encodeUploadFields({ session: '6f1c', at, waits: false, neighbours })).toMatchObject({
      'tailcast-before': '100.64.0.8:80',
      'tailcast-after': '100.64.0.9:80,[fd7a::1]:80',
    });
    expect(encodeDurableOffset(7)).toEqual({ 'tailcast-offset': '7' });
  });

  it('read back as they were written', () => {
    fc.assert(
      fc.property(
        fc.stringMatching(/^[!-~]{1,128}$/),
        fc.nat(),
        fc.integer({ min: 1, max: 1000 }),
        fc.boolean(),
        fc.array(fc.stringMatching(/^[0-9A-Za-z.:[\]%_-]{3,200}$/), { minLength: 1, maxLength: 16 }),
        fc.boolean(),
        (session, offset, number, waits, [before = '', ...after], isFirst) => {
          const at = { offset, frames: 3 * offset, number, preambleBytes: offset >> 1 };
          const neighbours = isFirst ? { after: [before, ...after] } : { before, after };
          const fields = { session, at, waits, neighbours };
          expect(decodeUploadFields(encodeUploadFields(fields))).toEqual(fields);
        },
      ),
    );
  });

  it('leave out what is no address, and recorders beyond the limit, rather than have the recording refused', () => {
    const after = ['bad host:80', 'a,b', ...Array.from({ length: 20 }, (_, index) => `10.0.0.${index}:80`)];
    const fields = encodeUploadFields({
      session: 's',
      at: { offset: 0, frames: 0, number: 1, preambleBytes: 0 },
      waits: false,
      neighbours: { before: 'x\n', after },
    });
    expect(decodeUploadFields(fields).neighbours).toEqual({ after: after.slice(2, 18) });
  });

  it('begin the session where they name nothing else', () => {
    const at = { offset: 0, frames: 0, number: 1, preambleBytes: 0 };
    expect(decodeUploadFields({ 'tailcast-session': 's' })).toEqual({ session: 's', at, waits: false });
  });

  it.each([
    [{ 'tailcast-session': '' }, 'tailcast-session is not a session name'],
    [{ 'tailcast-session': 'a b' }, 'tailcast-session is not a session name'],
    [{ 'tailcast-session': 'x'.repeat(129) }, 'tailcast-session is not a session name'],
    [{ 'tailcast-session': ['a', 'b'] }, 'tailcast-session is not a session name'],
    [{ 'tailcast-session': 's', 'tailcast-offset': '-1' }, 'tailcast-offset is not a number'],
    [{ 'tailcast-session': 's', 'tailcast-offset': '1e3' }, 'tailcast-offset is not a number'],
    [{ 'tailcast-session': 's', 'tailcast-offset': '1'.repeat(16) }, 'tailcast-offset is not a number'],
    [{ 'tailcast-session': 's', 'tailcast-frames': 'x' }, 'tailcast-frames is not a number'],
    [{ 'tailcast-frames': '0' }, 'tailcast-session is not a session name'],
    [
      { 'tailcast-session': 's', 'tailcast-offset': '1' },
      'tailcast-frames and tailcast-offset begin together',
    ],
    [
      { 'tailcast-session': 's', 'tailcast-frames': '1' },
      'tailcast-frames and tailcast-offset begin together',
    ],
    [{ 'tailcast-session': 's', 'tailcast-part': '0' }, 'tailcast-part counts from 1'],
    [{ 'tailcast-session': 's', 'tailcast-before': 'a:1,b:2' }, 'tailcast-before names several recorders'],
    [{ 'tailcast-session': 's', 'tailcast-before': '' }, 'tailcast-before names no recorders'],
    [{ 'tailcast-session': 's', 'tailcast-after': 'a:1,' }, 'tailcast-after names no recorders'],
    [{ 'tailcast-session': 's', 'tailcast-after': ['a:1'] }, 'tailcast-after names no recorders'],
    [
      { 'tailcast-session': 's', 'tailcast-after': Array.from({ length: 17 }, () => 'a:1').join(',') },
      'tailcast-after names no recorders',
    ],
    [
      { 'tailcast-session': 's', 'tailcast-offset': '3', 'tailcast-preamble': '4' },
      'tailcast-preamble reaches beyond tailcast-offset',
    ],
  ])('are refused when they are odd: %j', (fields, message) => {
    expect(() => decodeUploadFields(fields)).toThrow(new WireError('malformed', message));
  });
});

describe('the response to HEAD', () => {
  it('of a recorder of ours offers the upgrade', () => {
    expect(UPGRADE_OFFER).toEqual({ 'tailcast-upgrade': '1' });
    expect(offersUpgrade({ ...UPGRADE_OFFER })).toBe(true);
  });

  it.each([
    {},
    { 'tailcast-upgrade': '11' },
    { 'tailcast-upgrade': '2' },
    { 'tailcast-upgrade': ['1', '1'] },
  ])('of any other recorder offers none: %j', (fields) => {
    expect(offersUpgrade(fields)).toBe(false);
  });
});
