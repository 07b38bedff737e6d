import { isUtf8 } from 'node:buffer';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RecordingSession, type OutputStream } from '../../src/recording/session.ts';
import { FrameLines } from '../../src/wire/recorder-api/frame-lines.ts';
import { parseCastEvent } from '../../src/wire/asciicast/event.ts';
import { bytesWritten } from '../support/session-sink.ts';
import { GOLDEN_CASTS } from '../wire/asciicast/golden.ts';
import { EventBatch } from '../../src/recording/event-batch.ts';

type Step =
  | { readonly kind: 'output'; readonly stream: OutputStream; readonly bytes: Uint8Array }
  | { readonly kind: 'resize'; readonly columns: number; readonly rows: number }
  | { readonly kind: 'exit'; readonly code: number }
  | { readonly kind: 'wait'; readonly ms: number }
  | { readonly kind: 'flush' };

/** Runs a session with these steps, and returns its writes to the sink, as frames or as lines. */
async function uploadOf(steps: readonly Step[], tty: boolean, frames: boolean): Promise<Buffer[]> {
  const written: Buffer[] = [];
  let nowMs = 0;
  const session = new RecordingSession(
    {
      createBatch: () => new EventBatch({ frames, annotations: true }),
      policy: 'bestEffort',
      write: (bytes) => void written.push(bytesWritten(bytes)),
      whenShown: () => undefined,
      end: async () => 'confirmed',
      leave: () => undefined,
    },
    {
      tty,
      enforce: true,
      header: ({ columns, rows }) => `{"version":2,"width":${columns},"height":${rows},"title":"ü"}\n`,
      about: { kind: 'session', id: 's', tty, stdin: false, protocol: 'spdy', path: '/x' },
      nowMs: () => nowMs,
      limits: { maxLineBytes: 50, bulkRunBytes: 20, bulkAfterBytes: 100 },
    },
  );
  for (const step of steps) {
    if (step.kind === 'output') session.output(step.stream, step.bytes);
    else if (step.kind === 'resize') session.resize(step);
    else if (step.kind === 'exit') session.exit({ kind: 'exit', code: step.code, message: 'é' });
    else if (step.kind === 'wait') nowMs += step.ms;
    else await session.flush();
  }
  await session.end('completed');
  return written;
}

async function expectSame(steps: readonly Step[], tty: boolean): Promise<void> {
  const reader = new FrameLines({ lines: 0, frames: 0 }, isUtf8);
  const made = (await uploadOf(steps, tty, true)).map((frames) => {
    const lines = Buffer.from(reader.push(frames));
    expect(reader.isAtBoundary).toBe(true);
    return lines;
  });
  const sent = await uploadOf(steps, tty, false);
  // compares each write of frames with the same write of lines
  expect(made.map(String)).toEqual(sent.map(String));
  expect(Buffer.concat(made).equals(Buffer.concat(sent))).toBe(true);
}

const output = fc.oneof(
  fc.uint8Array({ minLength: 1, maxLength: 120 }),
  // the pieces cut characters at any position
  fc
    .tuple(fc.string({ unit: 'grapheme', maxLength: 40 }), fc.nat(8), fc.nat(8))
    .map(([text, from, back]) =>
      Buffer.from(text).subarray(from, Math.max(from, Buffer.from(text).length - back)),
    ),
);
const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('output' as const),
      stream: fc.constantFrom('stdout' as const, 'stderr' as const),
      bytes: output,
    }),
  },
  fc.record({ kind: fc.constant('resize' as const), columns: fc.nat(300), rows: fc.nat(100) }),
  fc.record({ kind: fc.constant('exit' as const), code: fc.nat(255) }),
  fc.record({ kind: fc.constant('wait' as const), ms: fc.double({ min: 0, max: 1e6, noNaN: true }) }),
  fc.record({ kind: fc.constant('flush' as const) }),
);

describe('a session that is sent as frames', () => {
  it('results in the same lines as a session that is sent as lines', async () => {
    await fc.assert(fc.asyncProperty(fc.array(step, { maxLength: 30 }), fc.boolean(), expectSame), {
      numRuns: 400,
    });
  });

  // omits the two captures without output
  it.each(
    GOLDEN_CASTS.filter(({ text }) => text.includes(',"o",')).map(
      ({ name, eventLines }) => [name, eventLines] as const,
    ),
  )('results in the lines of a capture, however its bytes are split: %s', async (_, eventLines) => {
    const events = eventLines.map((line) => parseCastEvent(line));
    const whole = events.filter(({ code }) => code === 'o').map(({ data }) => Buffer.from(data));
    expect(whole.length).toBeGreaterThan(0);
    const all = Buffer.concat(whole);
    const oneByOne = Array.from(all.subarray(0, 4000), (byte) => Uint8Array.of(byte));
    for (const pieces of [whole, [all], oneByOne]) {
      const steps = pieces.flatMap((bytes, index): Step[] => [
        { kind: 'wait', ms: index * 0.37 },
        { kind: 'output', stream: 'stdout', bytes },
        { kind: 'flush' },
      ]);
      await expectSame(steps, false);
    }
  });
});
