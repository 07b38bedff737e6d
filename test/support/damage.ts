/** Damages bytes, and feeds them to parsers in pieces. */
import type { Random } from './random.ts';

/** Makes a few small changes: flips bits, and sets, inserts, removes, doubles or moves bytes. */
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

/** Cuts bytes at random positions. */
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
