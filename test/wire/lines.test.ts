import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readLines, readTextLines } from '../../src/wire/lines.ts';

async function* chunksOf(...chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks;
}

async function linesOf(chunks: readonly Uint8Array[], maxBytes?: number): Promise<string[]> {
  const found: string[] = [];
  for await (const lines of readLines(chunksOf(...chunks), maxBytes))
    for (const line of lines) found.push(Buffer.from(line).toString('latin1'));
  return found;
}

const bytes = (text: string): Uint8Array => Buffer.from(text);

describe('lines of a stream', () => {
  it('are the same however the stream is cut', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.constantFrom('a', 'é', '\n', '\r', '\u2028', 'longer'), { maxLength: 30 }),
        fc.array(fc.nat({ max: 60 }), { maxLength: 6 }),
        async (tokens, cuts) => {
          const whole = bytes(tokens.join(''));
          const places = [0, ...cuts.filter((at) => at < whole.length).toSorted((a, b) => a - b)];
          const chunks = places.map((at, index) => whole.subarray(at, places[index + 1] ?? whole.length));
          const expected = Buffer.from(whole).toString('latin1').split('\n');
          if (expected.at(-1) === '') expected.pop();
          expect(await linesOf(chunks)).toEqual(expected);
        },
      ),
    );
  });

  it('keep empty lines, and a last one that was not ended', async () => {
    expect(await linesOf([bytes('a\n\nb')])).toEqual(['a', '', 'b']);
    expect(await linesOf([bytes('a\n')])).toEqual(['a']);
    expect(await linesOf([])).toEqual([]);
  });

  it.each([
    ['in one chunk', ['12345\n']],
    ['over chunks', ['123', '45\n']],
    ['without an end', ['123', '45']],
  ])('are refused when they are too long, %s', async (_name, texts) => {
    const chunks = texts.map(bytes);
    await expect(linesOf(chunks, 4)).rejects.toThrow('a line is longer than 4 bytes');
    await expect(linesOf(chunks, 5)).resolves.toEqual(['12345']);
  });

  it('come as text, a character that two chunks share included', async () => {
    const [head, tail] = [bytes('[é').subarray(0, 2), bytes('[é').subarray(2)];
    const found: string[] = [];
    for await (const line of readTextLines(chunksOf(head, tail, bytes(']\nb'), Buffer.from([0xff])), 100))
      found.push(line);
    expect(found).toEqual(['[é]', 'b\ufffd']);
  });
});
