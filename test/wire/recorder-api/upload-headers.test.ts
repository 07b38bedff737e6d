import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  decodeOffers,
  decodeUploadFields,
  encodeDurableOffset,
  encodeOffers,
  encodeUploadFields,
  FROM_START,
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
        fc.option(fc.stringMatching(/^[!-~]{1,128}$/), { nil: undefined }),
        fc.nat(),
        fc.integer({ min: 1, max: 1000 }),
        fc.boolean(),
        fc.array(fc.stringMatching(/^[0-9A-Za-z.:[\]%_-]{3,200}$/), { minLength: 1, maxLength: 16 }),
        fc.boolean(),
        fc.boolean(),
        (session, offset, number, waits, [before = '', ...after], isFirst, isFrames) => {
          const place = isFrames ? { frames: 3 * offset } : {};
          const at =
            session === undefined ? FROM_START : { offset, number, preambleBytes: offset >> 1, ...place };
          const told = isFirst ? { after: [before, ...after] } : { before, after };
          const fields = { session, at, waits, ...(session === undefined ? {} : { neighbours: told }) };
          expect(decodeUploadFields(encodeUploadFields(fields))).toEqual(fields);
        },
      ),
    );
  });

  it('leave out what is no address, and recorders beyond the limit, rather than have the recording refused', () => {
    const after = ['bad host:80', 'a,b', ...Array.from({ length: 20 }, (_, index) => `10.0.0.${index}:80`)];
    const fields = encodeUploadFields({
      session: 's',
      at: FROM_START,
      waits: false,
      neighbours: { before: 'x\n', after },
    });
    expect(decodeUploadFields(fields).neighbours).toEqual({ after: after.slice(2, 18) });
  });

  it('are none from an uploader that does not know them', () => {
    expect(decodeUploadFields({ 'tailcast-part': 'x' })).toEqual({
      session: undefined,
      at: FROM_START,
      waits: false,
    });
    expect(decodeUploadFields({ 'tailcast-session': 's' }).at).toEqual(FROM_START);
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
    [{ 'tailcast-frames': '0' }, 'tailcast-frames are of no session'],
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

const NOTHING = { annotations: false, resumable: false, frames: false, upgrade: false };

describe('what a recorder offers', () => {
  it('is these fields, and reads back', () => {
    const all = { annotations: true, resumable: true, frames: true, upgrade: true };
    expect(encodeOffers(all)).toEqual({
      'tailcast-annotations': '1',
      'tailcast-resume': '1',
      'tailcast-frames': '1, 2',
      'tailcast-upgrade': '1',
    });
    for (const offers of [
      all,
      { ...all, annotations: false },
      { ...all, resumable: false },
      { ...all, frames: false },
      { ...all, upgrade: false },
    ])
      expect(decodeOffers(encodeOffers(offers))).toEqual(offers);
  });

  it('is what both speak, when a newer recorder names more', () => {
    const fields = {
      'tailcast-annotations': '1, 2',
      'tailcast-resume': '2,1',
      'tailcast-frames': '2,3',
      'tailcast-upgrade': '2, 1',
    };
    expect(decodeOffers(fields)).toEqual({ annotations: true, resumable: true, frames: true, upgrade: true });
    const newer = {
      'tailcast-annotations': '11',
      'tailcast-resume': '2',
      'tailcast-frames': '3',
      'tailcast-upgrade': '2',
    };
    expect(decodeOffers(newer)).toEqual(NOTHING);
  });

  it('is nothing where another version, or none, is named', () => {
    expect(decodeOffers({})).toEqual(NOTHING);
    expect(decodeOffers({ 'tailcast-annotations': '2', 'tailcast-resume': ['1', '1'] })).toEqual(NOTHING);
  });
});
