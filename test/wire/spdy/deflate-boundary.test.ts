import { constants, deflateRawSync, inflateRawSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { endsWithSyncFlush } from '../../../src/wire/spdy/deflate-boundary.ts';
import { concat, hex } from '../bytes.ts';
import { DEFLATES, type Deflate } from './zlib-peer.ts';

const text = fc.oneof(
  fc.uint8Array({ maxLength: 400 }),
  fc
    .array(fc.constantFrom(...'streamtype stdout stderr resize\0'.split('')), { maxLength: 600 })
    .map((units) => Buffer.from(units.join(''))),
  fc.integer({ min: 0, max: 5000 }).map((length) => new Uint8Array(length).fill(7)),
);

function deflate(bytes: Uint8Array, { level, strategy }: Deflate, finishFlush: number): Uint8Array {
  return new Uint8Array(deflateRawSync(bytes, { level, strategy, finishFlush }));
}

function inflate(bytes: Uint8Array): Uint8Array | undefined {
  try {
    return inflateRawSync(bytes, { finishFlush: constants.Z_SYNC_FLUSH });
  } catch {
    return undefined;
  }
}

/** Returns true if zlib decodes stored blocks that follow these bytes to exactly the content of the blocks. */
function continues(bytes: Uint8Array): boolean {
  const whole = inflate(bytes);
  return (
    whole !== undefined &&
    ['00 0200 fdff 5aa5', 'f8 0300 fcff 0ff00f', '40 0100 feff ff'].every((probe) => {
      const output = inflate(concat(bytes, hex(probe)));
      return output !== undefined && Buffer.compare(output, concat(whole, hex(probe.slice(13)))) === 0;
    })
  );
}

describe('where a deflate sequence ends', () => {
  it('accepts what zlib writes with a sync flush, and two of them in a row', () => {
    fc.assert(
      fc.property(
        text,
        fc.constantFrom(...DEFLATES),
        text,
        fc.constantFrom(...DEFLATES),
        (one, how, two, then) => {
          const first = deflate(one, how, constants.Z_SYNC_FLUSH);
          const second = deflate(two, then, constants.Z_SYNC_FLUSH);
          expect([first, second, concat(first, second)].map(endsWithSyncFlush)).toEqual([true, true, true]);
          expect(continues(concat(first, second))).toBe(true);
        },
      ),
    );
  });

  it('refuses every shorter piece that does not end in a flush', () => {
    fc.assert(
      fc.property(text, fc.constantFrom(...DEFLATES), (bytes, how) => {
        const whole = deflate(bytes, how, constants.Z_SYNC_FLUSH);
        for (let end = 0; end < whole.length; end += 1) {
          const piece = whole.subarray(0, end);
          expect(!endsWithSyncFlush(piece) || continues(piece)).toBe(true);
        }
        expect(endsWithSyncFlush(whole.subarray(0, -1))).toBe(false);
      }),
      { numRuns: 30 },
    );
  });

  it('refuses a finished stream, a partial flush, and a tail that only looks like a flush', () => {
    fc.assert(
      fc.property(text, fc.constantFrom(...DEFLATES), (bytes, how) => {
        const finished = deflate(bytes, how, constants.Z_FINISH);
        expect(endsWithSyncFlush(finished)).toBe(false);
        expect(endsWithSyncFlush(concat(finished, hex('0000ffff')))).toBe(false);
      }),
      { numRuns: 50 },
    );
    expect(endsWithSyncFlush(deflate(Buffer.from('abc'), DEFLATES[1]!, constants.Z_PARTIAL_FLUSH))).toBe(
      false,
    );
  });

  it('agrees with zlib on damaged bytes: what it accepts, zlib can continue after', () => {
    const damage = fc.array(fc.tuple(fc.nat(), fc.integer({ min: 1, max: 255 })), {
      minLength: 1,
      maxLength: 4,
    });
    let accepted = 0;
    fc.assert(
      fc.property(text, fc.constantFrom(...DEFLATES), damage, (bytes, how, places) => {
        const damaged = deflate(bytes, how, constants.Z_SYNC_FLUSH);
        for (const [place, change] of places) damaged[place % damaged.length]! ^= change;
        if (!endsWithSyncFlush(damaged) || inflate(damaged) === undefined) return;
        accepted += 1;
        expect(continues(damaged)).toBe(true);
      }),
      { numRuns: 3000 },
    );
    expect(accepted).toBeGreaterThan(20);
  });

  it('accepts only a few blocks, because each may cost as much as a long one', () => {
    expect(endsWithSyncFlush(hex('00 0000 ffff'.repeat(16)))).toBe(true);
    expect(endsWithSyncFlush(hex('00 0000 ffff'.repeat(17)))).toBe(false);
  });

  it.each([
    ['nothing', ''],
    ['a final empty stored block', '01 0000 ffff'],
    ['a stored block with bytes in it', '00 0100 feff 41'],
    ['a stored block whose length is not repeated', '00 0000 fffe'],
    ['a stored block that is cut in its bytes', '00 0400 fbff 0000ffff'.slice(0, -2)],
    ['a stored block whose last bytes look like a flush', '00 0500 faff 00 0000ffff'],
    ['the reserved block type', '06 0000 ffff'],
    ['a fixed block without its end', '4a 04 00 0000 ffff'.slice(0, 5)],
    ['a fixed block with a length symbol that does not exist', '1b 03 000000 ffff'],
  ])('refuses %s', (_name, bytes) => {
    expect(endsWithSyncFlush(hex(bytes))).toBe(false);
  });

  it('refuses code lengths that run over, or repeat nothing', () => {
    // dynamic block: 257 length codes, 1 distance code, code length codes 16 and 18 of one bit each
    const bits = (...fields: readonly (readonly [number, number])[]): Uint8Array => {
      const flat = fields.flatMap(([value, count]) =>
        Array.from({ length: count }, (_, bit) => (value >> bit) & 1),
      );
      const bytes = new Uint8Array(Math.ceil(flat.length / 8));
      for (const [index, bit] of flat.entries()) bytes[index >> 3]! |= bit << (index & 7);
      return concat(bytes, new Uint8Array(400), hex('000000ffff'));
    };
    const head = [
      [0, 1],
      [2, 2],
      [0, 5],
      [0, 5],
      [0, 4], // block header (two values), HLIT, HDIST, and HCLEN 0 for four code length codes
      [1, 3],
      [0, 3],
      [1, 3],
      [0, 3], // the code lengths of symbols 16, 17, 18 and 0
    ] as const;
    // symbol 16 is code 0: there is nothing to repeat yet
    expect(endsWithSyncFlush(bits(...head, [0, 1]))).toBe(false);
    // symbol 18 is code 1, three times 138 zeros: more than 258
    expect(endsWithSyncFlush(bits(...head, [1, 1], [127, 7], [1, 1], [127, 7], [1, 1], [127, 7]))).toBe(
      false,
    );
    // 258 zeros: a code without symbols, so nothing can end the block
    expect(endsWithSyncFlush(bits(...head, [1, 1], [127, 7], [1, 1], [109, 7]))).toBe(false);
  });
});
