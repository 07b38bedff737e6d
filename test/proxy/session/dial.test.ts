import { once } from 'node:events';
import { connect } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { dialUpgrade, type UpgradeDial } from '../../../src/proxy/session/dial.ts';
import { ByteReader } from '../../support/byte-reader.ts';
import {
  startApiServerDouble,
  switching,
  type ApiServerDouble,
  type UpgradeScript,
} from '../../support/upgrade-rig.ts';

const doubles: ApiServerDouble[] = [];
const never = new AbortController().signal;

afterEach(async () => {
  await Promise.all(doubles.splice(0).map((double) => double.close()));
});

async function dial(script: UpgradeScript, options: Partial<UpgradeDial> = {}, signal = never) {
  const double = await startApiServerDouble(script);
  doubles.push(double);
  const answer = dialUpgrade(
    {
      connect: async () => {
        const socket = connect(double.port, '127.0.0.1');
        await once(socket, 'connect');
        return socket;
      },
      method: 'GET',
      target: '/base/api?x=%2F&command=a+b',
      headers: ['Host', 'kubernetes', 'X-Twice', '1', 'X-Twice', '2'],
      protocol: 'websocket',
      subprotocol: { header: 'sec-websocket-protocol', offered: ['v5.channel.k8s.io'] },
      responseTimeoutMs: 5_000,
      ...options,
    },
    signal,
  );
  return { answer, double };
}

const accept: UpgradeScript = (request, socket) => {
  socket.write(`${switching(request, 'v5.channel.k8s.io', 'X-Lower: é')}early`);
};

describe('dialUpgrade', () => {
  it('sends target and headers unchanged, and returns socket, head and chosen subprotocol', async () => {
    const { answer, double } = await dial(accept);
    const switched = await answer;
    expect(switched).toMatchObject({
      kind: 'switched',
      subprotocol: 'v5.channel.k8s.io',
      statusMessage: 'Switching Protocols',
    });
    const { socket, head, rawHeaders } = switched as Extract<typeof switched, { kind: 'switched' }>;
    const reader = new ByteReader(socket, head);
    expect((await reader.take(5)).toString()).toBe('early');
    expect(rawHeaders).toContain('X-Lower');
    const [request] = double.requests;
    expect(request?.url).toBe('/base/api?x=%2F&command=a+b');
    expect(request?.rawHeaders).toEqual([
      'Host',
      'kubernetes',
      'X-Twice',
      '1',
      'X-Twice',
      '2',
      'Connection',
      'Upgrade',
      'Upgrade',
      'websocket',
    ]);
    socket.destroy();
  });

  it('declares that a POST has no body', async () => {
    const { answer, double } = await dial((request, socket) => socket.write(switching(request, undefined)), {
      method: 'POST',
      protocol: 'SPDY/3.1',
    });
    const switched = await answer;
    expect(switched.kind).toBe('switched');
    expect(double.requests[0]?.headers).toMatchObject({ 'content-length': '0', upgrade: 'SPDY/3.1' });
    (switched as Extract<typeof switched, { kind: 'switched' }>).socket.destroy();
  });

  it('returns a refusal without reading its body', async () => {
    const { answer } = await dial((_request, socket) => {
      socket.end('HTTP/1.1 403 Forbidden\r\nX-A: 1\r\nContent-Length: 4\r\n\r\nnope');
    });
    const refused = await answer;
    expect(refused).toMatchObject({ kind: 'refused', status: 403, statusMessage: 'Forbidden' });
    const { body, rawHeaders } = refused as Extract<typeof refused, { kind: 'refused' }>;
    expect(rawHeaders.slice(0, 2)).toEqual(['X-A', '1']);
    const reader = new ByteReader(body);
    expect((await reader.take(4)).toString()).toBe('nope');
  });

  it('ignores interim responses', async () => {
    const { answer } = await dial((_request, socket) => {
      socket.end('HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n');
    });
    expect(await answer).toMatchObject({ kind: 'refused', status: 404 });
  });

  it.each([
    ['another protocol', 'HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n\r\n'],
    ['no protocol', 'HTTP/1.1 101 S\r\nConnection: Upgrade\r\n\r\n'],
    [
      'an unoffered subprotocol',
      'HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: ' +
        'v4.channel.k8s.io\r\n\r\n',
    ],
  ])('rejects a 101 with %s', async (_name, bytes) => {
    const { answer } = await dial((_request, socket) => socket.write(bytes));
    await expect(answer).rejects.toMatchObject({ code: 'UPSTREAM_BROKEN' });
  });

  it('is unavailable when the API server closes the connection, sends nothing, or is unreachable', async () => {
    const hangUp = await dial((_request, socket) => socket.destroy());
    await expect(hangUp.answer).rejects.toMatchObject({ code: 'UPSTREAM_UNAVAILABLE' });
    const silent = await dial(() => undefined, { responseTimeoutMs: 50 });
    await expect(silent.answer).rejects.toThrow(/no response to the upgrade in 50 ms/);
    const absent = await dial(() => undefined, { connect: () => Promise.reject(new Error('refused')) });
    await expect(absent.answer).rejects.toThrow('refused');
  });

  it('stops when the client disconnects, and closes a connection that opens too late', async () => {
    const left = new AbortController();
    const { answer } = await dial(() => undefined, {}, left.signal);
    left.abort(new Error('the client left'));
    await expect(answer).rejects.toThrow('the client left');
    const gone = new AbortController();
    const late = Promise.withResolvers<ReturnType<typeof connect>>();
    const waiting = await dial(accept, { connect: () => late.promise }, gone.signal);
    gone.abort(new Error('the client left'));
    await expect(waiting.answer).rejects.toThrow('the client left');
    const socket = connect(waiting.double.port, '127.0.0.1');
    late.resolve(socket);
    await once(socket, 'close');
    expect(socket.destroyed).toBe(true);
  });
});
