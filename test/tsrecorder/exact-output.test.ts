import { mkdtemp, readFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PassThrough } from 'node:stream';
import fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { runProgram } from '../../src/cli/program.ts';
import { RecordingSession, type OutputStream } from '../../src/recording/session.ts';
import { bytesWritten } from '../support/session-sink.ts';
import { createRig, HEADER, openUpload, type Rig } from './recorder-rig.ts';
import { EventBatch } from '../../src/recording/event-batch.ts';

interface Output {
  readonly stream: OutputStream;
  readonly bytes: Uint8Array;
}

let rig: Rig;
let folder: string;
let sessions = 0;

beforeAll(async () => {
  rig = await createRig();
  folder = await mkdtemp(join(tmpdir(), 'tailcast-exact-test-'));
});
afterAll(async () => {
  await rig[Symbol.asyncDispose]();
});

/** @returns the id of the recording of `lines` */
async function keep(...lines: readonly (string | Uint8Array)[]): Promise<string> {
  const upload = openUpload(rig.recorder, { 'tailcast-session': `s${(sessions += 1)}` });
  for (const line of lines) upload.write(line);
  upload.end();
  await upload.over;
  upload.close();
  return (await rig.list())[0]!.id;
}

/** Records a session with these outputs, as a gateway does. */
async function record(outputs: readonly Output[], { tty = false } = {}): Promise<string> {
  const lines: Buffer[] = [];
  const session = new RecordingSession(
    {
      createBatch: () => new EventBatch({ frames: false, annotations: true }),
      policy: 'bestEffort',
      write: (bytes) => void lines.push(bytesWritten(bytes)),
      whenShown: () => undefined,
      end: async () => 'confirmed',
      leave: () => undefined,
    },
    {
      tty,
      enforce: true,
      header: () => HEADER,
      about: { kind: 'session', id: 's', tty, stdin: false, protocol: 'spdy', path: '/x' },
      nowMs: () => 0,
      limits: { maxLineBytes: 50, bulkRunBytes: 20, bulkAfterBytes: 60 },
    },
  );
  for (const { stream, bytes } of outputs) {
    session.output(stream, bytes);
    void session.flush();
  }
  await session.end('completed');
  return keep(...lines);
}

async function exported(
  id: string,
  format: string,
  place: readonly string[] = ['--recorder', rig.recorder.url],
): Promise<{ readonly code: number; readonly bytes: Buffer; readonly message: string }> {
  const streams = { stdout: new PassThrough(), stderr: new PassThrough() };
  const bytes = streams.stdout.toArray();
  const { signal } = new AbortController();
  const code = await runProgram(['export', id, '--format', format, '--output', '-', ...place], {
    ...streams,
    environment: new Map(),
    signal,
  });
  streams.stdout.end();
  streams.stderr.end();
  const message = Buffer.concat(await streams.stderr.toArray()).toString();
  return { code, bytes: Buffer.concat(await bytes), message };
}

const outputs = fc.array(
  fc.record({
    stream: fc.constantFrom('stdout' as const, 'stderr' as const),
    bytes: fc.oneof(
      fc.uint8Array({ minLength: 1, maxLength: 120 }),
      fc.string({ unit: 'binary', minLength: 1, maxLength: 40 }).map((text) => Buffer.from(text)),
    ),
  }),
  { maxLength: 12 },
);

describe('exported output', () => {
  it('equals what the program wrote to the stream, byte for byte', async () => {
    await fc.assert(
      fc.asyncProperty(outputs, fc.boolean(), async (written, tty) => {
        const id = await record(written, { tty });
        for (const stream of ['stdout', 'stderr'] as const) {
          const expected = Buffer.concat(
            written.filter((one) => one.stream === stream).map(({ bytes }) => bytes),
          );
          const { code, bytes, message } = await exported(id, stream);
          expect([code, message]).toEqual([0, '']);
          expect(bytes.equals(expected)).toBe(true);
        }
      }),
      { numRuns: 60 },
    );
  });

  it('is the same from a store and from a recorder, and can be written to a file', async () => {
    const noise = Uint8Array.from({ length: 5_000 }, (_, at) => (at * 197) & 255);
    const id = await record([{ stream: 'stdout', bytes: noise }]);
    expect((await exported(id, 'stdout', ['--store', rig.directory])).bytes.equals(noise)).toBe(true);
    const target = join(folder, 'copied.bin');
    const { code } = await exported(id, 'stdout', ['--recorder', rig.recorder.url, '--output', target]);
    expect(code).toBe(0);
    expect((await readFile(target)).equals(noise)).toBe(true);
  });

  const end = (outcome: string, reason?: string): string =>
    `${JSON.stringify({ kind: 'end', outcome, ...(reason === undefined ? {} : { reason }), outputBytes: 1, outputLines: 1 })}\n`;
  const SESSION = '{"kind":"session","id":"s","tty":false,"stdin":false,"protocol":"spdy","path":"/x"}\n';

  it.each([
    [
      'that a gap was told of',
      [SESSION, '{"kind":"gap","bytes":7,"reason":"lost"}\n', '[1,"o","a"]\n', end('completed')],
      '7 bytes of output missing: lost\n',
    ],
    [
      'that it broke off',
      [SESSION, '[1,"o","a"]\n', end('interrupted', 'the gateway was stopped')],
      'it is not whole: the gateway was stopped\n',
    ],
    ['that nobody said its end', ['[1,"o","a"]\n'], 'it does not state that it is complete\n'],
    [
      'that no exact bytes were kept',
      ['[1,"o","\ufffd"]\n', end('completed')],
      'some of it was not UTF-8, and its recorder kept no exact bytes: it has U+FFFD instead\n',
    ],
  ])('causes a message and exit code 1 if exact bytes are missing: %s', async (_, lines, sentence) => {
    const id = await keep(HEADER, ...lines);
    const { code, message, bytes } = await exported(id, 'stdout');
    expect([code, message]).toEqual([1, sentence]);
    expect(bytes.toString()).toMatch(/^[a\ufffd]$/);
  });

  it('keeps a U+FFFD that the program wrote', async () => {
    const bytes = Buffer.from('a\ufffdb');
    const id = await record([{ stream: 'stdout', bytes }]);
    expect(await exported(id, 'stdout')).toEqual({ code: 0, bytes, message: '' });
  });
});
