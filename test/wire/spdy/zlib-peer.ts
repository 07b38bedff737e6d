import { constants, deflateRawSync } from 'node:zlib';
import { SPDY_DICTIONARY } from '../../../src/wire/spdy/dictionary.ts';
import { concat, hex, utf8 } from '../bytes.ts';

export interface Deflate {
  readonly level: number;
  readonly strategy: number;
}

export const PREAMBLE = hex('78f9 e3c6a7c2');

/** Every kind of deflate block: stored, fixed Huffman, dynamic Huffman, Huffman without matches. */
export const DEFLATES: readonly Deflate[] = [
  { level: 0, strategy: constants.Z_DEFAULT_STRATEGY },
  { level: 9, strategy: constants.Z_FIXED },
  { level: 9, strategy: constants.Z_DEFAULT_STRATEGY },
  { level: 1, strategy: constants.Z_HUFFMAN_ONLY },
  { level: 6, strategy: constants.Z_RLE },
];

/**
 * Compresses texts as one direction of a real peer does: with a shared zlib history, a sync flush after each text, and
 * the preamble before the first text.
 */
export function createZlibPeer({ level, strategy }: Deflate): { write(text: Uint8Array): Uint8Array } {
  let history = SPDY_DICTIONARY;
  let first = true;
  return {
    write(text) {
      const block = deflateRawSync(text, {
        level,
        strategy,
        dictionary: history.subarray(Math.max(0, history.length - 32_768)),
        finishFlush: constants.Z_SYNC_FLUSH,
      });
      history = concat(history, text);
      const bytes = first ? concat(PREAMBLE, block) : new Uint8Array(block);
      first = false;
      return bytes;
    },
  };
}

/** Returns the text inside a header block; values are used unchanged, so that tests can create broken blocks. */
export function headerText(
  headers: readonly (readonly [string, string])[],
  count = headers.length,
): Uint8Array {
  return concat(uint32(count), ...headers.flatMap(([name, value]) => [sized(name), sized(value)]));
}

function sized(text: string): Uint8Array {
  return concat(uint32(utf8(text).length), utf8(text));
}

export function uint32(value: number): Uint8Array {
  const bytes = new Uint8Array(4);
  new DataView(bytes.buffer).setUint32(0, value);
  return bytes;
}
