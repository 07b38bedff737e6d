import fc from 'fast-check';

/**
 * Parses hex with optional spaces. The result is a Uint8Array with a non-zero `byteOffset`, so that tests detect code
 * that ignores the offset.
 */
export function hex(...parts: readonly string[]): Uint8Array {
  const plain = Buffer.from(parts.join('').replaceAll(' ', ''), 'hex');
  const shifted = new Uint8Array(plain.length + 3).fill(0xee);
  shifted.set(plain, 3);
  return shifted.subarray(3);
}

export function utf8(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}

export function concat(...parts: readonly Uint8Array[]): Uint8Array {
  return new Uint8Array(Buffer.concat(parts));
}

/** Returns plain numbers, for comparisons that ignore the kind of array. */
export function list(bytes: Uint8Array): readonly number[] {
  return [...bytes];
}

/** Cuts bytes at positions in any order. Positions out of range are ignored, and empty segments are kept. */
export function cut(bytes: Uint8Array, at: readonly number[]): readonly Uint8Array[] {
  const places = [0, ...at.filter((place) => place <= bytes.length).toSorted((a, b) => a - b), bytes.length];
  return places.slice(1).map((place, index) => bytes.subarray(places[index], place));
}

/** Returns positions to cut: a few, all, or none. */
export function cuts(length: number): fc.Arbitrary<readonly number[]> {
  const everywhere = Array.from({ length }, (_, index) => index);
  return fc.oneof(
    fc.array(fc.integer({ min: 0, max: Math.max(length, 1) }), { maxLength: 12 }),
    fc.constant(everywhere),
    fc.constant([]),
  );
}

/** Returns the error of a call; fails if the call throws nothing. */
export function thrownBy(call: () => unknown): { readonly code?: string; readonly cause?: unknown } {
  try {
    call();
  } catch (error) {
    return error as { readonly code?: string };
  }
  throw new Error('nothing was thrown');
}
