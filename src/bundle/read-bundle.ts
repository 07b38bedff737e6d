/** Reads any range of the files in a bundle (`bundle-format`). */
import { BoundedMap } from '../bounded-map.ts';
import { decodeBase64 } from '../wire/base64.ts';
import { chunksOf } from './stream-chunks.ts';
import { BUNDLE_PIECE_BYTES, type BundleFile, type BundleManifest } from './bundle-format.ts';

export type BundleReader = ReturnType<typeof openBundle>;

/** @param block returns the text of a `<script>` block of the page. */
export function openBundle(
  manifest: BundleManifest,
  block: (file: BundleFile, piece: number) => string | undefined,
) {
  /** Cache of recently used pieces, because a player reads consecutive ranges of one piece. */
  const unpacked = new BoundedMap<Promise<Uint8Array>>(MAX_UNPACKED);
  function pieceBytes(file: BundleFile, number: number): number {
    const bytes = manifest.files[file]?.bytes ?? 0;
    return Math.min(BUNDLE_PIECE_BYTES, bytes - number * BUNDLE_PIECE_BYTES);
  }
  function piece(file: BundleFile, number: number): Promise<Uint8Array> {
    const name = `${file} ${number}`;
    const known = unpacked.get(name) ?? unpack(block(file, number), name, pieceBytes(file, number));
    unpacked.set(name, known);
    return known;
  }
  return {
    manifest,
    has: (file: BundleFile): boolean => manifest.files[file] !== undefined,
    /**
     * Returns bytes `[start, end)` of a file, or all of it. @throws Error if a piece is missing or has another length
     */
    async read(
      file: BundleFile,
      start = 0,
      end = Number.POSITIVE_INFINITY,
    ): Promise<Uint8Array<ArrayBuffer>> {
      const bytes = manifest.files[file]?.bytes ?? 0;
      const stop = Math.min(end, bytes);
      const read = new Uint8Array(Math.max(0, stop - start));
      for (let at = start; at < stop;) {
        const number = Math.floor(at / BUNDLE_PIECE_BYTES);
        const from = at - number * BUNDLE_PIECE_BYTES;
        const part = (await piece(file, number)).subarray(from, from + stop - at);
        read.set(part, at - start);
        at += part.length;
      }
      return read;
    },
  };
}

const MAX_UNPACKED = 8;

/**
 * Decodes a piece.
 *
 * @param bytes required length of the piece. With a longer piece, a read across pieces would skip bytes of the next
 * piece
 * @throws Error if the piece is missing or has another length
 */
async function unpack(text: string | undefined, name: string, bytes: number): Promise<Uint8Array> {
  if (text === undefined) throw new Error(`this file is incomplete: ${name} is missing`);
  const stream = new Blob([decodeBase64(text)]).stream().pipeThrough(new DecompressionStream('gzip'));
  const piece = new Uint8Array(bytes);
  let length = 0;
  // a compressed piece of some kilobytes can contain gigabytes, so reading stops at the required length
  for await (const chunk of chunksOf(stream)) {
    if (length + chunk.length > bytes)
      throw new Error(`this file was changed: ${name} has more than ${bytes} bytes`);
    piece.set(chunk, length);
    length += chunk.length;
  }
  if (length !== bytes)
    throw new Error(`this file was changed: ${name} has ${length} bytes instead of ${bytes}`);
  return piece;
}
