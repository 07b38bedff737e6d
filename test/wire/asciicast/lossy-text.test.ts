import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { encodeLossy, LOSSY_SLACK_BYTES, MAX_ESCAPED_BYTES } from '../../../src/wire/asciicast/lossy-text.ts';

const oracle = new TextDecoder('utf-8', { ignoreBOM: true });

/** Encodes bytes as the content of a JSON string, as the recorder does. */
function encoded(bytes: Uint8Array): Buffer {
  const target = Buffer.alloc(MAX_ESCAPED_BYTES * bytes.length + LOSSY_SLACK_BYTES + 1, 0xaa);
  const end = encodeLossy(bytes, target, 1);
  expect(target[0]).toBe(0xaa);
  return target.subarray(1, end);
}

function expected(bytes: Uint8Array): Buffer {
  return Buffer.from(JSON.stringify(oracle.decode(bytes)).slice(1, -1));
}

describe('encodeLossy', () => {
  it('gives what TextDecoder and JSON.stringify give for any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        expect(encoded(bytes).toString('latin1')).toBe(expected(bytes).toString('latin1'));
      }),
      { numRuns: 2_000 },
    );
  });

  it('gives what they give for text with broken places', () => {
    // Bytes at the limits of valid lead and continuation bytes, where decoders differ.
    const edges = [
      0x00, 0x1f, 0x22, 0x41, 0x5c, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0,
      0xe1, 0xed, 0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff,
    ];
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...edges), { maxLength: 12 }), (bytes) => {
        const array = Uint8Array.from(bytes);
        expect(encoded(array).toString('latin1')).toBe(expected(array).toString('latin1'));
      }),
      { numRuns: 10_000 },
    );
  });

  it('agrees on every pair of bytes, before and between text', () => {
    const wrong: string[] = [];
    for (let pair = 0; pair < 0x1_0000; pair += 1) {
      const bytes = Uint8Array.of(0x61, pair >> 8, pair & 0xff, 0x80, 0x62);
      if (encoded(bytes).compare(expected(bytes)) !== 0) wrong.push(pair.toString(16));
    }
    expect(wrong).toEqual([]);
  });

  it('reads a view into a larger buffer, and nothing of what lies behind it', () => {
    const bytes = Buffer.from('xx€😀ÿ').subarray(2);
    expect(encoded(bytes).toString()).toBe('€😀ÿ');
    expect(encoded(bytes.subarray(0, 2)).toString()).toBe('\ufffd');
  });
});
