import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PendingBytes } from '../../../src/tsrecorder/spool/pending-bytes.ts';

describe('bytes that are not written to the disk yet', () => {
  it('stay unchanged, whatever else uses the same blocks', () => {
    const step = fc.record({
      file: fc.nat({ max: 2 }),
      bytes: fc.integer({ min: 0, max: 40_000 }),
      value: fc.nat({ max: 255 }),
      flush: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const files = [0, 1, 2].map(() => ({ pending: new PendingBytes(), expected: [] as Buffer[] }));
        const flush = ({ pending, expected }: (typeof files)[number]): void => {
          const came = Buffer.concat(pending.parts());
          expect(came.equals(Buffer.concat(expected.splice(0)))).toBe(true);
          pending.release();
        };
        for (const { file, bytes, value, flush: now } of steps) {
          const chunk = Buffer.alloc(bytes, value);
          files[file]!.pending.append(chunk);
          files[file]!.expected.push(Buffer.from(chunk));
          // the caller overwrites its buffer after the call
          chunk.fill(0xee);
          if (now) flush(files[file]!);
        }
        for (const file of files) flush(file);
      }),
    );
  });

  it('reuses the blocks, except for the parts that were not released', () => {
    const first = new PendingBytes();
    first.append(Buffer.alloc(20_000, 1));
    const memory = first.parts().map(({ buffer }) => buffer);
    const second = new PendingBytes();
    second.append(Buffer.alloc(20_000, 2));
    expect(second.parts().some(({ buffer }) => memory.includes(buffer))).toBe(false);
    first.release();
    expect(first.parts()).toEqual([]);
    const third = new PendingBytes();
    third.append(Buffer.alloc(20_000, 3));
    expect(third.parts().every(({ buffer }) => memory.includes(buffer))).toBe(true);
    expect(Buffer.concat(second.parts()).equals(Buffer.alloc(20_000, 2))).toBe(true);
  });
});
