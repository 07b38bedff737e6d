import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LineSplitter } from '../../../src/tsrecorder/intake/line-splitter.ts';

const LIMITS = { maxLineBytes: 1000, maxObjectBytes: 1000 };

function cut(text: string, sizes: readonly number[]): Uint8Array[] {
  const bytes = Buffer.from(text, 'latin1');
  const chunks: Uint8Array[] = [];
  let position = 0;
  for (let index = 0; position < bytes.length; index += 1) {
    const size = sizes[index % sizes.length] ?? 1;
    chunks.push(bytes.subarray(position, position + size));
    position += size;
  }
  return chunks;
}

const line = fc.oneof(
  fc.constant('[0.1,"o","x"]\n'),
  fc.constant('{"kind":"stream","name":"stderr"}\n'),
  fc.constant('\n'),
  fc.string({ unit: fc.constantFrom('{', '[', '}', ']', 'a', '"', '\r', '\u00e9'), maxLength: 20 }),
  fc.constant('# comment\n'),
);
const body = fc.array(line, { maxLength: 30 }).map((lines) => lines.join(''));
const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 8 });

describe('the line splitter', () => {
  it('reports the end of the last complete line', () => {
    fc.assert(
      fc.property(body, sizes, (text, cuts) => {
        const splitter = new LineSplitter(LIMITS);
        let cast = '';
        let whole = 0;
        for (const piece of cut(text, cuts).flatMap((chunk) => [...splitter.push(chunk)])) {
          if (piece.kind !== 'cast') continue;
          if (piece.completeBytes > 0) whole = cast.length + piece.completeBytes;
          cast += Buffer.from(piece.bytes).toString('latin1');
        }
        expect(whole).toBe(cast.lastIndexOf('\n') + 1);
      }),
    );
  });

  it.each(['[', '{'])(
    'accepts a line that starts with %s at its limit, and refuses one byte more',
    (first) => {
      const longest = `${first.padEnd(999, 'x')}\n`;
      expect(new LineSplitter(LIMITS).push(Buffer.from(longest))).toHaveLength(1);
      for (const cuts of [[1001], [1], [999, 1]]) {
        const splitter = new LineSplitter(LIMITS);
        const push = (): void =>
          cut(`${first.padEnd(1000, 'x')}\n`, cuts).forEach((chunk) => splitter.push(chunk));
        expect(push).toThrow(expect.objectContaining({ code: 'UPLOAD_TOO_LARGE' }));
        expect(() => splitter.push(Buffer.from('\n'))).toThrow('already refused');
      }
    },
  );

  it('reports whether an unfinished line lacks only its line feed', () => {
    const ending = (text: string): unknown => {
      const splitter = new LineSplitter(LIMITS);
      splitter.push(Buffer.from(text));
      return splitter.unfinished;
    };
    expect(ending('[1,"o","x"]')).toEqual({ kind: 'cast', event: true });
    expect(ending('[1,"o","x')).toEqual({ kind: 'cast', event: false });
    expect(ending('x]')).toEqual({ kind: 'cast', event: false });
    expect(ending('[1,"o","x"]\n')).toBeUndefined();
    expect(ending('{"a":1')).toEqual({ kind: 'object', line: Buffer.from('{"a":1') });
  });
});
