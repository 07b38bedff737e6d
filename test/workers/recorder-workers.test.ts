/** A recorder of several processes over one store, from outside. */
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { get as httpGet, type IncomingMessage } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { isDeepStrictEqual } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createRecorderClient } from '../../src/recording/recorder-client.ts';
import type { RecorderUpload } from '../../src/recording/recorder-upload.ts';
import { createDiskStore } from '../../src/tsrecorder/store/disk.ts';
import { loadSigningKey } from '../../src/tsrecorder/evidence/signing-key.ts';
import { verifyStore } from '../../src/tsrecorder/evidence/verify-store.ts';
import type { Recording } from '../../src/wire/recorder-api/recording.ts';
import { dialLoopback } from '../support/recorder-dial.ts';
import { HEADER } from '../tsrecorder/recorder-rig.ts';
import { eventually, servedBy, startRole, type RoleProcess } from './role-process.ts';

let directory: string;
beforeEach(async () => {
  directory = await mkdtemp(join(tmpdir(), 'tailcast-workers-'));
});
afterEach(async () => {
  await rm(directory, { recursive: true, force: true });
  await rm(`${directory}.spool`, { recursive: true, force: true });
});

const END = '{"kind":"end","outcome":"completed","outputBytes":1,"outputLines":1}\n';
const about = (session: number): string =>
  `{"kind":"session","id":"s${session}","tty":true,"stdin":true,"protocol":"spdy","path":"/x"}\n`;
const line = (session: number, at: number): string => `[${at},"o","${session}.${at}\\r\\n"]\n`;

function startRecorder(workers: number): Promise<RoleProcess> {
  return startRole([
    'recorder',
    '--store',
    directory,
    '--identity',
    'loopback',
    '--listen',
    '127.0.0.1:0',
    '--workers',
    String(workers),
    '--resume-seconds',
    '1',
    '--drain-seconds',
    '1',
  ]);
}

interface Session {
  readonly upload: RecorderUpload;
  readonly moves: () => number;
  write(count: number): Promise<void>;
  /** All lines that were written. */
  readonly text: () => string;
  end(): Promise<void>;
}

async function openSession(recorder: RoleProcess, number: number): Promise<Session> {
  const client = createRecorderClient({
    dial: dialLoopback,
    nowMs: () => performance.now(),
    log: createSilentLogger(),
    limits: { moveTimeoutMs: 20_000, moveRetryMs: 50, suspectMs: 100 },
  });
  let moves = 0;
  let at = 0;
  let text = '';
  const upload = await client.open(
    {
      recorders: [`127.0.0.1:${recorder.port}`],
      sessionId: `session-${number}`,
      moved: () => (moves += 1),
    },
    new AbortController().signal,
  );
  await upload.write(HEADER + about(number));
  return {
    upload,
    moves: () => moves,
    async write(count) {
      for (let index = 0; index < count; index++) {
        at += 1;
        text += line(number, at);
        await upload.write(line(number, at));
      }
    },
    text: () => text,
    async end() {
      await upload.write(END);
      await upload.end();
    },
  };
}

async function recordings(recorder: RoleProcess): Promise<readonly Recording[]> {
  const answer = await get(recorder, 'recordings?limit=100');
  return (JSON.parse(answer) as { readonly recordings: Recording[] }).recordings;
}

/** Text of all casts without their headers. */
async function casts(recorder: RoleProcess): Promise<readonly string[]> {
  const found = await recordings(recorder);
  return Promise.all(
    found.map(async ({ id }) => {
      const cast = await get(recorder, `recordings/${encodeURIComponent(id)}/cast`);
      return cast.slice(cast.indexOf('\n') + 1);
    }),
  );
}

/** Sessions that are numbered from `first`. */
async function openSessions(
  recorder: RoleProcess,
  first: number,
  count: number,
): Promise<readonly Session[]> {
  return Promise.all(Array.from({ length: count }, (_, index) => openSession(recorder, first + index)));
}

/** So many sessions at each of two workers. */
async function openAtEach(recorder: RoleProcess, count: number): Promise<readonly Session[]> {
  const first = await servedBy(recorder, 0, () => openSessions(recorder, 0, count));
  return [...first, ...(await servedBy(recorder, 1, () => openSessions(recorder, count, count)))];
}

/** On a connection of its own: one that is used again would go on to whichever worker accepted it. */
async function get(recorder: RoleProcess, path: string): Promise<string> {
  const request = httpGet({ host: '127.0.0.1', port: recorder.port, path: `/api/v1/${path}`, agent: false });
  const [response] = (await once(request, 'response')) as [IncomingMessage];
  const answer = await text(response);
  expect(response.statusCode, answer).toBe(200);
  return answer;
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
}

const sorted = (texts: readonly string[]): readonly string[] => texts.toSorted();

/** What is at fault in the store, and how many recordings have evidence. */
async function verify(): Promise<{
  readonly ok: boolean;
  readonly faults: unknown;
  readonly recordings: number;
}> {
  const store = await createDiskStore(directory, { readOnly: true });
  const {
    ok,
    findings,
    recordings: counts,
  } = await verifyStore({
    store,
    keys: [(await loadSigningKey(join(`${directory}.spool`, 'evidence', 'key.pem'), false)).public],
    checkpoint: [],
    nowMs: Date.now(),
    signal: new AbortController().signal,
  });
  return { ok, faults: ok ? [] : findings, recordings: counts.withEvidence };
}

describe('a recorder of two processes', () => {
  it('takes uploads in both, and each of them lists and shows what both have open', async () => {
    const recorder = await startRecorder(2);
    const sessions = await openAtEach(recorder, 8);
    for (const session of sessions) await session.write(3);
    await eventually('all is acknowledged', async () =>
      sessions.every(({ upload }) => upload.pendingBytes === 0) ? true : undefined,
    );
    const startedAt = (slot: number): number =>
      recorder.lines.filter(({ msg, worker }) => msg === 'recording started' && worker === slot).length;
    await eventually('both have begun their own', async () =>
      startedAt(0) === 8 && startedAt(1) === 8 ? true : undefined,
    );
    const texts = sorted(sessions.map(({ text }) => text()));
    for (const slot of [0, 1]) {
      await servedBy(recorder, slot, async () => {
        await eventually('all sessions are shown whole', async () =>
          isDeepStrictEqual(sorted(await casts(recorder)), texts) ? true : undefined,
        );
        expect((await recordings(recorder)).map(({ state }) => state)).toEqual(Array(16).fill('open'));
      });
    }
    await eventually('the open ones are counted', async () =>
      (await recorder.metric('tailcast_recorder_sessions{state="open"}')) === 16 ? true : undefined,
    );
    await Promise.all(sessions.map((session) => session.end()));
    await eventually('the closed ones are counted', async () =>
      (await recorder.metric('tailcast_recorder_recordings_total{state="closed"}')) === 16 ? true : undefined,
    );
    expect(await recorder.stop()).toBe(0);
    expect(await verify()).toEqual({ ok: true, faults: [], recordings: 16 });
  });

  it('loses no byte when a worker crashes, and none when all are restarted', async () => {
    const recorder = await startRecorder(2);
    const sessions = await openAtEach(recorder, 6);
    let writing = true;
    const writers = sessions.map(async (session) => {
      while (writing) {
        await session.write(1);
        await new Promise((resolve) => setTimeout(resolve, 2));
      }
    });
    await eventually('something is written', async () =>
      sessions.every((session) => session.text().length > 500) ? true : undefined,
    );
    process.kill(recorder.worker(0), 'SIGKILL');
    await eventually('its sessions go on', async () =>
      sessions.some((session) => session.moves() > 0) ? true : undefined,
    );
    await eventually('the worker is replaced', async () =>
      (await fetch(`${recorder.ops}/readyz`)).status === 200 ? true : undefined,
    );
    recorder.signal('SIGHUP');
    await recorder.line(({ msg }) => msg === 'all workers were restarted');
    writing = false;
    await Promise.all(writers);
    await Promise.all(sessions.map((session) => session.end()));
    const shown = await eventually('all is in the store', async () => {
      const all = await recordings(recorder);
      return all.every(({ state }) => state === 'closed') ? casts(recorder) : undefined;
    });
    expect(sorted(shown)).toEqual(sorted(sessions.map((session) => session.text())));
    expect(await recorder.stop()).toBe(0);
    const { faults } = await verify();
    expect(faults).toEqual([]);
  });

  it('leaves nothing behind in spools of workers that there are no more', async () => {
    const three = await startRecorder(3);
    const sessions = await openSessions(three, 0, 12);
    for (const session of sessions) await session.write(5);
    await eventually('all is acknowledged', async () =>
      sessions.every(({ upload }) => upload.pendingBytes === 0) ? true : undefined,
    );
    const texts = sorted(sessions.map(({ text }) => text()));
    const workers = [0, 1, 2].map((slot) => three.worker(slot));
    three.signal('SIGKILL');
    for (const pid of workers) process.kill(pid, 'SIGKILL');
    for (const { upload } of sessions) upload.abort();
    await three.stop();
    for (const pid of workers) {
      await eventually('the workers are gone', async () => (isAlive(pid) ? undefined : true));
    }
    expect((await readdir(`${directory}.spool`)).filter((name) => name.startsWith('worker-'))).toHaveLength(
      2,
    );

    const one = await startRecorder(1);
    await eventually('all is in the store', async () => {
      const found = await recordings(one);
      return found.length === 12 && found.every(({ state }) => state === 'interrupted') ? true : undefined;
    });
    expect(sorted(await casts(one))).toEqual(texts);
    await eventually('the spools are gone', async () =>
      (await readdir(`${directory}.spool`)).some((name) => name.startsWith('worker-')) ? undefined : true,
    );
    expect(await one.stop()).toBe(0);
    expect(await verify()).toEqual({ ok: true, faults: [], recordings: 12 });
  });
});
