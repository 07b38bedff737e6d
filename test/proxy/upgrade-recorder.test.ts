/** The gateway's half against the recorder of this project: the two share only bytes. */
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Duplex } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../src/observe/logger.ts';
import { createRecorder, type Recorder } from '../../src/tsrecorder/server.ts';
import { serverMessage, statusExit, utf8 } from '../support/stream-peers.ts';
import {
  askUpgrade,
  startApiServerDouble,
  startRig,
  switching,
  WEBSOCKET_V5,
  type Rig,
} from '../support/upgrade-rig.ts';

const closers: (() => Promise<unknown>)[] = [];

afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function startRecorder(directory: string, port = 0): Promise<Recorder> {
  return createRecorder({
    listen: { host: '127.0.0.1', port },
    directory,
    identify: async () => ({ kind: 'accepted', nodeId: 'nGATE1CNTRL', nodeName: 'gateway.example.ts.net' }),
    log: createSilentLogger(),
    timing: { closeGraceMs: 50 },
  });
}

async function directory(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), 'upgrade-recorder-'));
  closers.push(() => rm(made, { recursive: true, force: true }));
  return made;
}

/** A gateway in front of an exec that a test speaks for. */
async function execRig(recorder: Recorder): Promise<{ readonly rig: Rig; readonly server: Promise<Duplex> }> {
  const opened = Promise.withResolvers<Duplex>();
  const apiServer = await startApiServerDouble((request, socket) => {
    socket.on('error', () => {});
    socket.once('end', () => socket.end());
    socket.resume();
    socket.write(switching(request, 'v5.channel.k8s.io'));
    opened.resolve(socket);
  });
  const { host, port } = recorder.address;
  const rig = await startRig({
    apiServer,
    recording: { mode: 'failClosed', recorders: [`${host}:${port}`], recorderTags: [], events: false },
    recorderLimits: { moveTimeoutMs: 10_000, moveRetryMs: 20 },
  });
  closers.push(
    () => apiServer.close(),
    () => rig.close(),
  );
  return { rig, server: opened.promise };
}

async function fetchCast(recorder: Recorder): Promise<{ readonly state: string; readonly lines: string[] }> {
  const list = (await (await fetch(`${recorder.url}/api/v1/recordings`)).json()) as {
    recordings: { id: string; state: string }[];
  };
  expect(list.recordings).toHaveLength(1);
  const { id, state } = list.recordings[0]!;
  const cast = await fetch(`${recorder.url}/api/v1/recordings/${encodeURI(id)}/cast`);
  expect(cast.status).toBe(200);
  return { state, lines: (await cast.text()).trimEnd().split('\n') };
}

describe('a session at the recorder of this project', () => {
  it('is stored whole, annotations apart from the cast', async () => {
    const recorder = await startRecorder(await directory());
    closers.push(() => recorder.close());
    const { rig, server } = await execRig(recorder);
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    (await server).write(
      Buffer.concat([serverMessage(1, utf8('out\n')), serverMessage(2, Uint8Array.of(0xff, 0x0a))]),
    );
    (await server).end(serverMessage(3, statusExit(7)));
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

  it('goes on when the recorder is restarted: nothing lost, nothing doubled', async () => {
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
    closers.push(() => last.close());
    socket.end(serverMessage(3, statusExit(0)));
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
