/** Deadlines and shares: no single node can use up the upload slots, event memory, connections or live views. */
import { once } from 'node:events';
import { request as httpRequest } from 'node:http';
import { connect } from 'node:http2';
import { connect as tcpConnect, type Socket } from 'node:net';
import { Registry } from 'prom-client';
import { describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';
import type { RunningRecorder } from '../../../src/compose/recorder-parts.ts';
import type { RecorderOptions } from '../../../src/compose/recorder-options.ts';
import {
  createRig,
  HEADER,
  openUpload,
  readAnswer,
  request,
  until,
  UPLOADER,
  uploadWhole,
  type Rig,
  type Upload,
} from '../recorder-rig.ts';

/** Identifies every loopback address as a different tailnet node. */
const identify: RecorderOptions['identify'] = async ({ address }) => ({
  ...UPLOADER,
  nodeId: address,
  nodeName: `node-${address}`,
});

const EVENT = '{"type":"kubernetes-api-request","timestamp":1}';

/** Opens an event upload that sends `bytes` of its body and stops. */
function openEvent(rig: Rig, from: string, bytes: number) {
  const { host, port } = rig.recorder.address;
  const event = httpRequest({
    host,
    port,
    localAddress: from,
    path: '/v2/event',
    method: 'POST',
    agent: false,
  });
  event.setHeader('content-length', bytes + 1);
  const answer = new Promise<number>((resolve) => {
    event.on('response', (response) => void readAnswer(response).then(({ status }) => resolve(status)));
    event.on('error', () => resolve(0));
  });
  event.write(Buffer.alloc(bytes, 0x20));
  return { answer, close: () => event.destroy() };
}

async function dial(rig: Rig, from: string): Promise<Socket> {
  const { host, port } = rig.recorder.address;
  const socket = tcpConnect({ host, port, localAddress: from });
  socket.on('error', () => undefined);
  await once(socket, 'connect');
  return socket;
}

describe.each(['h2', 'upgrade'] as const)('an upload over %s', (over) => {
  let sessions = 0;
  const open = (recorder: RunningRecorder): Upload =>
    openUpload(recorder, over === 'h2' ? {} : { 'tailcast-session': `s${(sessions += 1)}` });

  it.each([
    ['sends nothing', ''],
    ['sends half of a header line', HEADER.slice(0, 40)],
  ])('that %s is ended at the deadline, and its slot is released', async (_, text) => {
    const registry = new Registry();
    await using rig = await createRig({
      limits: { maxSessions: 1 },
      timing: { headerTimeoutMs: 50 },
      registry,
    });
    const silent = open(rig.recorder);
    silent.write(text);
    await silent.over;
    expect(silent.acks.at(-1)?.error).toMatch(/no complete header line within 50 ms/);
    expect(await registry.getSingleMetricAsString('tailcast_recorder_uploads_failed_total')).toMatch(
      /code="UPLOAD_MALFORMED"\} 1$/m,
    );
    const next = await uploadWhole(rig.recorder, HEADER);
    expect(next.acks.at(-1)).toEqual({ ack: HEADER.length });
    silent.close();
  });

  it('that has sent its header may be silent for longer', async () => {
    await using rig = await createRig({ timing: { headerTimeoutMs: 20, idleAckMs: 10 } });
    const upload = open(rig.recorder);
    upload.write(HEADER);
    await upload.ack(({ ack }) => ack === HEADER.length);
    const count = upload.acks.length;
    await until(async () => (upload.acks.length >= count + 5 ? true : undefined));
    upload.end();
    await upload.over;
    expect(upload.acks.filter(({ error }) => error !== undefined)).toEqual([]);
  });

  it('is refused for a node that uses as many slots as are free, and accepted from another node', async () => {
    let nodeId = 'nHostile';
    await using rig = await createRig({
      limits: { maxSessions: 8 },
      identify: async () => ({ ...UPLOADER, nodeId }),
    });
    const accepted: Upload[] = [];
    const refused: Upload[] = [];
    for (let count = 0; count < 8; count += 1) {
      const upload = open(rig.recorder);
      const { ':status': status } = await upload.headers;
      (status === (over === 'h2' ? 200 : 101) ? accepted : refused).push(upload);
    }
    expect(accepted).toHaveLength(4);
    nodeId = 'nInnocent';
    const innocent = await uploadWhole(rig.recorder, HEADER);
    expect(innocent.acks.at(-1)).toEqual({ ack: HEADER.length });
    for (const upload of [...accepted, ...refused]) upload.close();
  });
});

it('ends an upload over HTTP/1.1 that sends no header', async () => {
  await using rig = await createRig({ timing: { headerTimeoutMs: 50 } });
  const { host, port } = rig.recorder.address;
  const upload = httpRequest({ host, port, path: '/record', method: 'POST', agent: false });
  upload.flushHeaders();
  const [response] = await once(upload, 'response');
  expect((await readAnswer(response)).status).toBe(400);
  upload.destroy();
});

describe('events', () => {
  it('that stop in the middle are ended at the deadline', async () => {
    await using rig = await createRig({ timing: { eventTimeoutMs: 50 } });
    const stopped = openEvent(rig, '127.0.0.1', 10);
    expect(await stopped.answer).toBe(0);
    expect((await request(rig.recorder, { path: '/v2/event', method: 'POST', body: EVENT })).status).toBe(
      200,
    );
  });

  it('of one node leave memory for those of another', async () => {
    await using rig = await createRig({
      identify,
      limits: { maxTotalEventBytes: 1000, maxEventBytes: 1000 },
    });
    const hostile = Array.from({ length: 4 }, () => openEvent(rig, '127.0.0.2', 240));
    // two uploads of 240 bytes exhaust the share of this node
    expect(await Promise.race(hostile.map(({ answer }) => answer))).toBe(503);
    const innocent = await request(rig.recorder, {
      path: '/v2/event',
      method: 'POST',
      body: EVENT,
    });
    expect(innocent.status).toBe(200);
    for (const event of hostile) event.close();
  });
});

describe('connections', () => {
  it('of one address leave room for those of another', async () => {
    await using rig = await createRig({ limits: { maxConnections: 8 } });
    const sockets = await Promise.all(Array.from({ length: 8 }, () => dial(rig, '127.0.0.2')));
    await until(async () => (sockets.filter(({ closed }) => closed).length >= 4 ? true : undefined));
    expect((await rig.get('/healthz')).status).toBe(200);
    expect(sockets.filter(({ closed }) => !closed)).toHaveLength(4);
    for (const socket of sockets) socket.destroy();
  });
});

describe('live views', () => {
  it('of one viewer leave room for those of another', async () => {
    await using rig = await createRig({
      limits: { maxViewers: 4 },
      identifyViewer: async ({ address }) => ({ node: address, nodeId: address }),
    });
    const upload = openUpload(rig.recorder);
    upload.write(HEADER);
    await upload.ack(({ ack }) => ack === HEADER.length);
    const [recording] = await rig.list();
    const view = async (from: string): Promise<boolean> => {
      const { host, port } = rig.recorder.address;
      const url = `ws://${host}:${port}/api/v1/recordings/${recording!.id}/live`;
      const socket = new WebSocket(url, 'v2.asciicast', { localAddress: from });
      sockets.push(socket);
      return new Promise((resolve) => {
        socket.on('open', () => resolve(true));
        socket.on('error', () => resolve(false));
      });
    };
    const sockets: WebSocket[] = [];
    const hostile: boolean[] = [];
    for (let count = 0; count < 4; count += 1) hostile.push(await view('127.0.0.2'));
    expect(hostile).toEqual([true, true, false, false]);
    expect(await view('127.0.0.3')).toBe(true);
    for (const socket of sockets) socket.terminate();
    upload.close();
  });
});

it('has one remote address for all requests of a connection, so that tailscaled is queried once', async () => {
  const asked: unknown[] = [];
  await using rig = await createRig({
    identify: async (peer) => {
      asked.push(peer);
      return UPLOADER;
    },
  });
  const session = connect(rig.recorder.url);
  for (let count = 0; count < 2; count += 1) {
    const stream = session.request({ ':method': 'HEAD', ':path': '/v2/record' });
    await once(stream.resume(), 'close');
  }
  session.destroy();
  expect(asked).toHaveLength(2);
  expect(asked[1]).toBe(asked[0]);
});
