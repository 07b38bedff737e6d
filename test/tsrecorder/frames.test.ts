/**
 * Uploads of frames. The recorder converts frames to the lines of the cast, and lets a gateway continue from an
 * acknowledged position.
 */
import { isUtf8 } from 'node:buffer';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createRecorderClient, type RecorderClientDeps } from '../../src/recording/recorder-client.ts';
import type { EventBatch } from '../../src/recording/event-batch.ts';
import type { RecorderUpload } from '../../src/recording/recorder-upload.ts';
import { LineBatch } from '../../src/wire/recorder-api/line-batch.ts';
import { FrameBatch, type FrameForm } from '../../src/wire/recorder-api/upload-frame.ts';
import { dialLoopback } from '../support/recorder-dial.ts';
import { createRig, HEADER, openUpload, STORED_HEADER, until, type Rig } from './recorder-rig.ts';

const SESSION = '{"kind":"session","id":"s","tty":true,"stdin":true,"protocol":"spdy","path":"/x"}\n';
const END = '{"kind":"end","outcome":"completed","outputBytes":6,"outputLines":3}\n';

type Item = string | { readonly seconds: number; readonly bytes: Uint8Array; readonly form?: FrameForm };

const ITEMS: readonly Item[] = [
  HEADER,
  SESSION,
  { seconds: 0.5, bytes: Buffer.from('grün\r\n') },
  { seconds: 1.25, bytes: Uint8Array.of(0x61, 0xff, 0x00, 0xc3) },
  { seconds: 1.5, bytes: Uint8Array.of(0xff, 0x00, 0xc3), form: 'bulk' },
  '{"kind":"stream","name":"stderr"}\n',
  { seconds: 2, bytes: Buffer.from('"\u001b[0m') },
  '[2.5,"r","90x30"]\n',
  END,
];

interface Place {
  readonly lines: number;
  readonly frames: number;
}

/** Encodes an upload as frames and as lines. `places` contains the position after each item, in both forms. */
function bothOf(items: readonly Item[]): {
  readonly frames: Buffer;
  readonly lines: Buffer;
  readonly places: readonly Place[];
} {
  const frames = new FrameBatch();
  const lines = new LineBatch(isUtf8);
  const places = [{ lines: 0, frames: 0 }];
  for (const item of items) {
    if (typeof item === 'string') {
      frames.text(item);
      lines.text(item);
    } else {
      frames.output(item.seconds, item.bytes, item.form ?? 'exact');
      lines.output(item.seconds, item.bytes, item.form ?? 'exact');
    }
    places.push({ lines: lines.length, frames: frames.length });
  }
  return { frames: Buffer.from(frames.take()), lines: Buffer.from(lines.take()), places };
}

const { frames: FRAMES, lines: LINES, places: PLACES } = bothOf(ITEMS);
const LAST = PLACES.at(-1)!;
const CAST = STORED_HEADER + castLines(LINES);
const REPEATED = HEADER + SESSION;

function castLines(lines: Buffer): string {
  return lines
    .toString()
    .split('\n')
    .filter((line) => line.startsWith('['))
    .map((line) => `${line}\n`)
    .join('');
}

const fieldsOf = (name: string, at: Place, part = 1): Record<string, string> => ({
  'tailcast-session': name,
  'tailcast-offset': String(at.lines),
  'tailcast-frames': String(at.frames),
  'tailcast-part': String(part),
});

async function stored(rig: Rig, id: string): Promise<{ readonly cast: string; readonly notes: string }> {
  const cast = (await rig.get(`/api/v1/recordings/${id}/cast`)).body;
  const [, ...notes] = (await rig.get(`/api/v1/recordings/${id}/notes`)).body.split('\n');
  return { cast, notes: notes.join('\n') };
}

describe('a recorder that gets frames', () => {
  it('announces that it supports frames, and stores the same as for lines', async () => {
    await using rig = await createRig();
    const framed = openUpload(rig.recorder, fieldsOf('frames', PLACES[0]!));
    framed.write(FRAMES);
    framed.end();
    await framed.over;
    const plain = openUpload(rig.recorder);
    plain.write(LINES);
    plain.end();
    await plain.over;
    expect(framed.acks.at(-1)).toEqual({ ack: LAST.lines, frames: LAST.frames });
    expect(plain.acks.at(-1)).toEqual({ ack: LAST.lines });
    const [one, two] = await rig.list();
    const [first, second] = [await stored(rig, one!.id), await stored(rig, two!.id)];
    expect(first).toEqual(second);
    expect(first.cast).toBe(CAST);
    expect(first.notes).toContain(`"base64":"${Buffer.of(0x61, 0xff, 0x00, 0xc3).toString('base64')}"`);
    expect([one!.state, two!.state]).toEqual(['completed', 'completed']);
  });

  it('acknowledges the ends of frames, and continues from each of them after a cut at any byte', async () => {
    await using rig = await createRig();
    const attempt = async (sent: number): Promise<void> => {
      const name = `cut-${sent}`;
      const first = openUpload(rig.recorder, fieldsOf(name, PLACES[0]!));
      first.stream.on('error', () => undefined);
      first.write(FRAMES.subarray(0, sent));
      const whole = PLACES.findLast(({ frames }) => frames <= sent)!;
      const ack = await first.ack(({ ack: lines }) => lines === whole.lines);
      expect(ack).toEqual({ ack: whole.lines, ...(whole.frames === 0 ? {} : { frames: whole.frames }) });
      first.close();
      await first.over;
      // continues from an earlier acknowledgement, as if the last acknowledgement had been lost
      const from = PLACES[sent % (PLACES.indexOf(whole) + 1)]!;
      const second = openUpload(rig.recorder, fieldsOf(name, from, 2));
      expect((await second.headers)['tailcast-offset']).toBe(String(whole.lines));
      for (const byte of FRAMES.subarray(from.frames)) second.write(Uint8Array.of(byte));
      second.end();
      await second.over;
      expect(second.acks.at(-1)).toEqual({ ack: LAST.lines, frames: LAST.frames });
    };
    // the header is long, so only a few positions inside it are tested
    const cuts = Array.from({ length: FRAMES.length + 1 }, (_byte, index) => index).filter(
      (sent) => sent < 8 || sent > PLACES[1]!.frames - 3,
    );
    for (let start = 0; start < cuts.length; start += 20) {
      await Promise.all(cuts.slice(start, start + 20).map(attempt));
    }
    const recordings = await rig.list('?limit=500');
    expect(recordings).toHaveLength(cuts.length);
    for (const { id, state } of recordings) {
      expect(state).toBe('completed');
      expect((await rig.get(`/api/v1/recordings/${id}/cast`)).body).toBe(CAST);
    }
  }, 60_000);

  it('continues from each position after a restart, also if the gateway missed the last acknowledgement', async () => {
    await using first = await createRig({ timing: { resumeGraceMs: 60_000 } });
    for (const [index, place] of PLACES.entries()) {
      const upload = openUpload(first.recorder, fieldsOf(`s-${index}`, PLACES[0]!));
      upload.stream.on('error', () => undefined);
      upload.write(FRAMES.subarray(0, place.frames));
      await upload.ack(({ ack }) => ack === place.lines);
      upload.close();
      await upload.over;
    }
    await using rig = await first.restart();
    for (const [index, place] of PLACES.entries()) {
      const upload = openUpload(rig.recorder, fieldsOf(`s-${index}`, place, 2));
      upload.write(FRAMES.subarray(place.frames));
      upload.end();
      await upload.over;
      expect(upload.acks.at(-1)).toEqual({ ack: LAST.lines, frames: LAST.frames });
      // the session is finished, so the recorder acknowledges all data immediately, and stores nothing again
      const again = openUpload(rig.recorder, fieldsOf(`s-${index}`, PLACES[3]!, 3));
      again.write(FRAMES.subarray(PLACES[3]!.frames));
      again.end();
      await again.over;
      expect(again.acks.at(-1)).toEqual({ ack: LAST.lines, frames: LAST.frames });
    }
    const recordings = await rig.list();
    expect(recordings).toHaveLength(PLACES.length);
    for (const { id } of recordings) expect((await stored(rig, id)).cast).toBe(CAST);
  });

  it('takes a session over in the middle, as parts of one recording', async () => {
    {
      const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-shared-'));
      const timing = { resumeGraceMs: 20, listRefreshMs: 0 };
      const one = await createRig({ spoolDirectory: join(directory, '.spool-0'), timing }, directory);
      const two = await createRig({ spoolDirectory: join(directory, '.spool-1'), timing }, directory);
      try {
        const place = PLACES[4]!;
        const begin = openUpload(one.recorder, fieldsOf('one', PLACES[0]!));
        begin.stream.on('error', () => undefined);
        begin.write(FRAMES.subarray(0, PLACES[5]!.frames));
        await begin.ack(({ ack }) => ack === PLACES[5]!.lines);
        begin.close();
        await begin.over;
        const upload = openUpload(two.recorder, {
          ...fieldsOf('one', place, 2),
          'tailcast-preamble': String(REPEATED.length),
        });
        upload.write(REPEATED.slice(0, 50));
        upload.write(REPEATED.slice(50));
        upload.write(FRAMES.subarray(place.frames));
        upload.end();
        await upload.over;
        const recording = await until(async () => {
          const [only, ...others] = await two.list();
          return only?.state === 'completed' && others.length === 0 && only.bytes === Buffer.byteLength(CAST)
            ? only
            : undefined;
        });
        expect(recording).not.toHaveProperty('problem');
        expect((await stored(one, recording.id)).cast).toBe(CAST);
      } finally {
        await one.recorder.close();
        await two.recorder.close();
      }
    }
  });

  it.each([
    ['are none', Buffer.from('[1,"o","a"]\n')],
    ['are lines that are none', Buffer.concat([Buffer.from([1, 0, 0, 0, 2]), Buffer.from('xx')])],
    ['have no header', FRAMES.subarray(PLACES[2]!.frames)],
  ])('refuses frames that %s, and stores nothing of them', async (_, body) => {
    await using rig = await createRig();
    const upload = openUpload(rig.recorder, fieldsOf('odd', PLACES[0]!));
    upload.write(body);
    await upload.over;
    expect(upload.acks.at(-1)?.error).toMatch('not a session recording');
    expect(await rig.list()).toEqual([]);
  });

  it('keeps the complete frames before an invalid one', async () => {
    await using rig = await createRig();
    const upload = openUpload(rig.recorder, fieldsOf('odd', PLACES[0]!));
    upload.write(FRAMES.subarray(0, PLACES[4]!.frames));
    await upload.ack(({ ack }) => ack === PLACES[4]!.lines);
    upload.write('no frame');
    await upload.over;
    expect(upload.acks.at(-1)?.error).toMatch('not a session recording');
    const recording = await until(async () => (await rig.list('?state=interrupted'))[0]);
    expect((await stored(rig, recording.id)).cast).toBe(
      STORED_HEADER + castLines(LINES.subarray(0, PLACES[4]!.lines)),
    );
  });

  it.each([
    ['no session', { 'tailcast-frames': '0' }],
    ['no number', { ...fieldsOf('s', PLACES[0]!), 'tailcast-frames': 'x' }],
    ['no beginning', { ...fieldsOf('s', PLACES[0]!), 'tailcast-frames': '7' }],
  ])('responds with 400 to headers with %s', async (_, fields) => {
    await using rig = await createRig();
    const upload = openUpload(rig.recorder, fields);
    expect((await upload.headers)[':status']).toBe(400);
    upload.close();
  });
});

function put(batch: EventBatch, item: Item): void {
  if (typeof item === 'string') batch.lines(item);
  else batch.output(item.seconds, item.bytes, item.form ?? 'exact');
}

/** Returns true if the upload writes frames: a frame with a line is longer than the line itself. */
function writesFrames(upload: RecorderUpload): boolean {
  const batch = upload.createBatch();
  batch.lines('{}\n');
  return batch.length > 3;
}

describe('a gateway and its recorders', () => {
  function client(deps: Partial<RecorderClientDeps> = {}): ReturnType<typeof createRecorderClient> {
    return createRecorderClient({
      dial: dialLoopback,
      nowMs: () => performance.now(),
      log: createSilentLogger(),
      ...deps,
      limits: { moveRetryMs: 5, suspectMs: 0, ...deps.limits },
      lateLimits: { retryMs: 10, maxRetryMs: 20, ...deps.lateLimits },
    });
  }

  const addressOf = ({ recorder }: Rig): string => `127.0.0.1:${recorder.address.port}`;

  /** Writes items to the upload, as a recorded session does. */
  function write(upload: RecorderUpload, items: readonly Item[]): void | Promise<void> {
    const batch = upload.createBatch();
    for (const item of items) put(batch, item);
    return upload.write(batch.takePieces());
  }

  const open = (
    from: ReturnType<typeof createRecorderClient>,
    recorders: readonly string[],
  ): Promise<RecorderUpload> => from.open({ recorders, sessionId: 'one' }, new AbortController().signal);

  async function expectWhole(rig: Rig): Promise<void> {
    const [only, ...others] = await rig.list();
    expect(others).toEqual([]);
    expect(only!.state).toBe('completed');
    expect((await stored(rig, only!.id)).cast).toBe(CAST);
  }

  it('agree on frames without a setting', async () => {
    await using rig = await createRig();
    const upload = await open(client(), [addressOf(rig)]);
    expect(writesFrames(upload)).toBe(true);
    await write(upload, ITEMS);
    expect(await upload.end()).toBe('confirmed');
    await expectWhole(rig);
  });
});
