import { readFileSync } from 'node:fs';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { MODULE_PATH, wasmModule } from '../../../scripts/generate-wasm.ts';
import { escapeJson } from '../../../src/wire/asciicast/json-escape.ts';

function escaped(text: Uint8Array): string {
  const pieces: Buffer[] = [];
  escapeJson(text, (piece) => pieces.push(Buffer.from(piece)));
  return Buffer.concat(pieces).toString('latin1');
}

const expected = (text: Uint8Array): string =>
  JSON.stringify(Buffer.from(text).toString('latin1')).slice(1, -1);

/** Bytes that must be escaped, and their neighbours. */
const near = fc.constantFrom(
  0x00,
  0x08,
  0x0a,
  0x1b,
  0x1f,
  0x20,
  0x21,
  0x22,
  0x23,
  0x5b,
  0x5c,
  0x5d,
  0x7f,
  0x80,
  0xff,
);

describe('text as the inside of a JSON string', () => {
  it('is what JSON.stringify writes, for every byte', () => {
    for (let byte = 0; byte < 256; byte += 1) {
      expect(escaped(Uint8Array.of(byte))).toBe(expected(Uint8Array.of(byte)));
    }
  });

  it('is what JSON.stringify writes, for any bytes', () => {
    const bytes = fc.array(fc.oneof(near, fc.constant(0x61), fc.nat(255)), { maxLength: 100 });
    fc.assert(
      fc.property(bytes, (values) => {
        const text = Uint8Array.from(values);
        expect(escaped(text)).toBe(expected(text));
      }),
      { numRuns: 2000 },
    );
  });

  it('finds a byte that must be escaped at every place among plain ones', () => {
    for (let length = 0; length < 100; length += 1) {
      for (let at = 0; at < length; at += 1) {
        const text = new Uint8Array(length).fill(0x61);
        text[at] = 0x0a;
        expect(escaped(text)).toBe(expected(text));
      }
    }
  });

  it('goes on where a piece ends', () => {
    const piece = 64 * 1024;
    for (const length of [piece - 1, piece, piece + 1, 2 * piece, 2 * piece + 17]) {
      for (const byte of [0x61, 0x01, 0x22]) {
        const text = new Uint8Array(length).fill(byte);
        expect(escaped(text) === expected(text), `${length} times ${byte}`).toBe(true);
      }
    }
  });

  it('does not see what an earlier text left behind its own', () => {
    escaped(new Uint8Array(64).fill(0x22));
    expect(escaped(Uint8Array.of(0x61))).toBe('a');
    expect(escaped(new Uint8Array(0))).toBe('');
  });

  it('is made of the program beside it', async () => {
    expect(readFileSync(MODULE_PATH, 'utf8')).toBe(await wasmModule());
  });
});
