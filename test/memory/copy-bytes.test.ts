import { randomBytes } from 'node:crypto';
import { expect, it } from 'vitest';
import { copyBytes } from '../../src/memory/copy-bytes.ts';

const plain = (size: number): Uint8Array => new Uint8Array(size);
const shared = (size: number): Uint8Array => new Uint8Array(new SharedArrayBuffer(size));
const kinds = [plain, shared];

it.each(kinds.flatMap((from) => kinds.map((to) => ({ from, to }))))(
  'copies from $from.name to $to.name memory, wherever it begins, and nothing else',
  ({ from, to }) => {
    for (const start of [0, 1, 7, 8])
      for (const at of [0, 3, 8])
        for (const length of [0, 1, 8, 61, 4_000]) {
          const source = from(4_096);
          const target = to(4_096);
          source.set(randomBytes(source.length));
          target.fill(0xaa);
          const expected = Buffer.from(target);
          expected.set(source.subarray(start, start + length), at);
          copyBytes(source.subarray(start, start + length), target, at);
          expect(expected.equals(target)).toBe(true);
        }
  },
);

it('copies between buffers as between their bytes', () => {
  const from = Buffer.from(new SharedArrayBuffer(100));
  from.write('what is shared');
  const to = Buffer.from(new SharedArrayBuffer(100)).subarray(13);
  copyBytes(from.subarray(5, 14), to, 2);
  expect(to.toString('latin1', 0, 12)).toBe('\0\0is shared\0');
});
