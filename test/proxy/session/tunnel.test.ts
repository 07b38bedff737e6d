/** Upgraded connections that are not recorded: access checks, their end, and log messages. */
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../../src/errors.ts';
import type { UpgradeDeps } from '../../../src/proxy/session/upgrade.ts';
import type { RecordingPolicy } from '../../../src/recording/policy.ts';
import { encodeWebSocketFrame, OPCODE } from '../../../src/wire/websocket/frame.ts';
import { openRig } from '../../support/recorded-rig.ts';
import { clientMessage, createSpdyPeer, MASK, serverMessage, utf8 } from '../../support/stream-peers.ts';
import {
  askUpgrade,
  EXEC,
  SPDY_V4,
  switching,
  WEBSOCKET_V5,
  type UpgradeScript,
} from '../../support/upgrade-rig.ts';
import type { Duplex } from 'node:stream';

const OFF = { mode: 'off' } as const satisfies RecordingPolicy;
const ENFORCED: RecordingPolicy = {
  mode: 'failClosed',
  recorders: ['127.0.0.1:9'],
  recorderTags: [],
  events: false,
};
const WATCH = '/api/v1/namespaces/default/pods?watch=true';

async function start(recording: RecordingPolicy, deps: Partial<UpgradeDeps> = {}) {
  const server = Promise.withResolvers<Duplex>();
  const seen: Buffer[] = [];
  const script: UpgradeScript = (request, socket) => {
    const spdy = request.headers.upgrade === 'SPDY/3.1';
    socket.write(switching(request, spdy ? 'v4.channel.k8s.io' : 'v5.channel.k8s.io'));
    socket.on('data', (chunk: Buffer) => seen.push(chunk)).once('end', () => socket.end());
    server.resolve(socket);
  };
  const opened = await openRig(script, recording, { deps });
  return { ...opened, server: server.promise, seen: () => Buffer.concat(seen) };
}

describe('the end of a connection that is not recorded', () => {
  it('is reported to exec over WebSocket, on its error channel', async () => {
    const { rig, server } = await start(OFF);
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    (await server).write(serverMessage(1, utf8('hello')));
    await client.reader.take(serverMessage(1, utf8('hello')).length);
    await rig.sessions.endAll('the gateway is shutting down');
    await client.reader.untilClosed();
    const said = client.reader.bytes;
    expect(said.subarray(0, 2).toString('hex')).toBe('827a');
    expect(said[2]).toBe(3);
    expect(said.toString()).toContain('the gateway is shutting down');
    expect(said.subarray(-4).toString('hex')).toBe('880203e8');
  });

  it('is reported to exec over SPDY, on its error stream', async () => {
    const { rig, server } = await start(OFF);
    const client = await askUpgrade(rig.port, { method: 'POST', headers: SPDY_V4 });
    const [ours, theirs] = [createSpdyPeer(), createSpdyPeer()];
    client.socket.write(ours.open(1, 'error'));
    const upstream = await server;
    await new Promise((resolve) => upstream.once('data', resolve));
    const reply = theirs.reply(1);
    upstream.write(reply);
    await client.reader.take(reply.length);
    await rig.sessions.endAll('the gateway is shutting down');
    await client.reader.untilClosed();
    expect(client.reader.bytes.toString()).toContain('the gateway is shutting down');
    // these bytes are the header of a SPDY GOAWAY frame
    expect(client.reader.bytes.includes(Buffer.from('80030007', 'hex'))).toBe(true);
  });

  it.each([
    ['shutting down', new TailcastError('SHUTTING_DOWN', 'it is shutting down'), 1001],
    ['access that ended', new TailcastError('ACCESS_ENDED', 'x'.repeat(200)), 1008],
  ] as const)('is a close frame on any other WebSocket (%s)', async (_what, error, code) => {
    let end = (_error: TailcastError): void => {};
    const { rig, server } = await start(OFF, {
      rechecks: {
        watch: (_admission, _peer, endIt) => {
          end = endIt;
          return () => {};
        },
      },
    });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5, target: WATCH });
    const event = encodeWebSocketFrame({ opcode: OPCODE.text, fin: true, payload: utf8('{}') });
    (await server).write(event);
    await client.reader.take(event.length);
    end(error);
    await client.reader.untilClosed();
    const said = client.reader.bytes;
    expect(said[0]).toBe(0x88);
    expect(said[1]).toBe(said.length - 2);
    expect(said.length - 2).toBeLessThanOrEqual(125);
    expect(said.readUInt16BE(2)).toBe(code);
    expect(said.subarray(4).toString()).toMatch(/^tailcast: /);
  });

  it.each([
    ['in the middle of a frame', Buffer.from('820a0101', 'hex')],
    ['behind its close frame', Buffer.from('880203e8', 'hex')],
    ['that is no WebSocket at all', Buffer.from('ffffffff', 'hex')],
  ])('is not reported to the client %s', async (_where, bytes) => {
    for (const target of [EXEC, WATCH]) {
      const { rig, server } = await start(OFF);
      const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5, target });
      (await server).write(bytes);
      expect(await client.reader.take(bytes.length)).toEqual(bytes);
      await rig.sessions.endAll('the gateway is shutting down');
      await client.reader.untilClosed();
      expect(client.reader.bytes.length).toBe(0);
    }
  });

  it('leaves all transferred bytes unchanged', async () => {
    const { rig, server, seen } = await start(OFF);
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    const odd = Buffer.from('fffefdfc0102030405', 'hex');
    client.socket.write(odd);
    const upstream = await server;
    upstream.write(odd);
    expect(await client.reader.take(odd.length)).toEqual(odd);
    await expect.poll(() => seen().toString('hex')).toBe(odd.toString('hex'));
  });
});

describe('a WebSocket that is not an exec, for a caller with enforced recording', () => {
  it('transfers output, and the pings and the close frame of its client', async () => {
    const { rig, server, seen } = await start(ENFORCED);
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5, target: WATCH });
    expect(client.status).toBe(101);
    const event = encodeWebSocketFrame({ opcode: OPCODE.text, fin: true, payload: utf8('{"type":"ADDED"}') });
    (await server).write(event);
    expect(await client.reader.take(event.length)).toEqual(Buffer.from(event));
    const ping = encodeWebSocketFrame({ opcode: OPCODE.ping, fin: true, payload: utf8('x'), mask: MASK });
    const empty = encodeWebSocketFrame({ opcode: OPCODE.text, fin: true, payload: utf8(''), mask: MASK });
    client.socket.write(Buffer.concat([ping, empty]));
    await expect.poll(() => seen().length).toBe(ping.length + empty.length);
    expect(rig.named('sessionEnded')).toEqual([]);
  });

  it.each([
    ['a message', clientMessage(0, utf8('id\n'))],
    ['a compressed message', Buffer.from('c18101020304ab', 'hex')],
    ['a continued message', Buffer.from('018001020304008101020304ab', 'hex')],
    ['what is no WebSocket', utf8('id\nid\nid\nid\n')],
  ])('ends when its client writes %s, which is not forwarded', async (_what, bytes) => {
    const { rig, server, seen } = await start(ENFORCED);
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5, target: WATCH });
    await server;
    client.socket.write(bytes);
    await client.reader.untilClosed();
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'violated' });
    expect(seen().length).toBe(0);
    expect(client.reader.bytes.readUInt16BE(2)).toBe(1008);
  });
});

describe('a port-forward that opens many streams', () => {
  const target = '/api/v1/namespaces/default/pods/web-0/portforward';

  it('waits, for each caller, and transfers all bytes', async () => {
    const charged: string[] = [];
    const portForwards = { rate: (caller: string): number => 50 * charged.push(caller) };
    const { rig, server, seen } = await start(OFF, { portForwards });
    const client = await askUpgrade(rig.port, { method: 'POST', headers: SPDY_V4, target });
    await server;
    const peer = createSpdyPeer();
    const frames = [peer.open(1, 'error'), peer.open(3, 'stdout')];
    const sentMs = performance.now();
    for (const frame of frames) client.socket.write(frame);
    await expect.poll(() => seen().toString('hex')).toBe(Buffer.concat(frames).toString('hex'));
    expect(performance.now() - sentMs).toBeGreaterThan(90);
    expect(charged).toEqual(['alice@example.com', 'alice@example.com']);
  });

  it('ends if the caller would have to wait too long', async () => {
    const { rig } = await start(OFF, { portForwards: { rate: () => 60_000 } });
    const client = await askUpgrade(rig.port, { method: 'POST', headers: SPDY_V4, target });
    client.socket.write(createSpdyPeer().open(1, 'error'));
    await client.reader.untilClosed();
    await expect.poll(() => rig.accessLines).toMatchObject([{ status: 101, error: 'SESSION_LIMIT' }]);
  });
});

describe('the access log', () => {
  it('has one entry for a session, after its end', async () => {
    const { rig, server } = await start(OFF);
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    expect(rig.accessLines).toEqual([]);
    expect(rig.finished).toMatchObject([{ protocol: 'upgrade', status: 101 }]);
    const message = serverMessage(1, utf8('hello'));
    (await server).write(message);
    await client.reader.take(message.length);
    client.socket.write(clientMessage(0, utf8('x')));
    client.socket.end();
    await rig.until('sessionEnded');
    await expect.poll(() => rig.accessLines).toHaveLength(1);
    expect(rig.accessLines[0]).toEqual({
      id: 'session-1',
      protocol: 'upgrade',
      peer: '100.64.0.1',
      user: 'alice@example.com',
      method: 'GET',
      path: EXEC.split('?')[0],
      status: 101,
      durationMs: expect.any(Number) as number,
      requestBytes: clientMessage(0, utf8('x')).length,
      responseBytes: message.length,
    });
    expect(rig.finished).toHaveLength(1);
  });

  it('contains the reason if the gateway ended the session', async () => {
    const { rig } = await start(OFF, { maxDurationMs: 50 });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    await client.reader.untilClosed();
    await expect.poll(() => rig.accessLines).toMatchObject([{ status: 101, error: 'SESSION_LIMIT' }]);
  });

  it('contains refusals of the gateway and of the API server', async () => {
    const { rig, apiServer } = await start(ENFORCED);
    await askUpgrade(rig.port, { headers: WEBSOCKET_V5, target: '/healthz' });
    await expect
      .poll(() => rig.accessLines)
      .toMatchObject([{ status: 403, error: 'POLICY_REFUSED', path: '/healthz', id: '', user: '' }]);
    apiServer.script = (_request, socket) =>
      void socket.end('HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n');
    await askUpgrade(rig.port, { headers: WEBSOCKET_V5, target: WATCH });
    await expect.poll(() => rig.accessLines).toHaveLength(2);
    expect(rig.accessLines[1]).toMatchObject({ status: 404, user: 'alice@example.com' });
    expect(rig.accessLines[1]).not.toHaveProperty('error');
    expect(rig.finished.map(({ status }) => status)).toEqual([403, 404]);
  });

  it('contains a client that disconnected before the response', async () => {
    const { rig, apiServer } = await start(OFF);
    const asked = Promise.withResolvers<void>();
    apiServer.script = () => asked.resolve();
    const answer = askUpgrade(rig.port, { headers: WEBSOCKET_V5 }).catch(() => undefined);
    await asked.promise;
    for (const { socket } of apiServer.requests) socket.pause();
    rig.dropClients();
    await answer;
    await expect.poll(() => rig.accessLines).toMatchObject([{ status: 499 }]);
  });
});
