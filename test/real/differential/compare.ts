/** Compares two parsers' results for one input. */

/** Pushes every chunk to the parser. Returns the parsed pieces, and whether the parser rejected the input. */
export function feed<Piece>(
  parser: { push(chunk: Uint8Array): readonly Piece[] },
  chunks: readonly Uint8Array[],
): { readonly pieces: readonly Piece[]; readonly refused: Error | undefined } {
  const pieces: Piece[] = [];
  for (const chunk of chunks) {
    try {
      pieces.push(...parser.push(chunk));
    } catch (error) {
      return { pieces, refused: error as Error };
    }
  }
  return { pieces, refused: undefined };
}

/**
 * Compares the pieces of tailcast's parser with those of the oracle. `different`: two pieces differ, which is a defect.
 * `longer`: tailcast's parser continued after the oracle had rejected the input.
 */
export function relation(
  ours: readonly unknown[],
  theirs: readonly unknown[],
): 'equal' | 'shorter' | 'longer' | 'different' {
  for (let index = 0; index < Math.min(ours.length, theirs.length); index++) {
    if (JSON.stringify(ours[index]) !== JSON.stringify(theirs[index])) return 'different';
  }
  if (ours.length === theirs.length) return 'equal';
  return ours.length < theirs.length ? 'shorter' : 'longer';
}

/** Creates counters by name. A test prints them, sorted by name, as its summary. */
export function createTally(): {
  add(name: string): void;
  readonly counts: Readonly<Record<string, number>>;
} {
  const counts = new Map<string, number>();
  return {
    add(name) {
      counts.set(name, (counts.get(name) ?? 0) + 1);
    },
    get counts() {
      return Object.fromEntries([...counts].toSorted(([a], [b]) => (a < b ? -1 : 1)));
    },
  };
}
