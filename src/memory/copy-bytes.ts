/**
 * Copies bytes at full speed. Blocks of `block-pool` are shared memory, and V8 copies shared memory word by word,
 * as if a thread could write at the same time; it copies byte by byte if both sides have different alignment.
 * `set` is slow if one side is shared, `copy` if both are: 0.13 ms per MB instead of 0.02. `fill` with a source
 * of equal length is fast.
 */

/** Copies `from` to offset `at` of `to`, which must have space. Source and target must be different memory. */
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
