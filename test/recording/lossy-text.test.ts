import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { decodeLossy } from '../../src/recording/lossy-text.ts';

const oracle = new TextDecoder('utf-8', { ignoreBOM: true });

describe('decodeLossy', () => {
  it('gives what TextDecoder gives for any bytes', () => {
    fc.assert(
      fc.property(fc.uint8Array({ maxLength: 64 }), (bytes) => {
        expect(decodeLossy(bytes)).toBe(oracle.decode(bytes));
      }),
      { numRuns: 2_000 },
    );
  });

  it('gives what TextDecoder gives for text with broken places', () => {
    // Bytes at the edges of what may lead and follow, where decoders differ.
    const edges = [
      0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0,
      0xf1, 0xf4, 0xf5, 0xff,
    ];
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...edges), { maxLength: 12 }), (bytes) => {
        expect(decodeLossy(Uint8Array.from(bytes))).toBe(oracle.decode(Uint8Array.from(bytes)));
      }),
      { numRuns: 5_000 },
    );
  });

  it('reads a view into a larger buffer', () => {
    const bytes = new TextEncoder().encode('xx€😀ÿ').subarray(2);
    expect(decodeLossy(bytes)).toBe('€😀ÿ');
  });
});
