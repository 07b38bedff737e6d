import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readCastTail, type CastTail } from '../../../src/tsrecorder/library/cast-tail.ts';

const HEADER = '{"version":2,"width":80,"height":24}\n';

function tailOf(cast: string | Uint8Array): Promise<CastTail> {
  const bytes = Buffer.from(cast);
  return readCastTail(async (start, end) => bytes.subarray(start, end), bytes.length);
}

/** Reads the complete cast, for comparison. The code under test must read only the tail of the cast. */
function oracle(cast: string): CastTail {
  const whole = cast.split('\n').slice(1, -1);
  const last = whole.at(-1);
  let durationSeconds: number | undefined;
  try {
    const [seconds, kind, data] = JSON.parse(last ?? '') as readonly unknown[];
    if (typeof seconds === 'number' && typeof kind === 'string' && typeof data === 'string')
      durationSeconds = seconds;
  } catch {
    // no event
  }
  return { durationSeconds, endsWithLineFeed: cast.endsWith('\n') };
}

const eventLine = fc
  .tuple(
    fc.integer({ min: 0, max: 9_999_999 }).map((ms) => ms / 1000),
    fc.oneof(
      fc.string({ unit: 'binary' }),
      fc.constantFrom(16_000, 16_384, 40_000, 600_000).map((n) => 'é'.repeat(n)),
    ),
  )
  .map(([seconds, text]) => `${JSON.stringify([seconds, 'o', text])}\n`);

describe('the end time of a cast', () => {
  it('is that of its last complete line, however long that line is', async () => {
    await fc.assert(
      fc.asyncProperty(fc.array(eventLine, { maxLength: 6 }), fc.nat(), async (lines, cut) => {
        const cast = HEADER + lines.join('');
        const bytes = Buffer.from(cast);
        expect(await tailOf(cast)).toEqual(oracle(cast));
        const short = bytes.subarray(0, HEADER.length + (cut % (bytes.length - HEADER.length + 1)));
        expect(await tailOf(short)).toEqual(oracle(short.toString('latin1')));
      }),
      { numRuns: 60 },
    );
  });

  it.each([
    ['', { durationSeconds: undefined, endsWithLineFeed: false }],
    [HEADER, { durationSeconds: undefined, endsWithLineFeed: true }],
    [`${HEADER}odd\n`, { durationSeconds: undefined, endsWithLineFeed: true }],
    [`${HEADER}[1.5,"o","a"]\n[2`, { durationSeconds: 1.5, endsWithLineFeed: false }],
  ])('of %j', async (cast, expected) => {
    expect(await tailOf(cast)).toEqual(expected);
  });

  it('is that of the last line that is not blank', async () => {
    expect(await tailOf(`${HEADER}[1,"o","a"]\n[8.5,"o","b"]\n\n \r\n\n`)).toEqual({
      durationSeconds: 8.5,
      endsWithLineFeed: true,
    });
  });

  it('is found without reading all of a long cast', async () => {
    const bytes = Buffer.from(HEADER + '[1,"o","a"]\n'.repeat(500_000));
    let read = 0;
    const tail = await readCastTail(async (start, end) => {
      read += end - start;
      return bytes.subarray(start, end);
    }, bytes.length);
    expect(tail.durationSeconds).toBe(1);
    expect(read).toBeLessThan(20_000);
  });
});
