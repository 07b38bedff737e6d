/** Makes moments what is written of them. */
import { zstdCompressSync } from 'node:zlib';
import type { Moment } from '../../../search/search-index.ts';
import { indexCommand, indexText } from '../../../search/tokens.ts';
import type { ByteStore, Stored } from './byte-store.ts';
import { MOMENT_SPACE, NOTHING } from './database.ts';

/** Text that is compressed together. */
const BLOCK = 65_536;

/** Moments as they are written: a text for each row of words, and their blocks by the number of the first moment in each. */
export interface Packed {
  readonly texts: readonly Stored[];
  readonly blocks: readonly (readonly [first: number, bytes: Stored])[];
}

/** Puts moments into a store. @param before moments that are there already; a session always has one */
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
