import { describe, expect, it } from 'vitest';
import { PICTOGRAPHIC_PATTERN, rangesOf, ZERO_WIDTH_PATTERN } from '../../scripts/generate-code-points.ts';
import { cellWidth, CLUSTER, joinCluster, type Cluster } from '../../src/terminal/cell-width.ts';
import { PICTOGRAPHIC, ZERO_WIDTH } from '../../src/terminal/code-points.ts';

/** Returns the columns of a text at the start of a line. */
function columnsOf(text: string): number {
  let columns = 0;
  let before: Cluster = CLUSTER.none;
  for (const character of text) {
    const code = character.codePointAt(0) ?? 0;
    const { isJoined, cluster } = joinCluster(before, code);
    if (!isJoined) columns += Math.max(1, cellWidth(code));
    before = cluster;
  }
  return columns;
}

describe('cell widths', () => {
  it('have the data of Unicode 17', () => {
    // another version of Node.js may contain another version of Unicode
    const isSame = process.versions['unicode'] === '17.0';
    expect(isSame ? ZERO_WIDTH : []).toEqual(isSame ? rangesOf(ZERO_WIDTH_PATTERN) : []);
    expect(isSame ? PICTOGRAPHIC : []).toEqual(isSame ? rangesOf(PICTOGRAPHIC_PATTERN) : []);
    expect(ZERO_WIDTH.length).toBeGreaterThan(600);
  });

  it.each([
    ['a', 1],
    ['日本', 4],
    ['각', 2],
    ['e\u0301', 1],
    ['🎉ab', 4],
    ['✅', 2],
    ['❤', 1],
    ['❤\ufe0f', 1],
    ['1\ufe0f\u20e3', 1],
    ['👍🏽', 2],
    ['👨‍👩‍👧', 2],
    ['a\u200db', 2],
    ['🎉\u200da', 3],
    ['🇩🇪🇫🇷', 4],
    ['\u{1fae8}\u{1faea}', 4],
    ['\u{1f3f4}\u{e0067}\u{e0062}\u{e007f}', 2],
    ['x\u200by', 2],
    ['x\u00ad', 2],
  ])('of %j are %i columns', (text, columns) => {
    expect(columnsOf(text)).toBe(columns);
  });
});
