/**
 * Copies bytes as fast as the processor can: V8's own `set` copies word by word where one of the two sides is a block of
 * `block-pool`, as if a thread could write there meanwhile, which took 15 % of the CPU of a recorded flood.
 */

/** Copies `from` to byte `at` of `to`, which has room for it. */
export function copyBytes(from: Uint8Array, to: Uint8Array, at: number): void {
  const source = from instanceof Buffer ? from : Buffer.from(from.buffer, from.byteOffset, from.length);
  source.copy(to, at);
}
