import { appendFile, cp, mkdtemp, readdir, readFile, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { crc32, zstdCompressSync } from 'node:zlib';
import { describe, expect, it } from 'vitest';
import { encodeEnd } from '../../src/tsrecorder/spool/spool-journal.ts';
import { encodeSeekTable } from '../../src/wire/archive/seek-table.ts';
import {
  createRig,
  HEADER,
  openUpload,
  STORED_HEADER,
  until,
  type Rig,
  type Upload,
} from './recorder-rig.ts';

const SESSION = '{"kind":"session","id":"s","tty":true,"stdin":true,"protocol":"spdy","path":"/x"}\n';
const STREAM = '{"kind":"stream","name":"stderr"}\n';
const EXIT = '{"kind":"exit","code":3}\n';
const END = '{"kind":"end","outcome":"completed","outputBytes":6,"outputLines":6}\n';
const PREAMBLE = HEADER + SESSION;
/**
 * The lines of an upload. The recorder writes its own header into the cast, and stores only the lines that are events.
 */
const LINES = [
  HEADER,
  SESSION,
  '[1,"o","a"]\n',
  STREAM,
  '[2,"o","b"]\n',
  STREAM,
  STREAM,
  '[3,"o","c"]\n',
  '[4,"o","d"]\n',
  STREAM,
  '[5,"o","e"]\n',
  '[6,"o","f"]\n',
  EXIT,
  END,
];
const CAST = STORED_HEADER + LINES.filter((line) => line.startsWith('[')).join('');

/** Expected journal of the session, without the journal's first line: each annotation with its position in the cast. */
const NOTES = [...LINES.entries()].flatMap(([index, line]): readonly object[] => {
  if (index === 0 || line.startsWith('[')) return [];
  const before = LINES.slice(1, index).filter((earlier) => earlier.startsWith('['));
  const at = STORED_HEADER.length + before.join('').length;
  return [{ at, size: line.length, note: JSON.parse(line) as unknown }];
});
const JOURNAL = [...NOTES, { end: { castBytes: CAST.length } }];

/** Returns the notes of a recording in the API, without the first line. */
async function notesOf(rig: Rig, id: string): Promise<readonly unknown[]> {
  const { status, body } = await rig.get(`/api/v1/recordings/${id}/notes`);
  expect(status).toBe(200);
  const [meta, ...lines] = body
    .trimEnd()
    .split('\n')
    .map((line) => JSON.parse(line) as object);
  expect(meta).toHaveProperty('meta.token', 'one');
  return lines;
}

const lengthOf = (lines: readonly string[]): number => lines.join('').length;

/** Opens the session's upload with this number. The first line of the upload is line `from` of the session. */
function openPart(rig: Rig, number: number, from: number): Upload {
  const offset = lengthOf(LINES.slice(0, from));
  const preamble = from === 0 ? '' : PREAMBLE;
  const upload = openUpload(rig.recorder, {
    'tailcast-session': 'one',
    'tailcast-part': String(number),
    'tailcast-offset': String(offset),
    'tailcast-preamble': String(preamble.length),
  });
  upload.stream.on('error', () => undefined);
  if (preamble !== '') upload.write(preamble);
  return upload;
}

/**
 * Uploads lines `[from, to)` and waits for their acknowledgement. Then disconnects, unless these are the session's last
 * lines.
 */
async function uploadPart(rig: Rig, number: number, from: number, to: number): Promise<void> {
  const upload = openPart(rig, number, from);
  if (to > from) upload.write(LINES.slice(from, to).join(''));
  await upload.ack(({ ack }) => ack === lengthOf(LINES.slice(0, to)));
  if (to < LINES.length) upload.close();
  else upload.end();
  await upload.over;
}

/** Creates recorders with one store and separate spools. */
async function createReplicas(
  count: number,
  resumeGraceMs = 20,
): Promise<AsyncDisposable & { readonly rigs: readonly Rig[] }> {
  const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-shared-'));
  const rigs: Rig[] = [];
  for (let index = 0; index < count; index += 1) {
    const spoolDirectory = join(directory, `.spool-${index}`);
    rigs.push(await createRig({ spoolDirectory, timing: { resumeGraceMs, listRefreshMs: 0 } }, directory));
  }
  return {
    rigs,
    async [Symbol.asyncDispose]() {
      for (const rig of rigs) await rig.recorder.close();
    },
  };
}

/** Waits until a recorder lists one complete recording. */
function completeOn(rig: Rig) {
  return until(async () => {
    const [only, ...others] = await rig.list();
    return only?.state === 'completed' && others.length === 0 && only.bytes === CAST.length
      ? only
      : undefined;
  });
}

describe('a session that continues at another recorder', () => {
  it.each([
    ['where the first left off', 5, 5],
    ['where the last acknowledgement left off, before what is durable', 8, 5],
    ['inside of a run of annotations', 7, 6],
    ['right after its beginning', 4, 2],
    ['with nothing left but its last words', LINES.length - 2, LINES.length - 2],
    ['with nothing left but the last of them', LINES.length - 1, LINES.length - 1],
  ])('is one recording: %s', async (_name, firstTo, secondFrom) => {
    await using replicas = await createReplicas(2);
    const [one, two] = replicas.rigs as [Rig, Rig];
    await uploadPart(one, 1, 0, firstTo);
    await uploadPart(two, 2, secondFrom, LINES.length);
    const recording = await completeOn(two);
    expect(recording).toMatchObject({
      state: 'completed',
      command: 'sh -i',
      durationSeconds: 6,
      result: '3',
    });
    expect(recording).not.toHaveProperty('problem');
    for (const rig of [one, two]) {
      expect((await rig.get(`/api/v1/recordings/${recording.id}/cast`)).body).toBe(CAST);
      expect(await notesOf(rig, recording.id)).toEqual(JOURNAL);
    }
    const part = await two.get(`/api/v1/recordings/${recording.id}/cast`, { range: 'bytes=10-900' });
    expect(part.body).toBe(CAST.slice(10, 901));
  });

  it('is verified part by part, and a changed byte in the second part is a fault', async () => {
    await using replicas = await createReplicas(2);
    const [one, two] = replicas.rigs as [Rig, Rig];
    await uploadPart(one, 1, 0, 5);
    await uploadPart(two, 2, 5, LINES.length);
    const recording = await until(async () => {
      const [only, ...others] = await two.list();
      return only?.trust === 'verified' && others.length === 0 && only.bytes === CAST.length
        ? only
        : undefined;
    });
    const check = async (): Promise<{ readonly verdict: string; readonly findings: readonly unknown[] }> =>
      JSON.parse((await two.get(`/api/v1/recordings/${recording.id}/evidence`)).body).evidence;
    expect(await check()).toMatchObject({ verdict: 'verified', findings: [] });
    const folder = join(two.directory, 'nGATE1CNTRL');
    const second = join(
      folder,
      (await readdir(folder)).filter((name) => name.endsWith('.cast')).toSorted()[1]!,
    );
    const bytes = await readFile(second);
    await writeFile(second, bytes.toString().replace('"f"', '"x"'));
    expect(await check()).toMatchObject({ verdict: 'failed' });
  });

  it('is listed with a problem if another program has replaced the notes of its second part', async () => {
    await using replicas = await createReplicas(2);
    const [one, two] = replicas.rigs as [Rig, Rig];
    await uploadPart(one, 1, 0, 8);
    await uploadPart(two, 2, 5, LINES.length);
    const { id } = await completeOn(two);
    const folder = join(two.directory, 'nGATE1CNTRL');
    const [, second] = (await readdir(folder)).filter((name) => name.endsWith('.notes')).toSorted();
    // a compressed file whose seek table states a wrong length
    const frame = zstdCompressSync('xx');
    const index = encodeSeekTable([{ compressed: frame.length, plain: 1 }], crc32);
    await writeFile(join(folder, second!), Buffer.concat([frame, index]));
    await using after = await two.restart();
    const [listed, ...others] = await after.list();
    expect(listed).toMatchObject({ id, problem: expect.stringContaining('its parts cannot be joined') });
    expect(others).toEqual([]);
  });

  it('is one recording after any sequence of three recorders', async () => {
    await using replicas = await createReplicas(3);
    const [one, two, three] = replicas.rigs as [Rig, Rig, Rig];
    await uploadPart(one, 1, 0, 5);
    await uploadPart(two, 2, 4, 9);
    // the third part starts with the same line as the second, because the gateway got no acknowledgement from the
    // second recorder
    await uploadPart(three, 3, 4, 10);
    // the session returns to the first recorder, which lacks the lines that only other recorders got
    await uploadPart(one, 4, 9, LINES.length);
    const recording = await completeOn(three);
    expect((await three.get(`/api/v1/recordings/${recording.id}/cast`)).body).toBe(CAST);
    expect(await notesOf(three, recording.id)).toEqual(JOURNAL);
  });

  it('is played while it runs, from the stored and the running part', async () => {
    await using replicas = await createReplicas(2);
    const [one, two] = replicas.rigs as [Rig, Rig];
    await uploadPart(one, 1, 0, 5);
    await until(async () => ((await two.list())[0]?.state === 'interrupted' ? true : undefined));
    const upload = openPart(two, 2, 5);
    upload.write(LINES.slice(5, 8).join(''));
    await upload.ack(({ ack }) => ack === lengthOf(LINES.slice(0, 8)));
    const recordings = await two.list();
    expect(recordings).toHaveLength(1);
    expect(recordings[0]).toMatchObject({ state: 'running' });
    expect((await two.get(`/api/v1/recordings/${recordings[0]!.id}/notes`)).status).toBe(404);
    const following = two.get(`/api/v1/recordings/${recordings[0]!.id}/cast?follow=1`);
    upload.write(LINES.slice(8).join(''));
    upload.end();
    expect((await following).body).toBe(CAST);
  });

  it('has a notice about the missing start while another store contains it', async () => {
    const timing = { resumeGraceMs: 20, listRefreshMs: 0 };
    const keys = await mkdtemp(join(tmpdir(), 'tsrecorder-key-'));
    const evidenceKey = join(keys, 'key.pem');
    await using one = await createRig({ evidenceKey, timing });
    await using two = await createRig({ evidenceKey, timing });
    await uploadPart(one, 1, 0, 6);
    await uploadPart(two, 2, 5, LINES.length);
    const [lonely] = await two.list();
    const missing = lengthOf(LINES.slice(0, 5));
    expect(lonely).toMatchObject({
      state: 'interrupted',
      problem: `${missing} bytes of the upload are with another recorder, or lost`,
    });
    // copies the recordings of both recorders into one directory
    const [beginning] = await one.list();
    await until(async () => {
      const { status } = await one.get(`/api/v1/recordings/${beginning!.id}/sidecar`);
      return status === 200 ? true : undefined;
    });
    for (const name of ['nGATE1CNTRL', '.sessions']) {
      await cp(join(one.directory, name), join(two.directory, name), { recursive: true });
    }
    const [joined, ...others] = await two.list();
    expect(others).toEqual([]);
    expect(joined).toMatchObject({ state: 'completed', bytes: CAST.length });
    expect(joined).not.toHaveProperty('problem');
    expect((await two.get(`/api/v1/recordings/${lonely!.id}/cast`)).body).toBe(CAST);
  });

  it('keeps its position after a crash of the second recorder', async () => {
    await using replicas = await createReplicas(2);
    const [one, two] = replicas.rigs as [Rig, Rig];
    await uploadPart(one, 1, 0, 5);
    const upload = openPart(two, 2, 5);
    upload.write(LINES.slice(5, 9).join(''));
    await upload.ack(({ ack }) => ack === lengthOf(LINES.slice(0, 9)));
    const again = await two.restart({ timing: { resumeGraceMs: 60_000, listRefreshMs: 0 } });
    const resumed = openPart(again, 3, 8);
    expect((await resumed.headers)['tailcast-offset']).toBe(String(lengthOf(LINES.slice(0, 9))));
    resumed.write(LINES.slice(8).join(''));
    resumed.end();
    await resumed.over;
    expect(resumed.acks.at(-1)?.ack).toBe(lengthOf(LINES));
    const recording = await completeOn(again);
    expect((await again.get(`/api/v1/recordings/${recording.id}/cast`)).body).toBe(CAST);
    await again.recorder.close();
  });
});

describe('a session that had ended when its recorder was lost', () => {
  /** Uploads everything. All bytes are acknowledged, but the recorder never confirms that the recording is stored. */
  async function bringAll(rig: Rig): Promise<void> {
    const upload = openPart(rig, 1, 0);
    upload.write(LINES.join(''));
    await upload.ack(({ ack }) => ack === lengthOf(LINES));
    upload.close();
    await upload.over;
  }

  async function expectOne(rig: Rig): Promise<void> {
    const recording = await until(async () => {
      const found = await rig.list();
      return found.length === 1 && found[0]?.state === 'completed' ? found[0] : undefined;
    });
    expect(recording).toMatchObject({ bytes: CAST.length });
    expect(recording).not.toHaveProperty('problem');
    expect((await rig.get(`/api/v1/recordings/${recording.id}/cast`)).body).toBe(CAST);
  }

  it('is complete although the upload never ended', async () => {
    await using replicas = await createReplicas(1);
    const [one] = replicas.rigs as [Rig];
    await bringAll(one);
    await expectOne(one);
  });

  it.each([
    ['with its last word', LINES.length - 1],
    ['with nothing more', LINES.length],
  ])('is one complete recording if it continues at another recorder %s', async (_name, from) => {
    await using replicas = await createReplicas(2);
    const [one, two] = replicas.rigs as [Rig, Rig];
    await bringAll(one);
    await uploadPart(two, 2, from, LINES.length);
    await expectOne(two);
  });

  it('is one recording if it returns to the first recorder before the second part is known', async () => {
    await using replicas = await createReplicas(2, 60_000);
    const [one, two] = replicas.rigs as [Rig, Rig];
    await uploadPart(one, 1, 0, 3);
    await uploadPart(two, 2, 3, 5);
    await uploadPart(one, 3, 3, LINES.length);
    const again = await two.restart({ timing: { resumeGraceMs: 20, listRefreshMs: 0 } });
    await until(async () => {
      const names = await readdir(join(two.directory, '.spool-1'));
      return names.some((name) => name.endsWith('.cast')) ? undefined : true;
    });
    await expectOne(one);
    await again.recorder.close();
  });

  it('is one cast if it returns to the first recorder, which has exactly the bytes before', async () => {
    await using replicas = await createReplicas(1, 60_000);
    const [one] = replicas.rigs as [Rig];
    await uploadPart(one, 1, 0, 3);
    await uploadPart(one, 2, 3, LINES.length);
    await expectOne(one);
    const names = await readdir(one.directory, { recursive: true });
    expect(names.filter((name) => name.endsWith('.cast'))).toHaveLength(1);
  });

  it('is one cast if the recorder had all bytes, and was killed before it confirmed them', async () => {
    await using replicas = await createReplicas(2, 60_000);
    const [one, two] = replicas.rigs as [Rig, Rig];
    await bringAll(one);
    await one.recorder.close();
    const spool = join(one.directory, '.spool-0');
    const notes = (await readdir(spool)).find((name) => name.endsWith('.notes'))!;
    // writes the end record, as the recorder does immediately before it stores a recording
    await appendFile(join(spool, notes), encodeEnd(CAST.length));
    const again = await one.restart();
    await uploadPart(two, 2, LINES.length - 1, LINES.length);
    await expectOne(two);
    await again.recorder.close();
  });
});

describe('the preamble of a continued upload', () => {
  it.each([
    ['an event among it', `${HEADER}[1,"o","a"]\n`],
    ['half a line', HEADER.slice(0, -40)],
  ])('is refused with %s', async (_name, preamble) => {
    await using rig = await createRig();
    const upload = openUpload(rig.recorder, {
      'tailcast-session': 'one',
      'tailcast-offset': '100000',
      'tailcast-part': '2',
      'tailcast-preamble': String(preamble.length),
    });
    upload.write(`${preamble}\n[2,"o","b"]\n`);
    await upload.over;
    expect(upload.acks.at(-1)?.error).toMatch('not a session recording');
  });

  it('is refused if it is longer than the offset of the upload', async () => {
    await using rig = await createRig();
    const headers = { 'tailcast-session': 'one', 'tailcast-offset': '5', 'tailcast-preamble': '6' };
    const upload = openUpload(rig.recorder, headers);
    expect((await upload.headers)[':status']).toBe(400);
    upload.close();
  });
});
