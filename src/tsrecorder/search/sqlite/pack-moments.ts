/** Encodes moments for the index. */
import { zstdCompressSync } from 'node:zlib';
import type { Moment } from '../../../search/search-index.ts';
import { indexCommand, indexText } from '../../../search/tokens.ts';
import type { ByteStore, Stored } from './byte-store.ts';
import { MOMENT_SPACE, NOTHING } from './database.ts';

/** Size of the text of a compressed block, in characters. */
const BLOCK = 65_536;

/** Encoded moments: the words of each moment, and compressed blocks, each with the number of its first moment. */
export interface Packed {
  readonly texts: readonly Stored[];
  readonly blocks: readonly (readonly [first: number, bytes: Stored])[];
}

/** Encodes moments into a store. @param before number of existing moments of the session */
export function packMoments(store: ByteStore, moments: readonly Moment[], before: number): Packed {
  const given = moments.length === 0 && before === 0 ? [NOTHING] : moments.slice(0, MOMENT_SPACE - before);
  const texts: Stored[] = [];
  const blocks: (readonly [number, Stored])[] = [];
  let block: Moment[] = [];
  let length = 0;
  for (const [index, moment] of given.entries()) {
    const { command } = moment;
    const text = moment.rows.map((row) => row.text).join('\n');
    const words = indexText(text);
    texts.push(store.addText(command === undefined ? words : `${indexCommand(command.text)} ${words}`));
    block.push(moment);
    length += text.length;
    if (length < BLOCK && index + 1 < given.length) continue;
    blocks.push([index + 1 - block.length, store.add(zstdCompressSync(Buffer.from(JSON.stringify(block))))]);
    block = [];
    length = 0;
  }
  return { texts, blocks };
}
