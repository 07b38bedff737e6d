/**
 * Returns the width of characters in a terminal, and finds characters that share a cell. The player, keyframes,
 * transcripts, search and `tailcast play` share these rules. The data are from Unicode 17. Pure.
 */
import { PICTOGRAPHIC, ZERO_WIDTH } from './code-points.ts';

/**
 * Wide and fullwidth ranges of EastAsianWidth, and the characters shown as emoji: pairs of the first and last code
 * point.
 */
const WIDE = [
  0x1100, 0x115f, 0x231a, 0x231b, 0x2329, 0x232a, 0x23e9, 0x23ec, 0x23f0, 0x23f0, 0x23f3, 0x23f3, 0x25fd,
  0x25fe, 0x2614, 0x2615, 0x2630, 0x2637, 0x2648, 0x2653, 0x267f, 0x267f, 0x268a, 0x268f, 0x2693, 0x2693,
  0x26a1, 0x26a1, 0x26aa, 0x26ab, 0x26bd, 0x26be, 0x26c4, 0x26c5, 0x26ce, 0x26ce, 0x26d4, 0x26d4, 0x26ea,
  0x26ea, 0x26f2, 0x26f3, 0x26f5, 0x26f5, 0x26fa, 0x26fa, 0x26fd, 0x26fd, 0x2705, 0x2705, 0x270a, 0x270b,
  0x2728, 0x2728, 0x274c, 0x274c, 0x274e, 0x274e, 0x2753, 0x2755, 0x2757, 0x2757, 0x2795, 0x2797, 0x27b0,
  0x27b0, 0x27bf, 0x27bf, 0x2b1b, 0x2b1c, 0x2b50, 0x2b50, 0x2b55, 0x2b55, 0x2e80, 0x303e, 0x3041, 0x3247,
  0x3250, 0xa4c6, 0xa960, 0xa97c, 0xac00, 0xd7a3, 0xf900, 0xfaff, 0xfe10, 0xfe19, 0xfe30, 0xfe6b, 0xff01,
  0xff60, 0xffe0, 0xffe6, 0x16fe0, 0x18d1e, 0x18d80, 0x18df2, 0x1aff0, 0x1b2ff, 0x1d300, 0x1d356, 0x1d360,
  0x1d376, 0x1f004, 0x1f004, 0x1f0cf, 0x1f0cf, 0x1f18e, 0x1f18e, 0x1f191, 0x1f19a, 0x1f1e6, 0x1f202, 0x1f210,
  0x1f23b, 0x1f240, 0x1f248, 0x1f250, 0x1f251, 0x1f260, 0x1f265, 0x1f300, 0x1f320, 0x1f32d, 0x1f335, 0x1f337,
  0x1f37c, 0x1f37e, 0x1f393, 0x1f3a0, 0x1f3ca, 0x1f3cf, 0x1f3d3, 0x1f3e0, 0x1f3f0, 0x1f3f4, 0x1f3f4, 0x1f3f8,
  0x1f43e, 0x1f440, 0x1f440, 0x1f442, 0x1f4fc, 0x1f4ff, 0x1f53d, 0x1f54b, 0x1f54e, 0x1f550, 0x1f567, 0x1f57a,
  0x1f57a, 0x1f595, 0x1f596, 0x1f5a4, 0x1f5a4, 0x1f5fb, 0x1f64f, 0x1f680, 0x1f6c5, 0x1f6cc, 0x1f6cc, 0x1f6d0,
  0x1f6d2, 0x1f6d5, 0x1f6d8, 0x1f6dc, 0x1f6df, 0x1f6eb, 0x1f6ec, 0x1f6f4, 0x1f6fc, 0x1f7e0, 0x1f7eb, 0x1f7f0,
  0x1f7f0, 0x1f90c, 0x1f93a, 0x1f93c, 0x1f945, 0x1f947, 0x1f9ff, 0x1fa70, 0x1faff, 0x20000, 0x2fffd, 0x30000,
  0x3fffd,
];
const JOINER = 0x200d;
/** Cached widths of the characters below 0x10000; 3 means not yet known. */
const known = new Uint8Array(0x10000).fill(3);

/** Returns the width of a character in columns: 1, 2, or 0 for a character that joins the previous one. */
export function cellWidth(codePoint: number): 0 | 1 | 2 {
  if (codePoint < 0x300) return 1;
  if (codePoint > 0xffff) return findWidth(codePoint);
  const width = known[codePoint];
  if (width === 0 || width === 1 || width === 2) return width;
  const found = findWidth(codePoint);
  known[codePoint] = found;
  return found;
}

function findWidth(codePoint: number): 0 | 1 | 2 {
  if (isInRanges(ZERO_WIDTH, codePoint)) return 0;
  return isInRanges(WIDE, codePoint) ? 2 : 1;
}

function isInRanges(ranges: readonly number[], codePoint: number): boolean {
  let low = 0;
  let high = ranges.length / 2;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ranges[middle * 2 + 1] ?? 0) < codePoint) low = middle + 1;
    else high = middle;
  }
  return codePoint >= (ranges[low * 2] ?? Infinity);
}

/**
 * Content of the last cell: nothing, a character, an emoji, an emoji with a joiner, or the first half of a flag emoji.
 * The content decides whether the next character joins the cell.
 */
export const CLUSTER = { none: 0, character: 1, emoji: 2, joined: 3, flag: 4 } as const;
export type Cluster = (typeof CLUSTER)[keyof typeof CLUSTER];

/**
 * Adds a character to the last cell, or starts a new cell. Characters of one extended grapheme cluster (UAX #29) share
 * a cell only if terminals also show them in one cell.
 *
 * @returns the new state, and whether the character shares the last cell.
 */
export function joinCluster(
  before: Cluster,
  codePoint: number,
): { readonly isJoined: boolean; readonly cluster: Cluster } {
  if (codePoint < 0x300) return SINGLE;
  if (before !== CLUSTER.none && cellWidth(codePoint) === 0) {
    const isEmoji = before === CLUSTER.emoji || before === CLUSTER.joined;
    if (!isEmoji) return JOINED_CHARACTER;
    return codePoint === JOINER ? JOINED_JOINER : JOINED_EMOJI;
  }
  if (codePoint >= 0x1f1e6 && codePoint <= 0x1f1ff) return before === CLUSTER.flag ? JOINED_CHARACTER : FLAG;
  if (codePoint >= 0x1f3fb && codePoint <= 0x1f3ff && before === CLUSTER.emoji) return JOINED_EMOJI;
  if (!isPictographic(codePoint)) return SINGLE;
  return before === CLUSTER.joined ? JOINED_EMOJI : EMOJI;
}

/** The first emoji is U+203C, so most characters need no further checks. */
function isPictographic(codePoint: number): boolean {
  return codePoint >= 0x203c && isInRanges(PICTOGRAPHIC, codePoint);
}

const SINGLE = { isJoined: false, cluster: CLUSTER.character } as const;
const EMOJI = { isJoined: false, cluster: CLUSTER.emoji } as const;
const FLAG = { isJoined: false, cluster: CLUSTER.flag } as const;
const JOINED_CHARACTER = { isJoined: true, cluster: CLUSTER.character } as const;
const JOINED_EMOJI = { isJoined: true, cluster: CLUSTER.emoji } as const;
const JOINED_JOINER = { isJoined: true, cluster: CLUSTER.joined } as const;
