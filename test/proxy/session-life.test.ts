import { once } from 'node:events';
import { readFile } from 'node:fs/promises';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../src/errors.ts';
import { createSessionCounts } from '../../src/proxy/session/session-counts.ts';
import type { UpgradeDeps } from '../../src/proxy/session/upgrade.ts';
import { openRecorder, openRig, recordingPolicy } from '../support/recorded-rig.ts';
import { encodeWebSocketFrame, OPCODE } from '../../src/wire/websocket/frame.ts';
import { clientMessage, MASK, serverMessage, STATUS_SUCCESS, utf8 } from '../support/stream-peers.ts';
import {
  askUpgrade,
  statusBody,
  switching,
  WEBSOCKET_V5,
  type UpgradeScript,
} from '../support/upgrade-rig.ts';
import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';

async function start(deps: Partial<UpgradeDeps>, recorded = true) {
  const server = Promise.withResolvers<Duplex>();
  const script: UpgradeScript = (request, socket) => {
    socket.write(switching(request, 'v5.channel.k8s.io'));
    socket.resume().once('end', () => socket.end());
    server.resolve(socket);
  };
  const recorder = await openRecorder();
  const recording = recorded ? recordingPolicy('failClosed', [recorder.address]) : { mode: 'off' as const };
  const { rig } = await openRig(script, recording, { deps });
  return { rig, server: server.promise, recorder };
}

/** Returns the kind of timer that the kernel runs for the gateway's connection, from `/proc/net/tcp`. */
async function kernelTimerOf(port: number, peerPort: number | undefined): Promise<string> {
  const hex = (number = 0): string => `:${number.toString(16).toUpperCase().padStart(4, '0')}`;
  const lines = (await readFile('/proc/net/tcp', 'utf8')).split('\n');
  const line = lines
    .map((text) => text.trim().split(/\s+/))
    .find(
      ([, local, remote]) => local?.endsWith(hex(port)) === true && remote?.endsWith(hex(peerPort)) === true,
    );
  return line?.[5]?.startsWith('02:') === true ? 'keepalive' : `${line?.[5]}`;
}

describe('a session', () => {
  it('ends after its maximum duration, even if it is busy, and reports the reason', async () => {
    const { rig, server } = await start({ maxDurationMs: 120 });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    const upstream = await server;
    const busy = setInterval(() => upstream.write(serverMessage(1, utf8('.'))), 10);
    await client.reader.untilClosed();
    clearInterval(busy);
    expect(client.reader.bytes.toString()).toContain('has reached a limit of the gateway');
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'interrupted' });
  });

  it('may last longer than a timer of Node', async () => {
    const { rig, server } = await start({ maxDurationMs: 30 * 86_400_000 });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    (await server).write(serverMessage(1, utf8('hello')));
    await client.reader.take(serverMessage(1, utf8('hello')).length);
    await rig.sessions.endAll('the gateway is shutting down');
    await client.reader.untilClosed();
    expect(client.reader.bytes.toString()).not.toContain('has reached a limit of the gateway');
  });

  it('that was ended releases its connections when the client disconnects', async () => {
    const { rig, server } = await start({ maxDurationMs: 300, limits: { lingerMs: 600_000 } });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    (await server).pause();
    // sends more input than all buffers on the path to the API server can hold, so that the gateway stops reading
    const pasted = clientMessage(0, new Uint8Array(1024 * 1024));
    for (let count = 0; count < 32; count += 1) client.socket.write(pasted);
    await client.reader.untilClosed();
    expect(client.reader.bytes.toString()).toContain('has reached a limit of the gateway');
    await expect.poll(() => rig.clients.size).toBe(0);
  });

  it.runIf(process.platform === 'linux')('has TCP keep-alive while it is silent', async () => {
    const { rig } = await start({});
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    expect(await kernelTimerOf(rig.port, client.socket.localPort)).toBe('keepalive');
  });

  it.each(['end', 'destroy'] as const)(
    'is no success when the API server disconnects before it has sent the exit status (%s)',
    async (leave) => {
      const { rig, server } = await start({});
      const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
      const upstream = await server;
      upstream.write(serverMessage(1, utf8('half of it')));
      await client.reader.until(() => client.reader.bytes.includes('half of it'));
      upstream[leave]();
      await client.reader.untilClosed();
      // kubectl would treat a missing status as success
      const words = 'closed the connection before it said how the command ended';
      expect(client.reader.bytes.toString('latin1')).toContain(words);
      expect(await rig.until('sessionEnded')).toMatchObject({
        outcome: 'interrupted',
        reason: expect.stringContaining(words) as unknown,
      });
    },
  );

  it.each([true, false])('is no success without a proof of its end (recorded: %s)', async (recorded) => {
    const { rig, server } = await start({}, recorded);
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    const upstream = await server;
    upstream.write(serverMessage(1, utf8('half of it')));
    // sends the exit status, but no close frame after it
    upstream.write(serverMessage(3, STATUS_SUCCESS));
    upstream.end();
    await client.reader.untilClosed();
    const seen = client.reader.bytes.toString('latin1');
    expect(seen).toContain('half of it');
    expect(seen).toContain('"status":"Failure"');
    expect(seen).not.toContain('"status":"Success"');
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'interrupted' });
  });

  const CLOSE_FRAME = encodeWebSocketFrame({
    opcode: OPCODE.close,
    fin: true,
    payload: Uint8Array.of(3, 232),
    mask: MASK,
  });
  it.each<[string, (client: Socket, server: Duplex) => unknown]>([
    ['closes its connection', (client) => client.end()],
    ['is killed with bytes unread', (client) => client.resetAndDestroy()],
    ['sends a close frame and closes', (client) => client.end(CLOSE_FRAME)],
    [
      'sends a close frame and the API server closes first',
      async (client, server) => {
        const seen = once(server, 'data');
        client.write(CLOSE_FRAME);
        await seen;
        server.end();
      },
    ],
  ])('is client-disconnected if the client %s before the command ends', async (_how, leave) => {
    const { rig, server, recorder } = await start({});
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    const upstream = await server;
    await leave(client.socket, upstream);
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'client-disconnected' });
    expect(recorder.uploads[0]!.lines().at(-1)).toContain('"outcome":"client-disconnected"');
    expect(recorder.uploads[0]!.ended).toBe(true);
  });

  it.each([true, false])('ends after a time without activity (recorded: %s)', async (recorded) => {
    const { rig } = await start({ idleMs: 100 }, recorded);
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    await client.reader.untilClosed();
    expect(await rig.until('sessionEnded')).toMatchObject({
      outcome: 'interrupted',
      reason: expect.stringContaining('nothing has happened') as unknown,
    });
  });

  it('continues while there is activity, and pings do not count as activity', async () => {
    const { rig, server } = await start({ idleMs: 1_000 });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    await server;
    const startedMs = performance.now();
    const typing = setInterval(() => client.socket.write(clientMessage(0, utf8('x'))), 20);
    const ping = Buffer.from('898001020304', 'hex');
    const pings = setInterval(() => client.socket.write(ping), 20);
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    expect(rig.named('sessionEnded')).toEqual([]);
    clearInterval(typing);
    await client.reader.untilClosed();
    clearInterval(pings);
    expect(performance.now() - startedMs).toBeGreaterThan(2_400);
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'interrupted' });
  });

  it('is refused with 429 above the limit of its user, and releases its slot afterwards', async () => {
    const { rig } = await start({ counts: createSessionCounts({ perUser: 1, total: 5 }) });
    const first = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    expect(first.status).toBe(101);
    const second = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    expect(second.status).toBe(429);
    expect(second.head).toMatch(/retry-after: 1/i);
    expect(await statusBody(second)).toMatchObject({ code: 429 });
    first.socket.destroy();
    await rig.until('sessionEnded');
    await expect
      .poll(async () => {
        const third = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
        third.socket.destroy();
        return third.status;
      })
      .toBe(101);
  });

  it('that is refused for another reason uses no slot', async () => {
    const counts = createSessionCounts({ perUser: 1, total: 5 });
    const { rig } = await start({
      counts,
      recordApiRequest: async () => {},
      connect: async () => {
        throw new TailcastError('UPSTREAM_UNAVAILABLE');
      },
    });
    for (let time = 0; time < 3; time += 1) {
      const { status } = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
      expect(status).toBe(502);
    }
  });
});
