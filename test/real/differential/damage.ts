/** Bytes that almost are what they should be, and ways to feed them. */
import type { Random } from './random.ts';

/** A few small changes: flipped bits, bytes set, inserted, removed, doubled or moved. */
export function damage(random: Random, bytes: Uint8Array): Uint8Array {
  let damaged = bytes;
  for (let changes = 1 + random.below(3); changes > 0; changes--) damaged = change(random, damaged);
  return damaged;
}

const EDGES = [0, 1, 2, 3, 4, 8, 0x10, 0x7e, 0x7f, 0x80, 0x81, 0x82, 0x8a, 0xfe, 0xff] as const;

function change(random: Random, bytes: Uint8Array): Uint8Array {
  const at = random.below(bytes.length + 1);
  const span = 1 + random.below(random.oneIn(3) ? 40 : 4);
  switch (random.below(7)) {
    case 0:
      return join(bytes.subarray(0, at), bytes.subarray(at + span));
    case 1:
      return join(bytes.subarray(0, at), random.bytes(span), bytes.subarray(at));
    case 2:
      return join(bytes.subarray(0, at), bytes.subarray(at, at + span), bytes.subarray(at));
    case 3: {
      const from = random.below(bytes.length + 1);
      return join(bytes.subarray(0, at), bytes.subarray(from, from + span), bytes.subarray(at));
    }
    default:
      return withByte(bytes, at, (byte) =>
        random.oneIn(2) ? byte ^ (1 << random.below(8)) : random.oneIn(3) ? byte + 1 : random.pick(EDGES),
      );
  }
}

function withByte(bytes: Uint8Array, at: number, replace: (byte: number) => number): Uint8Array {
  const copy = Uint8Array.from(bytes);
  if (at < copy.length) copy[at] = replace(copy[at] ?? 0);
  return copy;
}

export function join(...parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

/** Cuts bytes as a network might. */
export function segments(random: Random, bytes: Uint8Array): readonly Uint8Array[] {
  if (random.oneIn(3)) return [bytes];
  const most = bytes.length > 2_000 ? 400 : random.pick([1, 3, 20, 400]);
  const cut: Uint8Array[] = [];
  for (let at = 0; at < bytes.length;) {
    const length = 1 + random.below(most);
    cut.push(bytes.slice(at, at + length));
    at += length;
  }
  return cut;
}

/** Pushes every segment; what came out before the parser refused, and whether it did. */
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
 * How our list of what was read stands to theirs. `different`: at some place the two read different things, which must
 * never happen. `longer`: we went on where they had refused.
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

/** Counts by name, sorted, for the line that a test prints. */
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
