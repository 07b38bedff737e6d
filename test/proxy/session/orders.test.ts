/** Orders from a recorder to the gateway of a running session, over real connections of both. */
import { tmpdir } from 'node:os';
import type { Duplex } from 'node:stream';
import { PassThrough } from 'node:stream';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { runProgram } from '../../../src/cli/program.ts';
import { BUFFER_SETTINGS, createElasticBuffers } from '../../../src/proxy/session/elastic-buffers.ts';
import { followOrders } from '../../../src/proxy/session/orders.ts';
import { parseViewRule, type Viewer } from '../../../src/tsrecorder/serving/viewing.ts';
import type { SessionOrder } from '../../../src/wire/recorder-api/session-order.ts';
import { encodeWebSocketFrame } from '../../../src/wire/websocket/frame.ts';
import { serverMessage, utf8 } from '../../support/stream-peers.ts';
import {
  askUpgrade,
  EXEC_TTY,
  startApiServerDouble,
  startRig,
  switching,
  WEBSOCKET_V5,
} from '../../support/upgrade-rig.ts';
import {
  createRig,
  HEADER,
  openUpload,
  request,
  until,
  type Answer,
  type Rig,
} from '../../tsrecorder/recorder-rig.ts';

const CAROL: Viewer = { node: 'desk.tail1.ts.net', nodeId: 'nDESK', user: 'carol@example.com' };
const DAVE: Viewer = { ...CAROL, user: 'dave@example.com' };
const MASK = Uint8Array.of(1, 2, 3, 4);

const closers: (() => Promise<void>)[] = [];
let viewer = CAROL;
beforeEach(() => void (viewer = CAROL));
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close();
});

async function recorderRig(): Promise<Rig> {
  const rig = await createRig({
    identifyViewer: async () => viewer,
    viewers: ['*', 'carol@example.com=end'].map(parseViewRule),
  });
  closers.push(async () => rig[Symbol.asyncDispose]());
  return rig;
}

function post(rig: Rig, path: string, headers: Record<string, string> = {}): Promise<Answer> {
  return request(rig.recorder, { path: `/api/v1/recordings/${path}`, method: 'POST', headers });
}

/** A shell that echoes its input, with its gateway and recorder. */
async function openShell() {
  const recorder = await recorderRig();
  const shell = Promise.withResolvers<Duplex>();
  const apiServer = await startApiServerDouble((asked, socket) => {
    shell.resolve(socket);
    socket.write(switching(asked, 'v5.channel.k8s.io'));
    socket.write(serverMessage(1, utf8('# ')));
    socket.on('data', (message: Buffer) => {
      // a binary message on the channel of stdin
      if (message[0] === 0x82 && message[6] === MASK[0]) socket.write(serverMessage(1, utf8('echo\n')));
    });
  });
  const { host, port } = recorder.recorder.address;
  const gateway = await startRig({
    apiServer,
    recording: { mode: 'failClosed', recorders: [`${host}:${port}`], recorderTags: [], events: false },
    deps: { buffers: createElasticBuffers({ ...BUFFER_SETTINGS, directory: tmpdir() }) },
  });
  closers.push(
    () => gateway.close(),
    async () => apiServer.close(),
  );
  const client = await askUpgrade(gateway.port, { target: EXEC_TTY, headers: WEBSOCKET_V5 });
  const send = (channel: number, text: string): boolean =>
    client.socket.write(
      encodeWebSocketFrame({
        opcode: 2,
        fin: true,
        payload: Buffer.concat([Uint8Array.of(channel), utf8(text)]),
        mask: MASK,
      }),
    );
  const shown = (): string => client.reader.bytes.toString('latin1');
  const showing = (text: string): Promise<true> =>
    until(async () => (shown().includes(text) ? true : undefined));
  send(4, '{"Width":80,"Height":24}\n');
  await showing('# ');
  const id = await until(async () => (await recorder.list('?state=running'))[0]?.id);
  const recorded = async (): Promise<string> => (await recorder.get(`/api/v1/recordings/${id}/cast`)).body;
  return { recorder, gateway, client, send, shell: await shell.promise, shown, showing, id, recorded };
}

describe('an order to a running session', () => {
  it('ends it with a reason that the user sees and that the recording contains', async () => {
    const { recorder, gateway, client, shown, id } = await openShell();
    expect((await recorder.get(`/api/v1/recordings/${id}/orders`)).body).toBe(
      '{"isPossible":true,"mayGive":true}',
    );
    const reason = 'frozen\u001b[31m';
    const answer = await post(recorder, `${id}/orders/end?reason=${encodeURIComponent(reason)}`);
    expect(answer).toMatchObject({ status: 200, body: '{"action":"end","confirmed":true}' });
    await client.reader.untilClosed();
    expect(shown()).toContain('the session was ended on request: carol@example.com: frozen');
    expect(shown()).not.toContain('\u001b');
    expect(await gateway.until('sessionEnded')).toMatchObject({ outcome: 'interrupted' });
    const stored = await until(async () => (await recorder.list('?state=interrupted'))[0]);
    expect(stored.problem).toContain('carol@example.com: frozen');
    const notes = await recorder.get(`/api/v1/recordings/${id}/notes`);
    expect(notes.body).toContain('"action":"end","by":"carol@example.com"');
    const events = await recorder.get('/api/v1/events?type=tailcast-recording-access');
    expect(events.body).toContain('"action":"order-end"');
    expect((await post(recorder, `${id}/orders/end`)).body).toContain('the session has ended');
  });

  it('pauses it: output is recorded and shown later, input waits, and pings are answered', async () => {
    const { recorder, client, send, shell, shown, showing, id, recorded } = await openShell();
    expect((await post(recorder, `${id}/orders/pause`)).status).toBe(200);
    shell.write(serverMessage(1, utf8('tick\n')));
    await until(async () => ((await recorded()).includes('tick') ? true : undefined));
    const ping = { opcode: 9, fin: true, payload: utf8('alive?'), mask: MASK } as const;
    client.socket.write(encodeWebSocketFrame(ping));
    await showing('alive?');
    send(0, 'typed\n');
    shell.write(serverMessage(1, utf8('tock\n')));
    await until(async () => ((await recorded()).includes('tock') ? true : undefined));
    expect(shown()).not.toContain('tick');
    expect(await recorded()).not.toContain('echo');
    expect((await post(recorder, `${id}/orders/resume`)).status).toBe(200);
    await showing('echo');
    expect(shown()).toMatch(/tick[^]*tock[^]*echo/);
    await until(async () => ((await recorded()).includes('echo') ? true : undefined));
  });

  it('is refused without the right, from another site, and for an unknown recording', async () => {
    const { recorder, id } = await openShell();
    expect((await post(recorder, `${id}/orders/end`, { origin: 'https://evil.example' })).status).toBe(403);
    expect((await post(recorder, `${id}/orders/end`, { 'sec-fetch-site': 'cross-site' })).status).toBe(403);
    expect((await post(recorder, `${id}/orders/kill`)).status).toBe(400);
    expect((await post(recorder, `${id}/orders/end?reason=${'x'.repeat(201)}`)).status).toBe(400);
    expect((await post(recorder, 'nX_2026-01-01T00:00:00.000000000Z/orders/end')).status).toBe(404);
    viewer = DAVE;
    expect((await post(recorder, `${id}/orders/end`)).status).toBe(403);
    expect((await recorder.list('?state=running')).length).toBe(1);
  });
});

describe('the commands for running sessions', () => {
  it('list, pause and end a session, and print the refusal of an ended one', async () => {
    const { recorder, client, shown, id } = await openShell();
    const run = async (...args: string[]): Promise<readonly [number, string]> => {
      const stdout = new PassThrough();
      const code = await runProgram([...args, '--recorder', recorder.recorder.readUrl], {
        environment: new Map(),
        stdout,
        stderr: stdout,
        signal: new AbortController().signal,
      });
      return [code, Buffer.concat(await stdout.end().toArray()).toString()];
    };
    expect(await run('sessions', '--json')).toEqual([0, expect.stringContaining(id)]);
    expect(await run('pause', id)).toEqual([0, `${id}: the gateway confirmed: pause\n`]);
    const watched = run('watch', id);
    expect(await run('end', 'latest', '--reason', 'freeze')).toEqual([
      0,
      `${id}: the gateway confirmed: end\n`,
    ]);
    await client.reader.untilClosed();
    expect(await watched).toEqual([0, expect.stringContaining('# ')]);
    expect(shown()).toContain('carol@example.com: freeze');
    await until(async () => (await recorder.list('?state=interrupted'))[0]);
    expect(await run('end', id)).toEqual([1, expect.stringContaining('[ORDER_IMPOSSIBLE]')]);
  });
});

describe('a recorder', () => {
  it.each([
    ['does not follow orders', {}, 409, 'ORDER_IMPOSSIBLE'],
    ['never confirms', { 'tailcast-orders': '1' }, 503, 'ORDER_UNCONFIRMED'],
  ])('reports a gateway that %s', async (_name, headers, status, code) => {
    const recorder = await recorderRig();
    const upload = openUpload(recorder.recorder, { 'tailcast-session': 's1', ...headers });
    upload.write(HEADER);
    upload.write('{"kind":"order","id":"forged","action":"end","by":"x","reason":""}\n');
    await upload.ack(({ ack }) => ack > 0);
    const { id } = (await recorder.list())[0]!;
    const answer = await post(recorder, `${id}/orders/end?reason=stop`);
    expect([answer.status, JSON.parse(answer.body).code]).toEqual([status, code]);
    if (status === 503)
      expect(upload.acks.find(({ order }) => order !== undefined)?.order).toMatchObject({
        action: 'end',
        by: 'carol@example.com',
        reason: 'stop',
      });
    upload.close();
  });
});

describe('a gateway', () => {
  it('limits a pause', async () => {
    const steps: string[] = [];
    let give: ((order: SessionOrder) => void) | undefined;
    const resumed = Promise.withResolvers<void>();
    const stop = followOrders(
      {
        session: { order: ({ action, by }) => void steps.push(`${action} ${by}`) },
        upload: { onOrder: (follow) => void (give = follow), lost: new Promise(() => {}) },
      },
      { setPaused: (isPaused) => (isPaused ? void steps.push('paused') : resumed.resolve()) },
      () => {},
      1,
    );
    give?.({ id: 'o1', action: 'pause', by: 'carol@example.com', reason: '' });
    await resumed.promise;
    stop();
    give?.({ id: 'o2', action: 'pause', by: 'carol@example.com', reason: '' });
    expect(steps).toEqual(['pause carol@example.com', 'paused', 'resume gateway']);
  });
});
