import { crc32 } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import {
  ArchiveFormatError,
  claimsArchive,
  encodeSeal,
  encodeSeekTable,
  FOOTER_BYTES,
  FRAME_BYTES,
  seekTableBytes,
  MAX_COMPRESSED_BYTES,
  MAX_FRAMES,
  parseSeal,
  parseSeekTable,
  SEAL_BYTES,
  type ArchivedFrame,
} from '../../../src/wire/archive/seek-table.ts';

const FULL: ArchivedFrame = { compressed: 1000, plain: FRAME_BYTES };

function parse(frames: readonly ArchivedFrame[]): unknown {
  const index = encodeSeekTable(frames, crc32);
  const bytes = frames.reduce((sum, { compressed }) => sum + compressed, index.length);
  return parseSeekTable(index, bytes, crc32);
}

describe('the seek table', () => {
  it('is written as the zstd seekable format wants it, with a guard before it', () => {
    const bytes = encodeSeekTable([{ compressed: 0x1234, plain: 0x05 }], crc32);
    const table = '5e2a4d1819000000' + '3412000005000000' + '1000000000000000' + '0200000000b1ea928f';
    const guard = `512a4d180800000054434131`;
    expect(Buffer.from(bytes.subarray(16)).toString('hex')).toBe(table);
    expect(Buffer.from(bytes.subarray(0, 12)).toString('hex')).toBe(guard);
    expect(Buffer.from(bytes).readUInt32LE(12)).toBe(crc32(Buffer.from(table, 'hex')));
    expect(seekTableBytes(bytes.subarray(-FOOTER_BYTES))).toBe(bytes.length);
  });

  it('says where every frame begins', () => {
    expect(parse([FULL, { compressed: 7, plain: 3 }])).toEqual({
      frames: 2,
      compressedStarts: [0, 1000, 1007],
      plainStarts: [0, FRAME_BYTES, FRAME_BYTES + 3],
    });
    expect(parse([])).toEqual({ frames: 0, compressedStarts: [0], plainStarts: [0] });
  });

  it.each<[string, readonly ArchivedFrame[]]>([
    ['a frame that is too long', [{ compressed: 1, plain: FRAME_BYTES + 1 }]],
    ['a frame without content', [{ compressed: 1, plain: 0 }]],
    ['a short frame that is not the last', [{ compressed: 1, plain: FRAME_BYTES - 1 }, FULL]],
    ['a frame of nothing', [{ compressed: 0, plain: 1 }]],
    ['a frame that has grown too much', [{ compressed: MAX_COMPRESSED_BYTES + 1, plain: 1 }]],
  ])('is refused with %s', (_what, frames) => {
    expect(() => parse(frames)).toThrow(ArchiveFormatError);
  });

  it('takes each length at its limit', () => {
    expect(() => parse([FULL, { compressed: MAX_COMPRESSED_BYTES, plain: FRAME_BYTES }])).not.toThrow();
  });

  it('is bounded before anything is read for it', () => {
    const footer = (count: number): Uint8Array => {
      const bytes = encodeSeekTable([], crc32).slice(-FOOTER_BYTES);
      new DataView(bytes.buffer).setUint32(0, count, true);
      return bytes;
    };
    expect(seekTableBytes(footer(MAX_FRAMES + 1))).toBe(16 + 8 + (MAX_FRAMES + 1) * 8 + 9);
    for (const count of [0, MAX_FRAMES + 2, 0xff_ff_ff_ff]) {
      expect(() => seekTableBytes(footer(count))).toThrow(ArchiveFormatError);
    }
  });

  it('is refused when the archive is not as long as it says', () => {
    const index = encodeSeekTable([FULL], crc32);
    for (const off of [-1, 1]) {
      expect(() => parseSeekTable(index, index.length + 1000 + off, crc32)).toThrow(ArchiveFormatError);
    }
  });

  it('is refused when a byte of it or of its guard is another one', () => {
    const whole = encodeSeekTable([FULL], crc32);
    // every change of the table is detected
    for (let at = 0; at < whole.length - FOOTER_BYTES; at += 1) {
      const index = whole.slice();
      index[at]! ^= 1;
      expect(() => parseSeekTable(index, index.length + 1000, crc32), String(at)).toThrow(
        'its index was changed',
      );
    }
  });

  it('is not looked for in text', () => {
    const text = Buffer.from('{"version":2}\n[1,"o","x"]\n');
    expect(claimsArchive(text.subarray(0, 4), text)).toBe(false);
    expect(claimsArchive(new Uint8Array(), new Uint8Array())).toBe(false);
    expect(claimsArchive(Buffer.from([0x28, 0xb5]), Buffer.from([0x28, 0xb5]))).toBe(true);
  });
});

describe('what a sealed archive begins with', () => {
  const keyId = Uint8Array.from({ length: 16 }, (_, index) => index + 1);
  const wrappedKey = Uint8Array.from({ length: 60 }, (_, index) => index + 101);
  const seal = encodeSeal({ keyId, wrappedKey });

  it('is the same for all time', () => {
    expect(Buffer.from(seal).toString('hex')).toBe(
      `522a4d1850000000${Buffer.from('TCS1').toString('hex')}${Buffer.from([...keyId, ...wrappedKey]).toString('hex')}`,
    );
    expect(SEAL_BYTES).toBe(seal.length);
  });

  it('is read as it was written', () => {
    expect(parseSeal(seal)).toEqual({ keyId, wrappedKey });
  });

  it('is none of what is not sealed', () => {
    expect(parseSeal(Buffer.from('{"version":2}\n'))).toBeUndefined();
    expect(parseSeal(encodeSeekTable([FULL], crc32))).toBeUndefined();
  });

  it('is refused when its frame is another one, longer or shorter', () => {
    for (let at = 4; at < 12; at += 1) {
      const changed = seal.slice();
      changed[at]! ^= 1;
      expect(() => parseSeal(changed), String(at)).toThrow('its seal was changed');
    }
    for (const other of [seal.subarray(0, -1), Buffer.concat([seal, Buffer.alloc(1)])])
      expect(() => parseSeal(other)).toThrow(ArchiveFormatError);
  });
});
