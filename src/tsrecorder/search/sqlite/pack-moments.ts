/** Encodes moments for the index. */
import { zstdCompressSync } from 'node:zlib';
import type { Moment } from '../../../search/search-index.ts';
import { indexCommand, indexText } from '../../../search/tokens.ts';
import type { GrowingBytes } from '../../../wire/growing-bytes.ts';
import { MOMENT_SPACE, NOTHING } from './database.ts';

/** Size of the text of a compressed block, in characters. */
const BLOCK = 65_536;

/** The block of a session without text. */
const NO_MOMENT = zstdCompressSync(Buffer.from(JSON.stringify([NOTHING])));

/** Position of bytes in a buffer. */
interface Stored {
  readonly start: number;
  readonly end: number;
}

/** Encoded moments: the words of each moment, and compressed blocks, each with the number of its first moment. */
export interface Packed {
  readonly texts: readonly Stored[];
  readonly blocks: readonly (readonly [first: number, bytes: Stored])[];
}

/** Appends encoded moments to a buffer. @param before number of existing moments of the session */
export function packMoments(buffer: GrowingBytes, moments: readonly Moment[], before: number): Packed {
  const given = moments.length === 0 && before === 0 ? [NOTHING] : moments.slice(0, MOMENT_SPACE - before);
  const texts: Stored[] = [];
  const blocks: (readonly [number, Stored])[] = [];
  let block: Moment[] = [];
  let length = 0;
  if (given.length === 1 && given[0] === NOTHING) {
    const block = { start: buffer.length, end: buffer.length + NO_MOMENT.length };
    buffer.bytes(NO_MOMENT);
    return { texts: [{ start: block.start, end: block.start }], blocks: [[0, block]] };
  }
  for (const [index, moment] of given.entries()) {
    const { command } = moment;
    const text = moment.rows.map((row) => row.text).join('\n');
    const words = indexText(text);
    const textStart = buffer.length;
    buffer.utf8(command === undefined ? words : `${indexCommand(command.text)} ${words}`);
    texts.push({ start: textStart, end: buffer.length });
    block.push(moment);
    length += text.length;
    if (length < BLOCK && index + 1 < given.length) continue;
    const blockStart = buffer.length;
    buffer.bytes(zstdCompressSync(Buffer.from(JSON.stringify(block))));
    blocks.push([index + 1 - block.length, { start: blockStart, end: buffer.length }]);
    block = [];
    length = 0;
  }
  return { texts, blocks };
}
