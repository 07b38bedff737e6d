import { isUtf8 } from 'node:buffer';
import { describe, expect, it } from 'vitest';
import { OutputText } from '../../src/recording/output-text.ts';

/** Returns the lines for output in these pieces. Binary lines are shown as hex. */
function linesOf(pieces: readonly Uint8Array[], maxLineBytes = 100): readonly string[] {
  const lines: string[] = [];
  const output = new OutputText(maxLineBytes);
  const emit = (bytes: Uint8Array): void =>
    void lines.push(
      isUtf8(bytes) ? Buffer.from(bytes).toString() : `raw ${Buffer.from(bytes).toString('hex')}`,
    );
  for (const piece of pieces) output.push(piece, emit);
  output.flush(emit);
  return lines;
}
const oneByOne = (bytes: Uint8Array): Uint8Array[] => Array.from(bytes, (byte) => Uint8Array.of(byte));

describe('the text of an output stream', () => {
  it.each(['\u0080', '\u07ff', '\u0800', '\ud7ff', '\uffff', '\u{10000}', '\u{10ffff}'])(
    'joins the parts of a character that was split at any position: %j',
    (character) => {
      expect(linesOf(oneByOne(Buffer.from(`${character}b`)))).toEqual([character, 'b']);
      expect(linesOf(oneByOne(Buffer.from(`a${character}`)))).toEqual(['a', character]);
    },
  );

  it.each([0x80, 0xbf, 0xc0, 0xc1, 0xf5, 0xff])(
    'does not wait for more bytes after an invalid first byte: %i',
    (byte) => {
      expect(linesOf([Uint8Array.of(byte), Buffer.from('x')])).toEqual([`raw ${byte.toString(16)}`, 'x']);
    },
  );

  it('shows the rest of a character when the stream has ended', () => {
    expect(linesOf([Buffer.from('aé').subarray(0, 2)])).toEqual(['a', 'raw c3']);
  });

  it('keeps back nothing of binary output, and a possibly incomplete character of text', () => {
    const lines: string[] = [];
    const asked: string[] = [];
    const output = new OutputText(100);
    const push = (hex: string, isBulk: boolean): void =>
      output.push(
        Buffer.from(hex, 'hex'),
        (bytes) => void lines.push(Buffer.from(bytes).toString('hex')),
        (bytes) => {
          asked.push(Buffer.from(bytes).toString('hex'));
          return isBulk;
        },
      );
    push('ffc3', false);
    push('a9ffe282', true);
    push('acff', true);
    expect(lines).toEqual(['ff', 'c3a9ffe282', 'acff']);
    // `acff` does not end with an incomplete character, so the callback is not called
    expect(asked).toEqual(['ff', 'c3a9ff']);
  });

  it('does not copy large output to complete a character before it', () => {
    const much = Buffer.alloc(4096, 'x');
    const lines: Uint8Array[] = [];
    const output = new OutputText(8192);
    output.push(Buffer.from('é').subarray(0, 1), (bytes) => void lines.push(bytes));
    const second = Buffer.concat([Buffer.from('é').subarray(1), much]);
    output.push(second, (bytes) => void lines.push(bytes));
    expect(lines.map((line) => Buffer.from(line).toString())).toEqual(['é', much.toString()]);
    expect(lines[1]?.buffer).toBe(second.buffer);
    expect(lines[1]?.byteOffset).toBe(second.byteOffset + 1);
  });

  it.each([
    ['e282', 'ac', ['€', 'x']],
    ['f0', '9f9880', ['😀', 'x']],
    ['f09f', '98', ['raw f09f98', 'x']],
    ['e282', '', ['raw e282', 'x']],
    ['c3', 'a980', ['é', 'raw 80']],
    ['', 'c3a9', ['é']],
  ])(
    'completes a character before large output as before small output: %s then %s',
    (before, then, expected) => {
      const rest = Buffer.concat([Buffer.from(then, 'hex'), Buffer.alloc(4096, 'x')]);
      const lines = linesOf([Buffer.from(before, 'hex'), rest], 8192);
      const short = lines.map((line) => line.replace(/x{4094,}/, 'x').replace(/(78){4094,}/, ''));
      expect(short).toEqual(before === '' ? ['éx'] : expected);
    },
  );

  it('splits long output between characters', () => {
    expect(linesOf([Buffer.from('abcé')], 4)).toEqual(['abc', 'é']);
    expect(linesOf([Buffer.from('abcdefg')], 4)).toEqual(['abcd', 'efg']);
    expect(linesOf([Buffer.from('😀😀')], 5)).toEqual(['😀', '😀']);
  });
});
