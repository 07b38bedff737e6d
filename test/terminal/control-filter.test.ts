import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ControlFilter } from '../../src/terminal/control-filter.ts';
import { MAX_STRING } from '../../src/terminal/escape-parser.ts';

const SOUP = Array.from('\x1b[]Pk\\\x071;mH?haé🎉\r\n\x18\x9b\x90\x9c\x7f (0');
const SIZE = { columns: 80, rows: 24 };

function filtered(text: string, isLines = false): string {
  const filter = new ControlFilter({ ...SIZE, isLines });
  return filter.push(text) + filter.end();
}

describe('the control filter', () => {
  it.each([
    ['\x1b[2147483647S', '\x1b[24S'],
    ['\x1b[2147483647T', '\x1b[24T'],
    ['\x1b[2147483647L', '\x1b[24L'],
    ['\x1b[2147483647M', '\x1b[24M'],
    ['\x1b[2147483647I', '\x1b[80I'],
    ['\x1b[2147483647Z', '\x1b[80Z'],
    ['\x1b[2147483647@', '\x1b[80@'],
    ['x\x1b[2147483647b', 'x\x1b[80b'],
    ['\x1b[999;999H', '\x1b[80;80H'],
    ["\x1b[99999'}", "\x1b[80'}"],
    ['\x1b[?1049h', '\x1b[?1049h'],
    ['\x1b[38:2::255:128:7m', '\x1b[38:2::255:128:7m'],
    ['\x9b5A', '\x1b[5A'],
  ])('limits the parameters of %j to the screen', (text, expected) => {
    expect(filtered(text)).toBe(expected);
  });

  it('limits parameters to a new size of the screen', () => {
    const filter = new ControlFilter({ ...SIZE, isLines: false });
    filter.resize(200, 50);
    expect(filter.push('\x1b[999S\x1b[999C')).toBe('\x1b[50S\x1b[200C');
  });

  it.each(['\x1bP', '\x1b]', '\x1b_', '\x1b^', '\x1bX', '\x1bk', '\u0090', '\u009d', '\u0098', '\u009f'])(
    'treats a control string that begins with %j as text when it has no end',
    (begin) => {
      expect(filtered(`a${begin}secret\r\nmore`)).toBe('asecret\r\nmore');
      const long = 'x'.repeat(MAX_STRING + 1);
      const filter = new ControlFilter({ ...SIZE, isLines: false });
      expect(filter.push(`${begin}${long}`)).toBe(long);
      expect(filter.push('next')).toBe('next');
    },
  );

  it.each(['\x1bPq\x1b\\', '\x1b]0;title\x07', '\x1b]0;title\x1b\\', '\x1bktitle\x1b\\', '\x1b_x\x9c'])(
    'removes the complete control string %j',
    (text) => {
      expect(filtered(`a${text}b`).replaceAll('\x1b\\', '')).toBe('ab');
    },
  );

  it('removes DEL and NUL, which parsers report as errors', () => {
    expect(filtered('a\x7f\x7fb\x00c')).toBe('abc');
  });

  it('writes lines without a terminal: nothing moves the cursor, nothing is hidden', () => {
    expect(filtered('one\ntwo\r\n10%\r20%\r\n', true)).toBe('one\r\ntwo\r\n10%\r\n20%\r\n');
    expect(filtered('a\x1b[2J\x1b[H\x1b(0b\x1b]0;c\x07\x1b[31md', true)).toBe('ab0;c\x1b[31md');
  });

  it('returns the same output wherever the input is cut', () => {
    const unit = fc.constantFrom(...SOUP);
    fc.assert(
      fc.property(fc.array(fc.string({ unit, maxLength: 12 })), fc.boolean(), (pieces, isLines) => {
        const filter = new ControlFilter({ ...SIZE, isLines });
        const cut = pieces.map((piece) => filter.push(piece)).join('') + filter.end();
        expect(cut).toBe(filtered(pieces.join(''), isLines));
      }),
      { numRuns: 2000 },
    );
  });

  it('keeps its own output as it is', () => {
    const unit = fc.constantFrom(
      '\x1b',
      '[',
      ']',
      'P',
      '\\',
      '\x07',
      '9',
      ';',
      'S',
      'a',
      '\r',
      '\x9b',
      '\x90',
    );
    fc.assert(
      fc.property(fc.string({ unit, maxLength: 80 }), (text) => {
        const once = filtered(text);
        expect(filtered(once)).toBe(once);
      }),
      { numRuns: 2000 },
    );
  });
});
