/** Bodies of any length that reveal lost bytes: each chunk starts with its number. */
import { createHash } from 'node:crypto';

const CHUNK_BYTES = 64 * 1024;

export function* bodyOf(bytes: number): Generator<Buffer> {
  for (let at = 0; at < bytes; at += CHUNK_BYTES) {
    const chunk = Buffer.alloc(Math.min(CHUNK_BYTES, bytes - at));
    if (chunk.length >= 8) chunk.writeBigUInt64BE(BigInt(at));
    yield chunk;
  }
}

export interface Digest {
  readonly bytes: number;
  readonly sha256: string;
}

export async function digestOf(body: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): Promise<Digest> {
  const hash = createHash('sha256');
  let bytes = 0;
  for await (const chunk of body) {
    bytes += chunk.length;
    hash.update(chunk);
  }
  return { bytes, sha256: hash.digest('hex') };
}
