import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { describe, expect, it } from 'vitest';
import { verifyStore } from '../../src/tsrecorder/evidence/verify-store.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import type { RecordingStore } from '../../src/tsrecorder/store/store.ts';
import type { Recording } from '../../src/wire/recorder-api/recording.ts';
import {
  createRig,
  HEADER,
  openUpload,
  request,
  STORED_HEADER,
  until,
  type Rig,
  type Upload,
} from './recorder-rig.ts';

const PROGRAM = join(dirname(fileURLToPath(import.meta.url)), 'recorder-process.ts');

interface RecorderProcess {
  readonly child: ChildProcess;
  readonly url: string;
}

async function spawnRecorder(directory: string, fileBlocks?: number): Promise<RecorderProcess> {
  const command = [process.execPath, PROGRAM, directory];
  const child =
    fileBlocks === undefined
      ? spawn(command[0]!, command.slice(1), { stdio: ['ignore', 'pipe', 'inherit'] })
      : spawn('sh', ['-c', `ulimit -f ${fileBlocks}; exec "$@"`, 'sh', ...command], {
          stdio: ['ignore', 'pipe', 'inherit'],
        });
  const [output] = await once(child.stdout, 'data');
  return { child, url: String(output).trim() };
}

async function kill({ child }: RecorderProcess): Promise<void> {
  const exited = once(child, 'exit');
  child.kill('SIGKILL');
  await exited;
}

/** Lines of a session: events, and annotations at random positions. `seed` makes sessions distinguishable. */
function* sessionLines(seed: number): Generator<string> {
  yield HEADER.replace('"sh -i"', `"session ${seed}"`);
  yield `{"kind":"session","id":"${seed}","tty":true,"stdin":true,"protocol":"spdy","path":"/x"}\n`;
  for (let count = 0; ; count += 1) {
    if ((count * 7 + seed) % 5 === 0)
      yield `{"kind":"raw","base64":"${Buffer.from(`${count}`).toString('base64')}"}\n`;
    if ((count * 3 + seed) % 11 === 0)
      yield `{"kind":"stream","name":"${count % 2 === 0 ? 'stdout' : 'stderr'}"}\n`;
    yield `[${count},"o",${JSON.stringify(`${seed}:${count} `.repeat(1 + ((count * seed) % 200)))}]\n`;
  }
}

/** Sends lines in arbitrary pieces until the connection breaks. Resolves with the sent bytes. */
async function flood(upload: Upload, seed: number): Promise<string> {
  let sent = '';
  let rest = '';
  upload.stream.on('error', () => undefined);
  for (const line of sessionLines(seed)) {
    rest += line;
    if (rest.length < 3000) continue;
    const piece = rest.slice(0, -17);
    rest = rest.slice(-17);
    sent += piece;
    if (upload.stream.destroyed || upload.stream.closed) return sent;
    if (!upload.stream.write(piece)) {
      await Promise.race([new Promise((resolve) => upload.stream.once('drain', resolve)), upload.over]);
    } else if (sent === piece) await upload.ack(({ ack }) => ack > 0).catch(() => undefined);
    else await new Promise((resolve) => setImmediate(resolve));
  }
  return sent;
}

/** Reconstructs the body of an upload from cast and notes. */
async function rebuild(directory: string, { key }: Recording, uploadedHeader: string): Promise<string> {
  const cast = await readFile(join(directory, key), 'utf8');
  const notes = await readFile(join(directory, key.replace('.cast', '.notes')), 'utf8').catch(() => '');
  const header = cast.slice(0, cast.indexOf('\n') + 1);
  expect(header).toBe(STORED_HEADER.replace('"sh -i"', /"session \d+"/.exec(header)![0]));
  let body = uploadedHeader;
  let position = header.length;
  for (const line of notes.split('\n').slice(1, -1)) {
    const { at, note } = JSON.parse(line);
    if (note === undefined) continue;
    body += `${cast.slice(position, at)}${JSON.stringify(note)}\n`;
    position = at;
  }
  return body + cast.slice(position);
}

async function settledRecordings(rig: Rig, count: number): Promise<readonly Recording[]> {
  return until(async () => {
    const spooled = (await readdir(rig.spool)).some((name) => name.endsWith('.notes'));
    const found = await rig.list('?limit=500');
    return !spooled && found.length >= count ? found : undefined;
  });
}

describe('a recorder that is killed', () => {
  it('has lost no acknowledged byte and hides no session', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-crash-'));
    const expected = new Map<string, { readonly sent: string; readonly acked: number }>();
    for (let round = 0; round < 10; round += 1) {
      const process = await spawnRecorder(directory);
      const seeds = [1, 2, 3].map((index) => round * 10 + index);
      const uploads = seeds.map(() => openUpload(process));
      const floods = uploads.map((upload, index) => flood(upload, seeds[index]!));
      // every second recorder is killed as soon as it has acknowledged anything
      await uploads[0]!.ack(({ ack }) => ack > (round % 2) * 20_000);
      await new Promise((resolve) => setTimeout(resolve, (round * 37) % 150));
      await kill(process);
      for (const [index, upload] of uploads.entries()) {
        const sent = await floods[index]!;
        await upload.over;
        const acked = Math.max(0, ...upload.acks.map(({ ack }) => ack));
        expected.set(`session ${seeds[index]}`, { sent, acked });
      }
    }
    const acknowledged = [...expected].filter(([, { acked }]) => acked > 0);
    expect(acknowledged.length).toBeGreaterThanOrEqual(10);
    await using rig = await createRig({}, directory);
    const recordings = await settledRecordings(rig, acknowledged.length);
    const byCommand = new Map(recordings.map((recording) => [recording.command, recording]));
    expect(byCommand.size).toBe(recordings.length);
    let total = 0;
    for (const [command, { sent, acked }] of expected) {
      const recording = byCommand.get(command);
      if (recording === undefined) expect(acked).toBe(0);
      else {
        const body = await rebuild(directory, recording, sent.slice(0, sent.indexOf('\n') + 1));
        expect(body.length).toBeGreaterThanOrEqual(acked);
        expect(sent.startsWith(body)).toBe(true);
        expect(recording.state).toBe('interrupted');
        total += acked;
      }
    }
    expect(total).toBeGreaterThan(5 * 20_000);
    await rig.recorder.close();
    const store = await createDiskStore(directory, { readOnly: true });
    const { findings, unfinished } = await verifyStore({
      store,
      keys: [],
      checkpoint: [],
      nowMs: Date.now() + 86_400_000,
    });
    expect(findings.map(({ code }) => code)).toEqual(['no-trusted-key']);
    expect(unfinished).toBe(0);
  });

  it('keeps a session closed that had ended but was not stored yet', async () => {
    await using rig = await createRig();
    await using blocked = await createRig({
      store: {
        ...(await storeOf(rig)),
        finish: async () => {
          throw new Error('the store is down');
        },
      },
    });
    const upload = openUpload(blocked.recorder);
    upload.write(`${HEADER}[1,"o","x"]\n`);
    upload.end();
    await upload.over;
    expect(upload.acks.at(-1)?.ack).toBe(HEADER.length + '[1,"o","x"]\n'.length);
    const [waiting] = await blocked.list();
    expect(waiting).toMatchObject({ state: 'completed' });
    const path = `/api/v1/recordings/${waiting!.id}/cast`;
    expect((await blocked.get(path)).body).toBe(`${STORED_HEADER}[1,"o","x"]\n`);
    await using after = await blocked.restart({ store: await storeOf(rig) });
    const [kept] = await settledRecordings(after, 1);
    expect(kept).toMatchObject({ id: waiting!.id, state: 'completed' });
  });

  it('cuts a spool to its last complete line, and its journal to the entries that belong to it', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-cut-'));
    const process = await spawnRecorder(directory);
    const upload = openUpload(process);
    const note = '{"kind":"stream","name":"stderr"}\n';
    upload.write(`${HEADER}[1,"o","a"]\n${note}[2,"o","b"]\n`);
    await upload.ack(({ ack }) => ack === `${HEADER}[1,"o","a"]\n${note}[2,"o","b"]\n`.length);
    await kill(process);
    const spool = `${directory}.spool`;
    const names = await readdir(spool);
    const cast = join(
      spool,
      names.find((name) => name.endsWith('.cast'))!,
    );
    const notes = join(
      spool,
      names.find((name) => name.endsWith('.notes'))!,
    );
    // simulates a crash: the second line of the cast is incomplete, but the journal has an entry for a later position
    const kept = `${STORED_HEADER}[1,"o","a"]\n`;
    await truncate(cast, kept.length + 4);
    const journal = await readFile(notes, 'utf8');
    await writeFile(notes, `${journal}{"at":999999,"size":3,"note":{}}\n{"at":1`);
    await using rig = await createRig({}, directory);
    const [recording] = await settledRecordings(rig, 1);
    expect(recording).toMatchObject({
      state: 'interrupted',
      bytes: kept.length,
      problem: expect.stringMatching(/^\d+ acknowledged bytes are lost: its spool is shorter than it was$/),
    });
    expect(await readFile(join(directory, recording!.key), 'utf8')).toBe(kept);
    expect(await readFile(join(directory, recording!.key.replace('.cast', '.notes')), 'utf8')).toBe(journal);
  });
});

describe('a full disk', () => {
  it('ends the session with one error frame, and keeps the durable bytes', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'tsrecorder-full-'));
    // limits files to 64 KiB: the kernel rejects larger writes
    const process = await spawnRecorder(directory, 128);
    const upload = openUpload(process);
    const sent = flood(upload, 5);
    await upload.over;
    const errors = upload.acks.filter(({ error }) => error !== undefined);
    expect(errors).toHaveLength(1);
    expect(upload.acks.at(-1)?.error).toMatch('the file is too large');
    const other = openUpload(process);
    other.write(HEADER);
    other.end();
    await other.over;
    expect(other.acks.at(-1)?.ack).toBe(HEADER.length);
    await kill(process);
    await using rig = await createRig({}, directory);
    const recordings = await settledRecordings(rig, 2);
    const recording = recordings.find(({ command }) => command === 'session 5')!;
    const body = await rebuild(directory, recording, (await sent).slice(0, (await sent).indexOf('\n') + 1));
    const acked = Math.max(...upload.acks.map(({ ack }) => ack));
    expect(body.length).toBeGreaterThanOrEqual(acked);
    expect((await sent).startsWith(body)).toBe(true);
    expect(recording.state).toBe('interrupted');
  });

  it('refuses new sessions and events early', async () => {
    await using rig = await createRig({ limits: { minFreeBytes: Number.MAX_SAFE_INTEGER } });
    const upload = openUpload(rig.recorder);
    expect((await upload.headers)[':status']).toBe(507);
    upload.close();
    const event = { method: 'POST', path: '/v2/event', body: '{"type":"kubernetes-api-request"}' };
    expect((await request(rig.recorder, event)).status).toBe(507);
  });
});

function storeOf(rig: Rig): Promise<RecordingStore> {
  return createDiskStore(rig.directory);
}
