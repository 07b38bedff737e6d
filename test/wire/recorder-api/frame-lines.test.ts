import { isUtf8 } from 'node:buffer';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { FrameLines } from '../../../src/wire/recorder-api/frame-lines.ts';
import { LineBatch } from '../../../src/wire/recorder-api/line-batch.ts';
import {
  FrameBatch,
  type FrameForm,
  MAX_LINE_BYTES_PER_FRAME_BYTE,
} from '../../../src/wire/recorder-api/upload-frame.ts';
import { concat, cut, cuts, hex, thrownBy, utf8 } from '../bytes.ts';

const START = { lines: 0, frames: 0 };

/** Returns a recording as frames and as lines, with the positions at the ends of its events. */
function record(
  outputs: readonly { readonly micros: number; readonly bytes: Uint8Array; readonly form: FrameForm }[],
) {
  const frames = new FrameBatch();
  const lines = new LineBatch(isUtf8);
  const places = [START];
  const header = '{"version":2,"title":"ü"}\n';
  frames.text(header);
  lines.text(header);
  for (const { micros, bytes, form } of outputs) {
    places.push({ lines: lines.length, frames: frames.length });
    frames.output(micros / 1e6, bytes, form);
    lines.output(micros / 1e6, bytes, form);
  }
  places.push({ lines: lines.length, frames: frames.length });
  return { frames: concat(frames.take()), lines: concat(lines.take()), places };
}

const bytes = fc.oneof(
  fc.uint8Array({ minLength: 1, maxLength: 60 }),
  fc.string({ unit: 'binary', minLength: 1, maxLength: 20 }).map(utf8),
);
const outputs = fc.array(
  fc.record({ micros: fc.nat({ max: 2 ** 50 - 1 }), bytes, form: fc.constantFrom('exact', 'bulk') }),
  { maxLength: 6 },
);

describe('lines of frames', () => {
  it('are the lines that would have been sent, wherever the frames are cut', () => {
    const made = outputs
      .map(record)
      .chain((recording) =>
        fc.record({ recording: fc.constant(recording), at: cuts(recording.frames.length) }),
      );
    fc.assert(
      fc.property(made, ({ recording, at }) => {
        const reader = new FrameLines(START, isUtf8);
        const lines = cut(recording.frames, at).map((piece) => concat(reader.push(piece)));
        expect(concat(...lines)).toEqual(recording.lines);
        expect(reader.isAtBoundary).toBe(true);
      }),
      { numRuns: 500 },
    );
  });

  it('go on from every place as if nothing had come before', () => {
    fc.assert(
      fc.property(outputs, (made) => {
        const recording = record(made);
        for (const place of recording.places) {
          const reader = new FrameLines(place, isUtf8);
          const lines = reader.push(recording.frames.subarray(place.frames));
          expect(concat(lines)).toEqual(recording.lines.slice(place.lines));
          expect(reader.reached(recording.lines.length)).toEqual(recording.places.at(-1));
        }
      }),
      { numRuns: 200 },
    );
  });

  it('name for every number of lines’ bytes the last place that it covers', () => {
    fc.assert(
      fc.property(outputs, (made) => {
        const recording = record(made);
        const reader = new FrameLines(START, isUtf8);
        // a piece for each frame, so that each position is known
        for (const piece of cut(
          recording.frames,
          recording.places.map(({ frames }) => frames),
        )) {
          if (piece.length > 0) reader.push(piece);
        }
        for (let durable = 0; durable <= recording.lines.length; durable += 1) {
          const expected = recording.places.findLast(({ lines }) => lines <= durable);
          expect(reader.reached(durable)).toEqual(expected);
        }
        expect(reader.reached(0)).toEqual(recording.places.at(-1));
      }),
      { numRuns: 50 },
    );
  });

  it('are never longer than is promised', () => {
    const worst = (output: Uint8Array, micros: number, form: FrameForm): void => {
      const { frames, lines, places } = record([{ micros, bytes: output, form }]);
      const from = places[1]!;
      expect(lines.length - from.lines).toBeLessThanOrEqual(
        MAX_LINE_BYTES_PER_FRAME_BYTE * (frames.length - from.frames),
      );
    };
    for (let length = 1; length <= 100; length += 1) {
      for (const form of ['exact', 'bulk'] as const) {
        worst(new Uint8Array(length).fill(0xff), 2 ** 50 - 1, form);
        worst(new Uint8Array(length).fill(0x01, 1).fill(0xff, 0, 1), 2 ** 50 - 1, form);
      }
    }
  });

  it('come up to what is no frame, and never after it', () => {
    const reader = new FrameLines({ lines: 5, frames: 7 }, isUtf8);
    expect(reader.push(hex('01 00000001 0a 01')).length).toBe(1);
    expect(reader.isAtBoundary).toBe(false);
    expect(thrownBy(() => reader.push(hex('00000000'))).code).toBe('malformed');
    expect(thrownBy(() => reader.push(hex('01 00000001 0a'))).code).toBe('dead');
    expect(reader.reached(100)).toEqual({ lines: 6, frames: 13 });
  });
});
