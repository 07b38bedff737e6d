import { describe, expect, it } from 'vitest';
import { MAX_ACK_BYTES } from '../../../src/wire/recorder-api/ack.ts';
import {
  createRecordReader,
  encodeRecords,
  endOfRecords,
  MAX_ACK_RECORD_BYTES,
  MAX_UPLOAD_RECORD_BYTES,
} from '../../../src/wire/recorder-api/length-prefixed.ts';
import { concat, cut, hex, list, thrownBy, utf8 } from '../bytes.ts';

/** Parses records. @returns their joined content, and true if the last record was read */
function read(pieces: readonly Uint8Array[], maxBytes = 1000): { content: Uint8Array; ended: boolean } {
  const content: Uint8Array[] = [];
  const reader = createRecordReader(maxBytes, (piece) => void content.push(piece.slice()));
  for (const piece of pieces) reader.push(piece);
  expect(content.every(({ length }) => length > 0)).toBe(true);
  return { content: concat(...content), ended: reader.ended };
}

describe('records', () => {
  it('are these bytes', () => {
    const records = encodeRecords([utf8('hel'), utf8(''), utf8('lo, you')], 6);
    expect(list(concat(...records, endOfRecords()))).toEqual(
      list(concat(hex('00000006'), utf8('hello,'), hex('00000004'), utf8(' you'), hex('00000000'))),
    );
    expect(encodeRecords([], 6)).toEqual([]);
    expect(encodeRecords([utf8('')], 6)).toEqual([]);
  });

  it('are written without a copy of their content', () => {
    const content = [Buffer.alloc(3, 1), Buffer.alloc(700, 2)];
    const [lead, ...parts] = encodeRecords(content, MAX_UPLOAD_RECORD_BYTES);
    expect(list(lead!)).toEqual(list(hex('000002bf')));
    expect(parts.map(({ buffer, byteOffset, length }) => [buffer, byteOffset, length])).toEqual(
      content.map(({ buffer, byteOffset, length }) => [buffer, byteOffset, length]),
    );
  });

  it.each([1, 5, 256, 65_536])('are of %i bytes at most, and one byte more is refused', (most) => {
    const whole = concat(...encodeRecords([new Uint8Array(most)], most));
    expect(whole).toHaveLength(4 + most);
    expect(read([whole], most).content).toHaveLength(most);
    expect(encodeRecords([new Uint8Array(most + 1)], most).map(({ length }) => length)).toEqual([
      4,
      most,
      4,
      1,
    ]);
    const longer = concat(...encodeRecords([new Uint8Array(most + 1)], most + 1));
    expect(thrownBy(() => read([longer.subarray(0, 4)], most)).code).toBe('limit');
    expect(thrownBy(() => read([hex('ffffffff')], most)).code).toBe('limit');
  });

  it('have room for what both sides write', () => {
    expect(MAX_UPLOAD_RECORD_BYTES).toBe(4 * 1024 * 1024);
    expect(MAX_ACK_RECORD_BYTES).toBe(MAX_ACK_BYTES + 1);
  });

  it('give what came before bytes that are refused, and nothing afterwards', () => {
    for (const at of [[], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]]) {
      const content: number[] = [];
      const reader = createRecordReader(3, (piece) => void content.push(...piece));
      const bytes = concat(hex('00000002'), utf8('ok'), hex('00000004'), utf8('much'));
      expect(thrownBy(() => cut(bytes, at).forEach((piece) => reader.push(piece))).code).toBe('limit');
      expect(thrownBy(() => reader.push(hex('0000000161'))).code).toBe('dead');
      expect(content).toEqual(list(utf8('ok')));
      expect(reader.ended).toBe(false);
    }
  });

  it('end once', () => {
    for (const pieces of [[hex('00000000'), hex('00')], [hex('0000000000000000')]]) {
      const reader = createRecordReader(3, () => undefined);
      expect(thrownBy(() => pieces.forEach((piece) => reader.push(piece))).code).toBe('malformed');
      expect(reader.ended).toBe(true);
      expect(thrownBy(() => reader.push(hex(''))).code).toBe('dead');
    }
  });

  it('have not ended where the last lead is cut, and stop where their reader throws', () => {
    expect(read([hex('000000')]).ended).toBe(false);
    const reader = createRecordReader(3, () => {
      throw new RangeError('no more');
    });
    expect(() => reader.push(hex('0000000161'))).toThrow(RangeError);
    expect(thrownBy(() => reader.push(hex('61'))).code).toBe('dead');
  });
});
