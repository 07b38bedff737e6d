/** Moderated sessions over real connections, from the waiting client to the end of the session. */
import { once } from 'node:events';
import { PassThrough, type Duplex } from 'node:stream';
import { afterEach, describe, expect, it } from 'vitest';
import { parseExecOptions } from '../../../src/kube/exec-options.ts';
import { parseTarget } from '../../../src/kube/canonical-target.ts';
import type { TailcastError } from '../../../src/errors.ts';
import { refuseHiddenTerminal } from '../../../src/proxy/session/container-terminal.ts';
import { holdSession, type HeldDial } from '../../../src/proxy/session/moderated.ts';
import { closeAll, openGateway, openShell, PROTOCOLS, RULE } from '../../support/moderated-rig.ts';
import { ALICE, askUpgrade, EXEC_TTY, statusBody, WEBSOCKET_V5 } from '../../support/upgrade-rig.ts';
import { request, until } from '../../tsrecorder/recorder-rig.ts';

afterEach(closeAll);

const HELD = {
  admission: {
    exec: parseExecOptions(parseTarget(EXEC_TTY)),
    identity: ALICE,
    recording: { mode: 'failClosed', recorders: [], recorderTags: [], events: false },
  },
  rules: [RULE],
  asksReason: false,
  protocol: 'websocket',
  dial: {
    connect: () => Promise.reject(new Error('not used')),
    method: 'GET',
    target: EXEC_TTY,
    headers: [
      'Sec-WebSocket-Key',
      'dGhlIHNhbXBsZSBub25jZQ==',
      'Sec-WebSocket-Version',
      '13',
      'Sec-WebSocket-Protocol',
      'v5.channel.k8s.io',
    ],
    protocol: 'websocket',
    responseTimeoutMs: 1000,
  },
  isTranslated: false,
} satisfies Omit<HeldDial, 'ask'>;

describe.each(PROTOCOLS)('a moderated shell over %s', (protocol) => {
  it('waits without a connection to the API server, starts with its input, and ends', async () => {
    const { apiServer, client, wire, shown, showing, watch, gateway, recorder, id } = await openShell({
      protocol,
    });
    client.socket.write(wire.input('typed\n'));
    client.socket.write(wire.ping);
    await client.reader.until(() => client.reader.bytes.includes(wire.pong));
    expect([apiServer.connections, gateway.upstreams.size, shown().includes('# ')]).toEqual([0, 0, false]);
    for (let count = 0; count < 3; count += 1) expect(await watch()).toMatchObject({ status: 200 });
    const events = await recorder.get('/api/v1/events?type=tailcast-recording-access');
    expect(events.body.match(/"action":"order-watch"/g)).toHaveLength(1);
    await showing('echo');
    expect(apiServer.requests).toHaveLength(1);
    client.socket.write(wire.input('exit\n'));
    await client.reader.untilClosed();
    expect(await gateway.until('sessionEnded')).toMatchObject({ outcome: 'completed', exitCode: 0 });
    const [stored] = await until(async () => {
      const list = await recorder.list('?state=completed');
      return list.length > 0 ? list : undefined;
    });
    expect(stored!.id).toBe(id);
    const cast = (await recorder.get(`/api/v1/recordings/${id}/cast`)).body;
    expect(cast).toMatch(/this session starts when[^]*# [^]*echo/);
    expect((await recorder.get(`/api/v1/recordings/${id}/notes`)).body).toContain(
      '"action":"watch","by":"bob@example.com"',
    );
  });

  it('ends with its recorder while it waits, and the API server gets no request', async () => {
    const { recorder, apiServer, client, shown, gateway } = await openShell({ protocol });
    await recorder.recorder.close();
    await client.reader.untilClosed();
    expect(await gateway.until('sessionEnded')).toMatchObject({ outcome: 'recorder-lost' });
    expect(shown()).toContain('the recorder');
    expect(apiServer.connections).toBe(0);
  });

  it('ends with its recorder while it runs', async () => {
    const { recorder, client, showing, watch, gateway } = await openShell({ protocol });
    await watch();
    await showing('# ');
    await recorder.recorder.close();
    await client.reader.untilClosed();
    expect(await gateway.until('sessionEnded')).toMatchObject({ outcome: 'recorder-lost' });
    await until(async () => (gateway.upstreams.size === 0 ? true : undefined));
  });

  it('shows a refusal of the API server after the wait', async () => {
    const status = JSON.stringify({
      kind: 'Status',
      message: 'pods "web" not found\u001b[31m\nroot# ',
      code: 404,
    });
    const { client, shown, watch, gateway } = await openShell({
      protocol,
      script: (socket) =>
        socket.end(`HTTP/1.1 404 Not Found\r\nContent-Length: ${status.length}\r\n\r\n${status}`),
    });
    await watch();
    await client.reader.untilClosed();
    expect(shown()).toContain('not found');
    // the status is JSON, so forged control characters would be escaped like this
    for (const control of [String.raw`\u001b`, String.raw`\n`]) expect(shown()).not.toContain(control);
    expect(await gateway.until('sessionEnded')).toMatchObject({ outcome: 'interrupted' });
  });

  it('ends when the gateway shuts down', async () => {
    const { client, shown, gateway, apiServer, recorder } = await openShell({ protocol });
    await gateway.sessions.endAll('maintenance');
    await client.reader.untilClosed();
    expect(shown()).toContain('maintenance');
    expect(apiServer.connections).toBe(0);
    expect(await recorder.list('?state=interrupted')).toHaveLength(1);
  });

  it.each(['Ctrl-C', 'its connection'])('ends when the user leaves with %s', async (how) => {
    const { client, wire, shown, gateway, apiServer, recorder, watch } = await openShell({ protocol });
    if (how === 'Ctrl-C') {
      client.socket.write(wire.input('\u0003'));
      await client.reader.untilClosed();
      expect(shown()).toContain('you cancelled it');
    } else client.socket.destroy();
    await gateway.until('sessionEnded');
    await until(async () => ((await recorder.list('?state=running')).length === 0 ? true : undefined));
    expect((await watch()).status).toBe(409);
    expect([apiServer.connections, gateway.upstreams.size]).toEqual([0, 0]);
  });
});

describe('a moderated shell', () => {
  it('ends when no moderator watches it any more', async () => {
    const { client, shown, showing, watch, gateway } = await openShell();
    await watch();
    await showing('# ');
    await client.reader.untilClosed();
    expect(shown()).toContain('no moderator watches it any more');
    expect(await gateway.until('sessionEnded')).toMatchObject({ outcome: 'interrupted' });
  });

  it('can be ended while it waits', async () => {
    const { client, shown, recorder, id, apiServer } = await openShell();
    const path = `/api/v1/recordings/${id}/orders/end?reason=no`;
    expect(await request(recorder.recorder, { path, method: 'POST' })).toMatchObject({ status: 200 });
    await client.reader.untilClosed();
    expect(shown()).toContain('bob@example.com: no');
    expect(apiServer.connections).toBe(0);
  });

  it('ends if the API server chooses another protocol than the gateway did', async () => {
    const script = (socket: Duplex): void =>
      void socket.write(
        'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
      );
    const { client, shown, watch, gateway } = await openShell({ script });
    await watch();
    await client.reader.untilClosed();
    expect(shown()).toContain('it did not choose v5.channel.k8s.io');
    await until(async () => (gateway.upstreams.size === 0 ? true : undefined));
  });

  it('keeps the token of a browser', async () => {
    const token = 'base64url.bearer.authorization.k8s.io.c2VjcmV0';
    const headers = [...WEBSOCKET_V5.slice(0, -1), `Sec-WebSocket-Protocol: ${token}, v5.channel.k8s.io`];
    const { apiServer, client, watch, showing, recorder, id } = await openShell({ headers });
    expect(client.head).toMatch(/\r\nSec-WebSocket-Protocol: v5\.channel\.k8s\.io\r\n/i);
    await watch();
    await showing('# ');
    expect(apiServer.requests[0]!.headers['sec-websocket-protocol']).toBe(`${token}, v5.channel.k8s.io`);
    expect((await recorder.get(`/api/v1/recordings/${id}/notes`)).body).not.toContain('c2VjcmV0');
  });

  it.each([
    ['base64', [...WEBSOCKET_V5.slice(0, -1), 'Sec-WebSocket-Protocol: base64.channel.k8s.io']],
    ['a WebSocket without a protocol', WEBSOCKET_V5.slice(0, -1)],
    ['a WebSocket without a key', WEBSOCKET_V5.filter((line) => !line.includes('Key'))],
  ])('is refused over %s', async (_, headers) => {
    const { gateway, apiServer, recorder } = await openGateway();
    const client = await askUpgrade(gateway.port, { target: EXEC_TTY, headers });
    expect(client.status).toBeGreaterThanOrEqual(400);
    expect((await statusBody(client)).message).toContain('a session that waits needs a newer version');
    expect(apiServer.connections).toBe(0);
    expect(await recorder.list()).toEqual([]);
  });
});

describe('a moderated session that ends while the gateway asks the API server', () => {
  it('does not start the command', async () => {
    const asked = Promise.withResolvers<AbortSignal>();
    const held = holdSession({
      ...HELD,
      ask(_, over) {
        asked.resolve(over);
        return Promise.withResolvers<never>().promise;
      },
    });
    const moderation = held.moderate({ order: () => {} }, () => {});
    const watcher = { nodeId: 'nBOB', user: 'bob@example.com' };
    moderation?.watch({ id: 'o1', action: 'watch', by: 'bob@example.com', reason: '', watcher });
    const over = await asked.promise;
    expect(over.aborted).toBe(false);
    held.answer.socket.destroy();
    await once(held.answer.socket, 'close');
    expect(over.aborted).toBe(true);
    moderation?.stop();
  });
});

it('a moderated session is refused if its pod gets a terminal while the session waits', async () => {
  const podOf = (tty: boolean): unknown => ({ spec: { containers: [{ name: 'web', tty }] } });
  const { client, shown, watch, apiServer } = await openShell({
    target: '/api/v1/namespaces/default/pods/web/attach?stdin=true&stdout=true&stderr=true',
    deps: { asksReason: true, refuseHiddenTerminal },
    pod: podOf(false),
  });
  apiServer.pod = podOf(true);
  await watch();
  await client.reader.untilClosed();
  expect(shown()).toContain('the container has a terminal');
  expect(apiServer.requests.filter(({ url }) => url?.includes('/attach'))).toEqual([]);
});

describe('a moderated session that the API server refuses with a body that does not end', () => {
  async function refuse(responseTimeoutMs: number) {
    const body = new PassThrough();
    const asked = Promise.withResolvers<void>();
    const end = Promise.withResolvers<TailcastError>();
    const held = holdSession({
      ...HELD,
      dial: { ...HELD.dial, responseTimeoutMs },
      async ask() {
        asked.resolve();
        return { kind: 'refused', status: 403, statusMessage: '', rawHeaders: [], body };
      },
    });
    const moderation = held.moderate({ order: () => {} }, end.resolve);
    const watcher = { nodeId: 'nBOB', user: 'bob@example.com' };
    moderation?.watch({ id: 'o1', action: 'watch', by: 'bob@example.com', reason: '', watcher });
    await asked.promise;
    return { body, held, ended: end.promise };
  }

  it('ends after the response timeout, and closes the connection', async () => {
    const { body, ended } = await refuse(20);
    expect((await ended).message).toContain('status 403');
    expect(body.destroyed).toBe(true);
  });

  it('closes the connection when the client leaves', async () => {
    const { body, held } = await refuse(60_000);
    const closed = new Promise((resolve) => body.on('error', () => {}).once('close', resolve));
    held.answer.socket.destroy();
    await closed;
    expect(body.destroyed).toBe(true);
  });
});
