/**
 * Copies bytes as fast as the processor can. Memory of `block-pool` is shared, and V8 copies that as if a thread could write there
 * meanwhile: word by word, and byte by byte unless both sides begin alike in a word. `set` does so where one of the two sides is
 * shared, `copy` where both are: 0.13 ms for each MB instead of 0.02. `fill` copies once what is as long as its place, and does not.
 */

/** Copies `from` to byte `at` of `to`, which has room for it. They are not the same memory. */
export function copyBytes(from: Uint8Array, to: Uint8Array, at: number): void {
  if (from.length === 0) return;
  if (isShared(from) && isShared(to)) asBuffer(to).fill(from, at, at + from.length);
  else asBuffer(from).copy(to, at);
}

function isShared({ buffer }: Uint8Array): boolean {
  return buffer instanceof SharedArrayBuffer;
}

function asBuffer(bytes: Uint8Array): Buffer {
  if (Buffer.isBuffer(bytes)) return bytes;
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
