/**
 * Compares the row journal of recorded real programs with the screens of xterm: words, and the times at which they
 * were visible.
 */
import { describe, expect, it } from 'vitest';
import { castFixture, readCastLines } from '../support/search-text.ts';
import { createTerminalOracle } from '../support/terminal-oracle.ts';

/**
 * Words that search must find in each capture. Some were visible only briefly; others were replaced, scrolled away, or
 * shown on the alternate screen.
 */
const WORDS = {
  vim: ['transient acknowledged word', 'kestrel7', 'falcon7'],
  less: ['alabaster0', 'yarrow0', 'quicksilver6', 'nightjar7'],
  shell: ['secret-in-a-blink', 'kubectll', 'kubectl get pods'],
  tmux: ['windowone', 'zephyr0', 'dovetail1'],
  top: ['kestrel9', 'lapwing9', 'load average'],
} as const;
const TOLERANCE = 0.5;

/** Returns the start and end of a word's time on the screen of xterm. */
async function shownBetween(
  lines: readonly string[],
  word: string,
): Promise<readonly (readonly [number, number])[]> {
  const { width, height } = JSON.parse(lines[0]!) as { readonly width: number; readonly height: number };
  const oracle = createTerminalOracle(width, height);
  const shown: [number, number][] = [];
  let isShown = false;
  for (const line of lines.slice(1)) {
    const [seconds, code, text] = JSON.parse(line) as [number, string, string];
    if (code !== 'o') continue;
    if (isShown) shown.at(-1)![1] = seconds;
    // looks at the screen after each sequence, because one write may show a word and remove it again
    for (const piece of text.replaceAll('\x1b', '\0\x1b').split('\0')) {
      expect(await oracle.write(piece)).toBe(true);
      const isThere = oracle.screen().some((row) => row.includes(word));
      if (isThere && !isShown) shown.push([seconds, seconds]);
      isShown = isThere;
    }
  }
  oracle.dispose();
  return shown;
}

describe.each(Object.entries(WORDS))('a capture of %s', (name, words) => {
  it.each(words)('has %s, at a second at which it stood there', async (word) => {
    const lines = castFixture(name);
    const shown = await shownBetween(lines, word);
    expect(shown.length).toBeGreaterThan(0);
    const seconds = readCastLines(lines).rows.flatMap(({ at, text }) => (text.includes(word) ? [at] : []));
    expect(seconds.length).toBeGreaterThan(0);
    for (const at of seconds)
      expect(
        shown.some(([from, to]) => at >= from - TOLERANCE && at <= to + TOLERANCE),
        `${at} ${JSON.stringify(shown)}`,
      ).toBe(true);
    // the first hit belongs to the first time at which the word was visible
    expect(seconds[0]).toBeLessThanOrEqual(shown[0]![1] + TOLERANCE);
  });
});

it('a process that left top is found as long as it was there, and the other one to the end', () => {
  const { rows } = readCastLines(castFixture('top'));
  const last = (word: string): number => rows.findLast(({ text }) => text.includes(word))!.at;
  expect(last('kestrel9')).toBeLessThan(3);
  expect(last('lapwing9')).toBeLessThan(6);
  expect(rows.filter(({ text }) => text.includes('kestrel9')).length).toBeLessThan(
    rows.filter(({ text }) => text.includes('load average')).length,
  );
});
