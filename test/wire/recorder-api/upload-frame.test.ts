import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  FrameBatch,
  FrameReader,
  MAX_FRAME_OUTPUT_BYTES,
  completeFrames,
} from '../../../src/wire/recorder-api/upload-frame.ts';
import { concat, hex, list, thrownBy, utf8 } from '../bytes.ts';

type Read =
  | { readonly lines: string }
  | { readonly seconds: number; readonly output: readonly number[]; readonly form: string }
  | { readonly whole: number };

/** Parses frames in pieces. Partial lines are joined, and positions count from the start of the first piece. */
function read(pieces: readonly Uint8Array[]): readonly Read[] {
  const reader = new FrameReader();
  const found: Read[] = [];
  let parts: Uint8Array[] = [];
  let before = 0;
  for (const piece of pieces) {
    reader.push(piece, {
      lines: (part) => void parts.push(part.slice()),
      output: (seconds, bytes, form) => void found.push({ seconds, output: list(bytes), form }),
      whole(end) {
        if (parts.length > 0) found.push({ lines: Buffer.concat(parts).toString() });
        parts = [];
        found.push({ whole: before + end });
      },
    });
    before += piece.length;
  }
  return found;
}

describe('frames', () => {
  it('are these bytes', () => {
    const batch = new FrameBatch();
    batch.text('{"a":1}\n');
    batch.output(2 ** 32 / 1e6 + 0.000_007, utf8('hi'), 'exact');
    batch.output(1, utf8('yo'), 'bulk');
    expect(list(batch.take())).toEqual(
      list(
        concat(
          hex('01 00000008'),
          utf8('{"a":1}\n'),
          hex('02 0000000a 0000000100000007'),
          utf8('hi'),
          hex('03 0000000a 00000000000f4240'),
          utf8('yo'),
        ),
      ),
    );
    expect(batch.length).toBe(0);
  });

  it('are taken in pieces, with long output where it was', () => {
    const frames = (batch: FrameBatch, output: readonly Uint8Array[]): FrameBatch => {
      batch.text('{"a":1}\n');
      for (const [at, bytes] of output.entries()) batch.output(at, bytes, 'exact');
      batch.text('{"b":1}\n');
      return batch;
    };
    const output = [1024, 1025, 3, 70_000].map((length, at) => Buffer.alloc(length, at + 1));
    const batch = frames(new FrameBatch(), output);
    const length = batch.length;
    const pieces = batch.takePieces();
    expect(batch.length).toBe(0);
    expect(pieces.reduce((sum, piece) => sum + piece.length, 0)).toBe(length);
    expect(
      pieces.filter((piece) => output.some((bytes) => piece === bytes)).map((piece) => piece.length),
    ).toEqual([1025, 70_000]);
    const whole = concat(Buffer.concat(pieces));
    const again = frames(batch, output);
    expect(Buffer.compare(again.take(), whole)).toBe(0);
    expect(again.length).toBe(0);
    expect(read([whole]).filter((found) => 'output' in found)).toEqual(
      output.map((bytes, seconds) => ({ seconds, output: list(bytes), form: 'exact' })),
    );
  });

  it('keep microseconds exactly', () => {
    fc.assert(
      fc.property(fc.maxSafeInteger(), (any) => {
        const micros = Math.abs(any) % 2 ** 50;
        const batch = new FrameBatch();
        batch.output(micros / 1e6, utf8('x'), 'exact');
        expect(read([batch.take()])[0]).toEqual({ seconds: micros / 1e6, output: [0x78], form: 'exact' });
      }),
      { numRuns: 1000 },
    );
  });

  it('have as much output as the limit, and no more', () => {
    const batch = new FrameBatch();
    batch.output(0, new Uint8Array(MAX_FRAME_OUTPUT_BYTES), 'exact');
    const longest = concat(batch.take());
    expect(read([longest])[1]).toEqual({ whole: longest.length });
    expect(thrownBy(() => batch.output(0, new Uint8Array(MAX_FRAME_OUTPUT_BYTES + 1), 'bulk')).code).toBe(
      'malformed',
    );
    const longer = concat(hex('02 00100009'), new Uint8Array(20));
    expect(thrownBy(() => read([longer])).code).toBe('malformed');
  });

  it.each([
    ['a negative time', -1],
    ['no time', Number.NaN],
    ['a time that is not exact', 2 ** 50 / 1e6],
  ])('are not written with %s', (_, seconds) => {
    expect(thrownBy(() => new FrameBatch().output(seconds, utf8('x'), 'exact')).code).toBe('malformed');
  });

  it('are not written of parts of lines, nor without output', () => {
    expect(thrownBy(() => new FrameBatch().text('[1')).code).toBe('malformed');
    expect(thrownBy(() => new FrameBatch().output(0, new Uint8Array(), 'exact')).code).toBe('malformed');
  });

  it.each([
    ['of no kind', '00 00000001 0a'],
    ['of an unknown kind', '04 00000001 0a'],
    ['of no kind', '00 00000001 0a'],
    ['of bulk without output', '03 00000008 0000000000000000'],
    ['of no lines', '01 00000000'],
    ['that end inside of a line', '01 00000002 5b31'],
    ['of no output', '02 00000008 0000000000000000'],
    ['too short for a time', '02 00000007 0000000000000000'],
    ['of a time that is not exact', '02 00000009 0004000000000000 61'],
  ])('%s are refused, and so is what follows', (_, bytes) => {
    const reader = new FrameReader();
    const visitor = { lines: () => undefined, output: () => undefined, whole: () => undefined };
    expect(thrownBy(() => reader.push(hex(bytes), visitor)).code).toBe('malformed');
    expect(thrownBy(() => reader.push(hex('01 00000001 0a'), visitor)).code).toBe('dead');
  });

  it('say where they are whole', () => {
    const reader = new FrameReader();
    const visitor = { lines: () => undefined, output: () => undefined, whole: () => undefined };
    const bytes = hex('01 00000001 0a 02 00000009 0000000000000001 61');
    const whole = list(bytes).map((byte) => {
      reader.push(Uint8Array.of(byte), visitor);
      return reader.isAtBoundary;
    });
    expect(whole.flatMap((is, index) => (is ? [index + 1] : []))).toEqual([6, 20]);
    expect([5, 6, 7, 19, 20, 99].map((most) => completeFrames(bytes, most))).toEqual([0, 6, 6, 6, 20, 20]);
    expect([0, 4, 19].map((length) => completeFrames(bytes.subarray(0, length), 99))).toEqual([0, 0, 6]);
  });
});
