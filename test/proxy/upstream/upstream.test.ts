import { once } from 'node:events';
import { createServer as createPlainServer, type AddressInfo, type Socket } from 'node:net';
import { createServer } from 'node:tls';
import { afterEach, describe, expect, it } from 'vitest';
import { createClient, issuePki, openRig, type Client, type Rig, type RigOptions } from '../rig.ts';

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

async function rigWith(
  upstream: RigOptions['upstream'],
  options: Partial<RigOptions> = {},
): Promise<[Rig, Client]> {
  const rig = await openRig({ upstream, ...options });
  cleanups.push(() => rig.close());
  const client = createClient('h1', rig);
  cleanups.push(() => client.close());
  return [rig, client];
}

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const requestsIn = (text: string): number => text.match(/^[A-Z]+ \S+ HTTP\/1\.1\r$/gm)?.length ?? 0;

/** Answers the first request of the first connection, and closes that connection when the second one arrives. */
function staleAfterFirst(): RigOptions['upstream'] {
  let connections = 0;
  return (connection) => {
    const first = ++connections === 1;
    connection.socket.on('data', () => {
      if (first && requestsIn(connection.received()) > 1) connection.socket.destroy();
      else connection.socket.write(OK);
    });
  };
}

describe('exchanges with the API server', () => {
  it('send a GET once more, on a fresh connection, when an idle one turns out to be closed', async () => {
    const [rig, client] = await rigWith(staleAfterFirst());
    await client.ask({ path: '/one' });
    const answer = await client.ask({ path: '/two' });
    expect(answer.status).toBe(200);
    expect(rig.upstreams).toHaveLength(2);
    expect(rig.upstreams[1]!.received()).toMatch(/^GET \/two /);
  });

  it.each([
    ['POST', '{}'],
    ['DELETE', undefined],
    ['PATCH', '{}'],
  ])('send a %s at most once', async (method, body) => {
    const [rig, client] = await rigWith(staleAfterFirst());
    await client.ask({ path: '/one' });
    const answer = await client.ask({
      method,
      path: '/two',
      ...(body === undefined ? {} : { body, headers: ['Content-Length', String(body.length)] }),
    });
    expect(answer.status).toBe(502);
    expect(rig.upstreams).toHaveLength(1);
  });

  it('send a GET not again when it was the first on its connection, or when an answer had begun', async () => {
    const [rig, client] = await rigWith((connection) =>
      connection.socket.once('data', () => connection.socket.destroy()),
    );
    expect((await client.ask({ path: '/one' })).status).toBe(502);
    expect(rig.upstreams).toHaveLength(1);
    const [begun, asking] = await rigWith((connection) =>
      connection.socket.on('data', () => {
        if (requestsIn(connection.received()) === 1) connection.socket.write(OK);
        else connection.socket.end('HTTP/1.1 20');
      }),
    );
    await asking.ask({ path: '/one' });
    expect((await asking.ask({ path: '/two' })).status).toBe(502);
    expect(begun.upstreams).toHaveLength(1);
  });

  it('do not use a connection that was closed while it was idle', async () => {
    const [rig, client] = await rigWith((connection) =>
      connection.socket.on('data', () => connection.socket.write(OK)),
    );
    await client.ask({ path: '/one' });
    rig.upstreams[0]!.socket.end();
    await expect.poll(() => rig.pool.size.total).toBe(0);
    const answer = await client.ask({
      method: 'POST',
      path: '/two',
      body: 'x',
      headers: ['Content-Length', '1'],
    });
    expect(answer.status).toBe(200);
    expect(rig.upstreams).toHaveLength(2);
  });

  it('do not use a connection that spoke while it was idle', async () => {
    const [rig, client] = await rigWith((connection) =>
      connection.socket.on('data', () => connection.socket.write(OK)),
    );
    await client.ask({ path: '/one' });
    rig.upstreams[0]!.socket.write('HTTP/1.1 408 Request Timeout\r\n\r\n');
    await rig.upstreams[0]!.closed;
    expect((await client.ask({ path: '/two' })).status).toBe(200);
    expect(rig.upstreams).toHaveLength(2);
  });

  it('close a connection after its idle time', async () => {
    const [rig, client] = await rigWith(
      (connection) => connection.socket.on('data', () => connection.socket.write(OK)),
      {
        pool: { idleMs: 40 },
      },
    );
    await client.ask({ path: '/one' });
    await rig.upstreams[0]!.closed;
    expect(rig.pool.size).toEqual({ total: 0, idle: 0 });
  });

  it('keep no more idle connections than allowed, and refuse beyond the limit of all', async () => {
    const waiting: (() => void)[] = [];
    const [rig, client] = await rigWith(
      (connection) => connection.socket.on('data', () => waiting.push(() => connection.socket.write(OK))),
      { pool: { maxIdle: 2, maxConnections: 5 } },
    );
    const asked = Array.from({ length: 5 }, (_, index) => client.ask({ path: `/n${index}` }));
    await expect.poll(() => waiting.length).toBe(5);
    expect((await client.ask({ path: '/over' })).status).toBe(429);
    for (const answer of waiting) answer();
    for (const answer of await Promise.all(asked)) expect(answer.status).toBe(200);
    expect(rig.pool.size).toEqual({ total: 2, idle: 2 });
  });

  it('resume TLS sessions and share connections over a thousand requests', async () => {
    const [rig, client] = await rigWith((connection) =>
      connection.socket.on('data', () => connection.socket.write(OK)),
    );
    for (let round = 0; round < 100; round++) {
      await Promise.all(
        Array.from({ length: 10 }, (_, index) => client.ask({ path: `/r${round}/${index}` })),
      );
    }
    expect(rig.access).toHaveLength(1000);
    expect(rig.upstreams.length).toBeLessThanOrEqual(20);
    expect(rig.pool.size.idle).toBe(rig.pool.size.total);
    expect(rig.upstreams.slice(-1)[0]!.socket.isSessionReused() || rig.upstreams.length <= 10).toBe(true);
    expect(rig.proxy.inFlight).toBe(0);
  });

  it('give up connecting after the time limit', async () => {
    const sockets: Socket[] = [];
    const blackHole = createPlainServer((socket) => sockets.push(socket.on('error', () => {})));
    blackHole.listen(0, '127.0.0.1');
    await once(blackHole, 'listening');
    cleanups.push(() => {
      for (const socket of sockets) socket.destroy();
      blackHole.close();
    });
    const [, client] = await rigWith(() => {}, {
      upstreamPort: (blackHole.address() as AddressInfo).port,
      connectTimeoutMs: 100,
    });
    const answer = await client.ask({ path: '/api' });
    expect(answer.status).toBe(502);
    expect(answer.body.toString()).toContain('no connection within 100 ms');
  });

  it('do not trust an API server with another certificate', async () => {
    const other = await issuePki();
    const impostor = createServer({ key: other.key, cert: other.cert }, (socket) =>
      socket.on('error', () => {}),
    );
    impostor.listen(0, '127.0.0.1');
    await once(impostor, 'listening');
    cleanups.push(() => void impostor.close());
    const [, asking] = await rigWith(() => {}, { upstreamPort: (impostor.address() as AddressInfo).port });
    const answer = await asking.ask({ path: '/api' });
    expect(answer.status).toBe(502);
    expect(answer.body.toString()).toMatch(/certificate|signature/);
  });
});
