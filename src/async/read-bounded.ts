/**
 * Reads a stream of byte chunks to its end. If the stream is longer than `maxBytes`, stops reading and throws. A
 * Node.js stream is then destroyed.
 *
 * @param tooLong returns the error for more than `maxBytes` bytes
 */
export async function readBounded(
  stream: AsyncIterable<unknown>,
  maxBytes: number,
  tooLong: () => Error,
): Promise<Buffer> {
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of stream) {
    if (!(chunk instanceof Uint8Array)) continue;
    bytes += chunk.length;
    if (bytes > maxBytes) throw tooLong();
    chunks.push(chunk);
  }
  return Buffer.concat(chunks);
}
