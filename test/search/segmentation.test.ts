/**
 * Tests that search gets the same rows of text, whatever the sizes of the program's writes and of the pieces in which a
 * cast is read.
 */
import { describe, expect, it } from 'vitest';
import { createRandom, runSeed } from '../support/random.ts';
import { castFixture, readWrites, type Write } from '../support/search-text.ts';
import { terminalPiece } from '../support/terminal-oracle.ts';

/** Yields all ways to cut n characters into writes: 2^(n - 1) ways. */
function* segmentations(characters: readonly string[]): Generator<readonly string[]> {
  for (let cuts = 0; cuts < 2 ** (characters.length - 1); cuts += 1) {
    const pieces: string[] = [];
    let piece = '';
    for (const [at, character] of characters.entries()) {
      piece += character;
      if (((cuts >> at) & 1) === 1) {
        pieces.push(piece);
        piece = '';
      }
    }
    yield [...pieces, piece];
  }
}

const read = (pieces: readonly string[], columns = 12, rows = 3) =>
  readWrites(
    pieces.map((piece): Write => [1, piece]),
    columns,
    rows,
  );

describe('the rows of short output', () => {
  it.each([
    ['a colour in a word', 'ab\x1b[1;31mcd'],
    ['a word that is overwritten', 'secret\rpubl'],
    ['a word that is erased', 'secret\x1b[2Kx'],
    ['a new line in the last row', '\x1b[3;1Hab\r\ncd\r\n'],
    ['wide characters at the margin', '\x1b[1;11H日本語x'],
    ['marks on a character', 'cafe\u0301\u0302 x\u0301\by'],
    ['joined emoji', 'a\u{1f468}\u200d\u{1f469}\u200d\u{1f467}b'],
    ['a name that ends by ST', '\x1b]133;B\x1b\\ls\r\n'],
    ['the other screen', '\x1b[?47hab\x1b[?47lc'],
    ['a sequence that is broken off', 'a\x1b[3\x1b[1mb\x18c'],
  ])('do not depend on where it is cut, wherever that is: %s', (_what, output) => {
    const characters = Array.from(output);
    const wanted = read([output]);
    expect(wanted.rows.length).toBeGreaterThan(0);
    let tried = 0;
    for (const pieces of segmentations(characters)) {
      expect(read(pieces), JSON.stringify(pieces)).toEqual(wanted);
      tried += 1;
    }
    expect(tried).toBe(2 ** (characters.length - 1));
  });
});

describe('the rows of long output', () => {
  /** Cuts at random between characters. */
  function cutAtRandom(text: string, random: ReturnType<typeof createRandom>): readonly string[] {
    const characters = Array.from(text);
    const pieces: string[] = [];
    for (let at = 0; at < characters.length;) {
      const length = 1 + random.below(random.oneIn(4) ? 40 : 4);
      pieces.push(characters.slice(at, at + length).join(''));
      at += length;
    }
    return pieces;
  }

  it('do not depend on where it is cut, at random', () => {
    const seed = runSeed();
    const random = createRandom(seed);
    for (let round = 0; round < 300; round += 1) {
      const output = Array.from({ length: 30 }, () => terminalPiece(random)).join('');
      const wanted = read([output], 20, 5);
      for (let cut = 0; cut < 3; cut += 1)
        expect(read(cutAtRandom(output, random), 20, 5), `seed ${seed}: ${JSON.stringify(output)}`).toEqual(
          wanted,
        );
    }
  });

  it.each(['vim', 'less', 'shell', 'tmux', 'top'])('of %s do not either', (name) => {
    const seed = runSeed();
    const random = createRandom(seed);
    const events = castFixture(name)
      .slice(1)
      .map((line) => JSON.parse(line) as [number, string, string])
      .filter(([, code]) => code === 'o');
    const whole = readWrites(
      events.map(([seconds, , text]): Write => [seconds, text]),
      80,
      24,
    );
    const cut = events.flatMap(([seconds, , text]) =>
      cutAtRandom(text, random).map((piece): Write => [seconds, piece]),
    );
    expect(cut.length).toBeGreaterThan(events.length);
    expect(readWrites(cut, 80, 24), `seed ${seed}`).toEqual(whole);
  });
});
