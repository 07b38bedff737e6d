import { createHash } from 'node:crypto';
import fc from 'fast-check';
import { expect, it } from 'vitest';
import { chainOf, createLineSealer, type SealedBlock } from '../../../src/tsrecorder/evidence/line-seal.ts';

const sha256 = (bytes: string | Buffer): Buffer => createHash('sha256').update(bytes).digest();

/** Returns the blocks of a text according to a simple implementation of the seal format, for comparison. */
function blocksOf(text: string, blockBytes: number): readonly SealedBlock[] {
  const blocks: SealedBlock[] = [];
  let block = '';
  for (const line of text.split(/(?<=\n)/)) {
    block += line;
    if (block.length < blockBytes || !block.endsWith('\n')) continue;
    blocks.push([block.length, sha256(block).toString('hex')]);
    block = '';
  }
  return block === '' ? blocks : [...blocks, [block.length, sha256(block).toString('hex')]];
}

it('a seal is that of the blocks, in whatever pieces the file arrives', () => {
  const lines = fc.array(
    fc.constantFrom('\n', 'a\n', 'abcdefg\n', 'abcdefgh\n', 'abcdefghijklmnopqrst\n', 'end'),
    {
      maxLength: 12,
    },
  );
  fc.assert(
    fc.property(lines, fc.integer({ min: 1, max: 9 }), (parts, chunkBytes) => {
      const text = parts.join('');
      const sealer = createLineSealer(8);
      for (let start = 0; start < text.length; start += chunkBytes)
        sealer.push(Buffer.from(text.slice(start, start + chunkBytes)));
      const blocks = blocksOf(text, 8);
      const chain = blocks.reduce(
        (before, [, digest]): Buffer => sha256(Buffer.concat([before, Buffer.from(digest, 'hex')])),
        Buffer.alloc(32),
      );
      expect(sealer.finish()).toEqual({
        bytes: text.length,
        blockBytes: 8,
        chain: chain.toString('hex'),
        blocks,
      });
      expect(chainOf(blocks)).toBe(chain.toString('hex'));
    }),
    { numRuns: 300 },
  );
});
