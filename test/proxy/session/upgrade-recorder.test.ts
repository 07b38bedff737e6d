/**
 * Tests sessions of the gateway with tailcast's recorder. Gateway and recorder exchange bytes over sockets and share no
 * objects.
 */
import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import type { Duplex } from 'node:stream';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createSilentLogger } from '../../../src/observe/logger.ts';
import { createRecorder, type RunningRecorder } from '../../../src/compose/recorder-parts.ts';
import { openRig, recordingPolicy } from '../../support/recorded-rig.ts';
import { serverEnd, serverMessage, statusExit, utf8 } from '../../support/stream-peers.ts';
import {
  askUpgrade,
  switching,
  WEBSOCKET_V5,
  type UpgradeScript,
  type Rig,
} from '../../support/upgrade-rig.ts';

async function startRecorder(directory: string, port = 0): Promise<RunningRecorder> {
  return createRecorder({
    listen: { host: '127.0.0.1', port },
    directory,
    identify: async () => ({ kind: 'accepted', nodeId: 'nGATE1CNTRL', nodeName: 'gateway.example.ts.net' }),
    log: createSilentLogger(),
    timing: { closeGraceMs: 50 },
  });
}

const PROGRAM = fileURLToPath(new URL('../../tsrecorder/recorder-process.ts', import.meta.url));

interface RecorderProcess {
  readonly url: string;
  readonly address: { readonly host: string; readonly port: number };
  /** Suspends the process: it sends no acknowledgements, and its connections stay open. */
  freeze(): void;
  kill(): Promise<void>;
}

/** Starts a recorder that can be killed. */
async function spawnRecorder(root: string, port: number, resumeGraceMs: number): Promise<RecorderProcess> {
  const child: ChildProcess = spawn(process.execPath, [PROGRAM, root, String(port), String(resumeGraceMs)], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const exited = once(child, 'exit');
  const kill = async (): Promise<void> => {
    child.kill('SIGKILL');
    await exited;
  };
  onTestFinished(kill);
  const [output] = (await once(child.stdout!, 'data')) as [Buffer];
  const url = String(output).trim();
  const address = { host: '127.0.0.1', port: Number(new URL(url).port) };
  return { url, address, freeze: () => void child.kill('SIGSTOP'), kill };
}

async function directory(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), 'upgrade-recorder-'));
  return made;
}

/** Starts a gateway in front of a simulated exec that a test controls. */
async function execRig(
  recorder: Pick<RunningRecorder, 'address'>,
  options: { readonly mode?: 'failOpen' | 'failClosed'; readonly moveTimeoutMs?: number } = {},
): Promise<{ readonly rig: Rig; readonly server: Promise<Duplex> }> {
  const opened = Promise.withResolvers<Duplex>();
  const script: UpgradeScript = (request, socket) => {
    socket.on('error', () => {});
    socket.once('end', () => socket.end());
    socket.resume();
    socket.write(switching(request, 'v5.channel.k8s.io'));
    opened.resolve(socket);
  };
  const { host, port } = recorder.address;
  const recording = recordingPolicy(options.mode ?? 'failClosed', [`${host}:${port}`]);
  const { rig } = await openRig(script, recording, {
    recorderLimits: { moveTimeoutMs: options.moveTimeoutMs ?? 10_000, moveRetryMs: 20 },
  });
  return { rig, server: opened.promise };
}

interface FetchedCast {
  readonly state: string;
  readonly problem: string | undefined;
  readonly lines: string[];
}

async function fetchCast(recorder: Pick<RunningRecorder, 'url'>): Promise<FetchedCast> {
  const list = (await (await fetch(`${recorder.url}/api/v1/recordings`)).json()) as {
    recordings: { id: string; state: string; problem?: string }[];
  };
  expect(list.recordings).toHaveLength(1);
  const { id, state, problem } = list.recordings[0]!;
  const cast = await fetch(`${recorder.url}/api/v1/recordings/${encodeURI(id)}/cast`);
  expect(cast.status).toBe(200);
  return { state, problem, lines: (await cast.text()).trimEnd().split('\n') };
}

describe("a session with tailcast's recorder", () => {
  it('is stored completely, with annotations apart from the cast', async () => {
    const recorder = await startRecorder(await directory());
    onTestFinished(() => recorder.close());
    const { rig, server } = await execRig(recorder);
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    (await server).write(
      Buffer.concat([serverMessage(1, utf8('out\n')), serverMessage(2, Uint8Array.of(0xff, 0x0a))]),
    );
    (await server).end(serverEnd(statusExit(7)));
    await client.reader.untilClosed();
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'completed', exitCode: 7 });
    expect(rig.named('recordingGap')).toEqual([]);
    const { lines } = await fetchCast(recorder);
    expect(JSON.parse(lines[0]!)).toMatchObject({ connectionID: 'session-1', dstNodeID: 'nGATE1CNTRL' });
    expect(lines.slice(1).map((line) => (JSON.parse(line) as unknown[]).slice(1))).toEqual([
      ['o', 'out\n'],
      ['o', '\ufffd\n'],
    ]);
  });

  it('continues when the recorder is restarted: nothing is lost or repeated', async () => {
    const root = await directory();
    const first = await startRecorder(root);
    const { rig, server } = await execRig(first);
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    const socket = await server;
    const marks = Array.from({ length: 400 }, (_, index) => `${index} ${randomBytes(600).toString('hex')}\n`);
    let recorder = first;
    for (const [index, mark] of marks.entries()) {
      socket.write(serverMessage(1, utf8(mark)));
      if (index % 20 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
      if (index !== 150 && index !== 300) continue;
      await recorder.close();
      socket.write(serverMessage(1, utf8(`down ${index}\n`)));
      recorder = await startRecorder(root, first.address.port);
    }
    const last = recorder;
    onTestFinished(() => last.close());
    socket.end(serverEnd(statusExit(0)));
    await client.reader.untilClosed();
    await rig.until('sessionEnded');
    expect(rig.events.map(({ name }) => name)).not.toContain('recordingGap');
    expect(rig.named('recorderLost').every(({ resumed }) => resumed)).toBe(true);
    const expected = marks.flatMap((mark, index) =>
      index === 150 || index === 300 ? [mark, `down ${index}\n`] : [mark],
    );
    const { lines } = await fetchCast(recorder);
    const output = lines.slice(1).map((line) => (JSON.parse(line) as [number, string, string])[2]);
    expect(output.join('')).toBe(expected.join(''));
  });
});

/** Returns the output of a program as recorded in the events of a cast. */
function outputOf({ lines }: FetchedCast): string {
  return lines
    .slice(1)
    .map((line) => (JSON.parse(line) as [number, string, string])[2])
    .join('');
}

/** Returns the data on stdout that the client of a WebSocket session received. */
function seenBy(bytes: Buffer): string {
  let seen = '';
  for (let at = 0; at < bytes.length;) {
    const short = bytes[at + 1]!;
    const [header, length] = short < 126 ? [2, short] : [4, bytes.readUInt16BE(at + 2)];
    const payload = bytes.subarray(at + header, at + header + length);
    if ((bytes[at]! & 0x0f) === 2 && payload[0] === 1) seen += payload.subarray(1).toString();
    at += header + length;
  }
  return seen;
}

describe('a session whose only recorder is killed permanently', () => {
  it.each([
    ['goes on where the recorder left off', 60_000],
    ['becomes a part of the recording that the recorder has closed', 1],
  ])(
    'is interrupted, and the output that its client saw is delivered later: it %s',
    async (_how, resumeGraceMs) => {
      const root = await directory();
      const first = await spawnRecorder(root, 0, resumeGraceMs);
      const { rig, server } = await execRig(first, { moveTimeoutMs: 300 });
      const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
      const socket = await server;
      const marks = Array.from(
        { length: 200 },
        (_, index) => `${index} ${randomBytes(600).toString('hex')}\n`,
      );
      for (const [index, mark] of marks.entries()) {
        socket.write(serverMessage(1, utf8(mark)));
        if (index === 60) first.freeze();
        if (index % 20 === 0) await new Promise((resolve) => setTimeout(resolve, 5));
      }
      // the client receives all output without further acknowledgements, because the window is larger than the output
      await client.reader.until(() => client.reader.bytes.includes(marks.at(-1)!));
      await first.kill();
      await client.reader.untilClosed();
      expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'recorder-lost' });
      expect(rig.named('recordingDropped')).toEqual([]);
      const seen = seenBy(client.reader.bytes);
      expect(seen).toBe(marks.join(''));
      const again = await spawnRecorder(root, first.address.port, resumeGraceMs);
      const [left] = rig.named('recordingIncomplete');
      expect(await rig.until('recordingDelivered')).toMatchObject({
        sessionId: 'session-1',
        user: 'alice@example.com',
        recorder: `127.0.0.1:${first.address.port}`,
        bytes: left!['bytes'],
      });
      const cast = await fetchCast(again);
      expect(cast.state).toBe('interrupted');
      expect(cast.problem).toContain('the session recorder was lost');
      expect(outputOf(cast)).toBe(seen);
    },
  );

  it('is delivered to a recorder without its disk as a part that reports the missing bytes', async () => {
    const first = await spawnRecorder(await directory(), 0, 60_000);
    const { rig, server } = await execRig(first, { moveTimeoutMs: 300 });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    const socket = await server;
    socket.write(serverMessage(1, utf8('before\n')));
    await client.reader.take(serverMessage(1, utf8('before\n')).length);
    // waits until the recorder shows the output, because the recorder has then also acknowledged the output
    await expect.poll(async () => outputOf(await fetchCast(first))).toBe('before\n');
    first.freeze();
    socket.write(serverMessage(1, utf8('after\n')));
    await client.reader.take(serverMessage(1, utf8('after\n')).length);
    await first.kill();
    await client.reader.untilClosed();
    const empty = await spawnRecorder(await directory(), first.address.port, 60_000);
    await rig.until('recordingDelivered');
    const cast = await fetchCast(empty);
    expect(cast.state).toBe('interrupted');
    expect(cast.problem).toMatch(
      new RegExp(
        String.raw`^\d+ bytes of the upload are with the recorder at 127\.0\.0\.1:${first.address.port}, or lost; session interrupted`,
      ),
    );
    expect(outputOf(cast)).toBe('after\n');
    expect(JSON.parse(cast.lines[0]!)).toMatchObject({ connectionID: 'session-1' });
  });

  it('continues if recording is not enforced, and its recording ends where the recorder was lost', async () => {
    const root = await directory();
    const first = await spawnRecorder(root, 0, 60_000);
    const { rig, server } = await execRig(first, { mode: 'failOpen', moveTimeoutMs: 100 });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    const socket = await server;
    socket.write(serverMessage(1, utf8('before\n')));
    await client.reader.take(serverMessage(1, utf8('before\n')).length);
    await first.kill();
    await rig.until('recordingIncomplete');
    socket.write(serverMessage(1, utf8('unrecorded\n')));
    socket.end(serverEnd(statusExit(0)));
    await client.reader.untilClosed();
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'completed', exitCode: 0 });
    expect(rig.named('recordingGap')).toMatchObject([{ bytes: 'unrecorded\n'.length }]);
    const again = await spawnRecorder(root, first.address.port, 60_000);
    await rig.until('recordingDelivered');
    const cast = await fetchCast(again);
    expect(cast.state).toBe('interrupted');
    expect(outputOf(cast)).toBe('before\n');
  });
});
