/**
 * Session orders that a recorder sends to the gateway of a running session. Gateway and recorder use real connections.
 */
import type { Duplex } from 'node:stream';
import { PassThrough } from 'node:stream';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { runProgram } from '../../../src/cli/program.ts';
import { openTestBuffers } from '../../support/elastic-buffers.ts';
import { followOrders, type OrderedSession } from '../../../src/proxy/session/orders.ts';
import { parseViewRule, type Viewer } from '../../../src/tsrecorder/serving/viewing.ts';
import type { SessionOrder } from '../../../src/wire/recorder-api/session-order.ts';
import { openRig, recordingPolicy } from '../../support/recorded-rig.ts';
import { WIRES, type Protocol } from '../../support/shell-wires.ts';
import { askUpgrade, EXEC_TTY, switching, type UpgradeScript } from '../../support/upgrade-rig.ts';
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

let viewer = CAROL;
beforeEach(() => void (viewer = CAROL));
async function recorderRig(): Promise<Rig> {
  const rig = await createRig({
    identifyViewer: async () => viewer,
    viewers: ['*', 'carol@example.com=end'].map(parseViewRule),
  });
  onTestFinished(async () => rig[Symbol.asyncDispose]());
  return rig;
}

function post(rig: Rig, path: string, headers: Record<string, string> = {}): Promise<Answer> {
  return request(rig.recorder, { path: `/api/v1/recordings/${path}`, method: 'POST', headers });
}

/** Opens a shell that echoes its input, with its gateway and recorder. */
async function openShell(protocol: Protocol = 'websocket') {
  const wire = WIRES[protocol]();
  const recorder = await recorderRig();
  const shell = Promise.withResolvers<Duplex>();
  const script: UpgradeScript = (asked, socket) => {
    shell.resolve(socket);
    socket.write(switching(asked, wire.chosen));
    if (protocol === 'websocket') socket.write(wire.greeting);
    const start = Buffer.from(wire.start);
    socket.on('data', (message: Buffer) => {
      if (start.length > 0 && message.includes(start)) socket.write(wire.greeting);
      if (message.includes(wire.input('typed\n'))) socket.write(wire.output('echo\n'));
    });
  };
  const { host, port } = recorder.recorder.address;
  const { rig: gateway } = await openRig(script, recordingPolicy('failClosed', [`${host}:${port}`]), {
    deps: { buffers: openTestBuffers() },
  });
  const client = await askUpgrade(gateway.port, {
    method: protocol === 'spdy' ? 'POST' : 'GET',
    target: EXEC_TTY,
    headers: wire.headers,
  });
  const shown = (): string => client.reader.bytes.toString('latin1');
  const showing = (text: string): Promise<true> =>
    until(async () => (shown().includes(text) ? true : undefined));
  client.socket.write(Buffer.concat([wire.start, wire.size]));
  await showing('# ');
  const id = await until(async () => (await recorder.list('?state=running'))[0]?.id);
  const recorded = async (): Promise<string> => (await recorder.get(`/api/v1/recordings/${id}/cast`)).body;
  return { recorder, gateway, client, wire, shell: await shell.promise, shown, showing, id, recorded };
}

describe('an order to a running session', () => {
  it('ends it with a reason that the user sees and that the recording contains', async () => {
    const { recorder, gateway, client, shown, id } = await openShell();
    expect((await recorder.get(`/api/v1/recordings/${id}/orders`)).body).toBe(
      '{"isPossible":true,"mayGive":true,"isModerated":false}',
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

  it.each(['websocket', 'spdy'] as const)(
    'pauses it over %s: output is recorded and shown later, input waits, and pings are answered',
    async (protocol) => {
      const { recorder, client, wire, shell, shown, showing, id, recorded } = await openShell(protocol);
      expect((await post(recorder, `${id}/orders/pause`)).status).toBe(200);
      shell.write(wire.output('tick\n'));
      await until(async () => ((await recorded()).includes('tick') ? true : undefined));
      client.socket.write(wire.ping);
      await until(async () => (client.reader.bytes.includes(wire.pong) ? true : undefined));
      client.socket.write(wire.input('typed\n'));
      shell.write(wire.output('tock\n'));
      await until(async () => ((await recorded()).includes('tock') ? true : undefined));
      expect(shown()).not.toContain('tick');
      expect(await recorded()).not.toContain('echo');
      expect((await post(recorder, `${id}/orders/resume`)).status).toBe(200);
      await showing('echo');
      expect(shown()).toMatch(/tick[^]*tock[^]*echo/);
      await until(async () => ((await recorded()).includes('echo') ? true : undefined));
    },
  );

  it.each(['websocket', 'spdy'] as const)('ends it over %s during a pause', async (protocol) => {
    const { recorder, client, wire, shell, shown, id, recorded } = await openShell(protocol);
    expect((await post(recorder, `${id}/orders/pause`)).status).toBe(200);
    shell.write(wire.output('tick\n'));
    await until(async () => ((await recorded()).includes('tick') ? true : undefined));
    expect((await post(recorder, `${id}/orders/end?reason=frozen`)).status).toBe(200);
    await client.reader.untilClosed();
    expect(shown()).toContain('carol@example.com: frozen');
    expect(shown()).not.toContain('tick');
    await until(async () => (await recorder.list('?state=interrupted'))[0]);
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
    const runWith = async (
      environment: ReadonlyMap<string, string>,
      ...args: string[]
    ): Promise<readonly [number, string]> => {
      const stdout = new PassThrough();
      const code = await runProgram(args, {
        environment,
        stdout,
        stderr: stdout,
        signal: new AbortController().signal,
      });
      return [code, Buffer.concat(await stdout.end().toArray()).toString()];
    };
    const run = (...args: string[]): Promise<readonly [number, string]> =>
      runWith(new Map(), ...args, '--recorder', recorder.recorder.readUrl);
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
    // The recorder lists a finished session before the session is in the store; `close` waits for the store.
    await recorder.recorder.close();
    const store = new Map([['TAILCAST_STORE', recorder.directory]]);
    expect(await runWith(store, 'watch', id)).toEqual([0, expect.stringContaining('# ')]);
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

/** Runs `followOrders` without a recorder; the test sends the session orders. */
function follow(
  maxPauseMs?: number,
  lost: Promise<Error> = new Promise(() => {}),
  moderation?: OrderedSession['moderation'],
) {
  const steps: string[] = [];
  let followed: ((order: SessionOrder) => void) | undefined;
  const resumed = Promise.withResolvers<void>();
  const stop = followOrders(
    {
      session: { order: ({ action, by }) => void steps.push(`${action} ${by}`) },
      upload: { onOrder: (given) => void (followed = given), lost },
      moderation,
    },
    { setPaused: (isPaused) => (isPaused ? void steps.push('paused') : resumed.resolve()) },
    ({ message }) => void steps.push(message),
    maxPauseMs,
  );
  const give = (action: SessionOrder['action'], by = 'carol@example.com'): void =>
    followed?.({ id: 'o1', action, by, reason: '' });
  return { steps, stop, give, resumed: resumed.promise };
}

describe('a gateway', () => {
  it('limits a pause', async () => {
    const { steps, stop, give, resumed } = follow(1);
    give('pause');
    await resumed;
    stop();
    give('pause');
    expect(steps).toEqual(['pause carol@example.com', 'paused', 'resume gateway']);
  });

  it('does not extend a pause by a second order', async () => {
    const { steps, stop, give, resumed } = follow(50);
    const more = setInterval(() => give('pause'), 5);
    await resumed;
    clearInterval(more);
    stop();
    expect(steps.at(-1)).toBe('resume gateway');
    // the limit is far below 256, the maximum number of session orders for one session
    expect(steps.length).toBeLessThan(200);
  });

  it('follows a limited number of orders of one session, and always an end', () => {
    const { steps, stop, give } = follow();
    for (let order = 0; order < 1000; order += 1) give(order % 2 === 0 ? 'pause' : 'resume');
    expect(steps.filter((step) => step.endsWith('carol@example.com'))).toHaveLength(256);
    give('end');
    stop();
    expect(steps.at(-1)).toContain('carol@example.com');
  });

  it.each([
    ['of a session that is not moderated', undefined],
    [
      'by viewers without the right of a moderator',
      { accepts: () => false, repeat: () => false, watch: (): undefined => undefined },
    ],
  ])('follows a rule after very many requests to watch, %s', (_, moderation) => {
    const { steps, stop, give } = follow(undefined, undefined, moderation);
    for (let order = 0; order < 1000; order += 1) give('watch');
    expect(steps.length).toBeLessThanOrEqual(256);
    give('hold', 'rule aws-key');
    stop();
    expect(steps.slice(-2)).toEqual(['hold rule aws-key', 'paused']);
  });

  it('holds a session until a viewer resumes it, also after the end of a pause', async () => {
    const { steps, stop, give, resumed } = follow(50);
    give('hold', 'rule aws-key');
    give('pause');
    give('resume');
    await resumed;
    stop();
    expect(steps).toEqual([
      'hold rule aws-key',
      'paused',
      'pause carol@example.com',
      'paused',
      'resume carol@example.com',
    ]);
  });

  it.each([
    ['in time', 1, new Promise<Error>(() => {})],
    ['before the recorder is lost', 60_000, Promise.resolve(new Error('gone'))],
  ])('ends a held session that no viewer resumes %s', async (_, maxPauseMs, lost) => {
    const { steps, stop, give } = follow(maxPauseMs, lost);
    give('pause');
    give('hold', 'rule aws-key');
    await vi.waitFor(() => expect(steps.at(-1)).toMatch(/^the session was ended on request: /));
    stop();
    expect(steps).not.toContain('resume gateway');
  });

  it('does not count the repetitions of a watcher', () => {
    const watched: string[] = [];
    const { give, stop } = follow(undefined, undefined, {
      accepts: () => true,
      repeat: () => watched.push('repeated') > 1,
      watch: () => void watched.push('first'),
    });
    for (let order = 0; order < 1000; order += 1) give('watch');
    stop();
    expect(watched).toEqual(['repeated', 'first', ...Array.from({ length: 999 }, () => 'repeated')]);
  });
});
