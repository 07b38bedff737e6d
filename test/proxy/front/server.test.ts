import { once } from 'node:events';
import { createUserLimits } from '../../../src/proxy/gate/user-limits.ts';
import type { OwnService } from '../../../src/proxy/front/server.ts';
import { TailcastError } from '../../../src/errors.ts';
import { describe, expect, it, onTestFinished } from 'vitest';
import { socketPair } from '../../support/socket-pair.ts';
import { createClient, http2Client, rigWith, rawClient, type Rig, type RigOptions } from '../rig.ts';

const HOST = 'Host: gateway.test\r\n';
const headEnd = (text: string): boolean => text.includes('\r\n\r\n');

/** Creates an upstream that sends its response only when the test requests it. */
function onDemand(): { upstream: RigOptions['upstream']; answer: () => void; asked: () => number } {
  const waiting: (() => void)[] = [];
  return {
    upstream: (connection) =>
      connection.socket.on('data', () =>
        waiting.push(() => connection.socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')),
      ),
    answer: () => {
      for (const answer of waiting.splice(0)) answer();
    },
    asked: () => waiting.length,
  };
}

describe('a connection', () => {
  it('that requests a tunnel and then breaks affects no other connection', async () => {
    const rig = await rigWith(() => {});
    const { near, far } = await socketPair();
    onTestFinished(() => void far.destroy());
    rig.proxy.serve(near, 'http/1.1', { address: '127.0.0.1', port: 1, source: 'socket' });
    far.write(`CONNECT kubernetes:443 HTTP/1.1\r\n${HOST}\r\n`);
    const [answer] = (await once(far, 'data')) as [Buffer];
    expect(answer.toString()).toMatch(/^HTTP\/1\.1 405 /);
    // `emit` would throw if the socket had no listener
    expect(() => near.emit('error', new Error('read ECONNRESET'))).not.toThrow();
    expect(near.destroyed).toBe(true);
  });
});

describe('a connection above the limit of its address', () => {
  it.each(['h1', 'h2'] as const)('is closed if it sends no request: %s', async (protocol) => {
    const users = createUserLimits({ requests: 10, connections: 1, bytes: 1000, headBytes: 1000 });
    const rig = await rigWith(onDemand().upstream, {
      addressOf: () => '100.64.0.66',
      server: { users, limits: { headersTimeoutMs: 300, keepAliveMs: 300 } },
    });
    const counted = http2Client(rig);
    onTestFinished(() => counted.destroy());
    // an open stream, so that the connection is not idle
    const stream = counted.request({ ':path': '/api/v1/namespaces/a/pods', ':authority': 'a' });
    stream.on('error', () => undefined);
    await once(counted, 'remoteSettings');
    const surplus = protocol === 'h1' ? (await rawClient(rig)).socket : http2Client(rig);
    onTestFinished(() => void surplus.destroy());
    await once(surplus, 'close');
    expect(counted.closed).toBe(false);
  });
});

describe('requests whose access review is in progress', () => {
  it('count for their user even after the client has disconnected', async () => {
    const reviews: (() => void)[] = [];
    const rig = await rigWith(
      ({ socket }) => socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')),
      {
        server: { users: createUserLimits({ requests: 5, connections: 5, bytes: 1000, headBytes: 1000 }) },
        reviews: { assertAllowed: () => new Promise<void>((resolve) => void reviews.push(resolve)) },
      },
    );
    const session = http2Client(rig);
    onTestFinished(() => session.destroy());
    let refused = 0;
    const streams = Array.from({ length: 8 }, (_, index) => {
      const stream = session.request({
        ':path': `/api/v1/namespaces/a/pods/p${index}/proxy/`,
        ':authority': 'a',
      });
      stream.on('error', () => {});
      stream.on('response', (headers) => (refused += headers[':status'] === 429 ? 1 : 0));
      return stream.resume();
    });
    await expect.poll(() => refused).toBe(3);
    expect([reviews.length, rig.proxy.inFlight]).toEqual([5, 5]);
    for (const stream of streams) stream.close(8);
    await expect.poll(() => rig.proxy.inFlight).toBe(0);
    const client = createClient('h1', rig);
    onTestFinished(() => client.close());
    expect(await client.ask({ path: '/api/v1/pods' })).toMatchObject({ status: 429 });
    for (const end of reviews) end();
    for (let index = 0; index < 12; index++)
      expect(await client.ask({ path: '/api/v1/pods' })).toMatchObject({ status: 200 });
  });
});

describe('requests to an own service', () => {
  it('use no slots of proxied requests, and one address gets at most half of their own slots', async () => {
    const held: Parameters<OwnService['request']>[1][] = [];
    let connections = 0;
    const rig = await rigWith(
      ({ socket }) => socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')),
      {
        maxInFlight: 100,
        addressOf: () => (connections++ === 0 ? '100.64.0.66' : '100.64.0.7'),
        server: {
          own: [{ prefix: '/-/own/', request: (_, response) => void held.push(response), upgrade: () => {} }],
        },
      },
    );
    const session = http2Client(rig);
    await once(session, 'remoteSettings');
    onTestFinished(() => session.destroy());
    let refused = 0;
    for (let index = 0; index < 120; index++) {
      const stream = session.request({ ':path': '/-/own/', ':authority': 'a' });
      stream.on('error', () => {});
      stream.on('response', (headers) => (refused += headers[':status'] === 429 ? 1 : 0));
      stream.resume();
    }
    await expect.poll(() => refused).toBe(70);
    expect([held.length, rig.proxy.inFlight]).toEqual([50, 50]);
    for (const protocol of ['h1', 'h2'] as const) {
      const client = createClient(protocol, rig);
      onTestFinished(() => client.close());
      expect(await client.ask({ path: '/api/v1/pods' })).toMatchObject({ status: 200 });
      const own = client.ask({ path: '/-/own/' });
      await expect.poll(() => held.length).toBe(51);
      held.pop()?.end();
      expect(await own).toMatchObject({ status: 200 });
    }
    session.destroy();
    await expect.poll(() => rig.proxy.inFlight).toBe(0);
  });
});

describe('the drain', () => {
  it('closes idle connections immediately, and finishes the running request of each other connection', async () => {
    const { upstream, answer, asked } = onDemand();
    const rig = await rigWith(upstream);
    const idle = await rawClient(rig);
    const busy = await rawClient(rig);
    const session = http2Client(rig);
    onTestFinished(() => session.destroy());
    busy.socket.write(`GET /one HTTP/1.1\r\n${HOST}\r\n`);
    const stream = session.request({ ':path': '/two', ':authority': 'a' });
    let body = '';
    stream.on('data', (chunk: Buffer) => (body += chunk.toString()));
    await expect.poll(asked).toBe(2);
    const goaway = once(session, 'goaway');
    const drained = rig.proxy.drain(10_000);
    await idle.closed;
    await goaway;
    expect(rig.proxy.draining).toBe(true);
    answer();
    expect(await drained).toEqual({ cutRequests: 0, cutSessions: 0 });
    await busy.closed;
    expect(busy.received()).toMatch(
      /^HTTP\/1\.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok$/,
    );
    await expect.poll(() => body).toBe('ok');
  });

  it('interrupts the remaining requests at the time limit, and reports their number', async () => {
    const rig = await rigWith((connection) =>
      connection.socket.once('data', () =>
        connection.socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'),
      ),
    );
    const client = await rawClient(rig);
    client.socket.write(`GET /api/v1/pods?watch=1 HTTP/1.1\r\n${HOST}\r\n`);
    await client.until(headEnd);
    expect(await rig.proxy.drain(50)).toEqual({ cutRequests: 1, cutSessions: 0 });
    await client.closed;
    await rig.upstreams[0]!.closed;
    expect(client.received()).not.toMatch(/\r\n0\r\n\r\n$/);
  });

  it('sends interactive sessions the reason when their time is over', async () => {
    let active = 2;
    const reasons: string[] = [];
    const rig = await rigWith(() => {}, {
      server: {
        sessions: {
          get size() {
            return active;
          },
          endAll(reason) {
            reasons.push(reason);
            active = 1;
            return Promise.resolve();
          },
        },
      },
    });
    expect(await rig.proxy.drain(100)).toEqual({ cutRequests: 0, cutSessions: 1 });
    expect(reasons).toEqual(['the gateway is shutting down']);
  });

  it('waits for pending late deliveries, and tells them to hurry', async () => {
    const late = { sessions: 2, hurried: 0, hurry: () => void (late.hurried += 1) };
    const rig = await rigWith(() => {}, { server: { late } });
    let over = false;
    const drained = rig.proxy.drain(10_000).then(() => (over = true));
    await expect.poll(() => late.hurried).toBe(1);
    late.sessions = 1;
    await new Promise((resolve) => setTimeout(resolve, 60));
    expect(over).toBe(false);
    late.sessions = 0;
    await drained;
  });

  it('waits for late deliveries no longer than its time limit', async () => {
    const rig = await rigWith(() => {}, { server: { late: { sessions: 1, hurry: () => undefined } } });
    expect(await rig.proxy.drain(100)).toEqual({ cutRequests: 0, cutSessions: 0 });
  });

  it('serves the first request of a connection that was opened shortly before, and no second one', async () => {
    const { upstream, answer, asked } = onDemand();
    const rig = await rigWith(upstream);
    const open = async (): Promise<number> => (await rig.metrics.connections.get()).values[0]?.value ?? 0;
    const before = await rawClient(rig);
    await expect.poll(open).toBe(1);
    let arriving = 1;
    const drained = rig.proxy.drain(10_000, () => arriving);
    const during = await rawClient(rig);
    await expect.poll(open).toBe(2);
    arriving = 0;
    for (const client of [before, during]) client.socket.write(`GET /one HTTP/1.1\r\n${HOST}\r\n`);
    await expect.poll(asked).toBe(2);
    answer();
    expect(await drained).toEqual({ cutRequests: 0, cutSessions: 0 });
    for (const client of [before, during]) {
      await client.closed;
      expect(client.received()).toMatch(/^HTTP\/1\.1 200 OK\r\n[^]*Connection: close\r\n\r\nok$/);
    }
  });

  it('waits for connections in a handshake, but only for a limited time', async () => {
    const rig = await rigWith(() => {});
    const started = performance.now();
    await rig.proxy.drain(10_000, () => 1);
    expect(performance.now() - started).toBeGreaterThan(1900);
    expect(performance.now() - started).toBeLessThan(9000);
  });

  it('refuses connections after it has finished', async () => {
    const rig = await rigWith(() => {});
    await rig.proxy.drain(10_000);
    const late = await rawClient(rig);
    await late.closed;
    expect(late.received()).toBe('');
  });
});

describe.each(['h1', 'h2'] as const)("the gateway's own paths over %s", (name) => {
  it('that do not exist are refused after the caller is identified, and never reach the API server', async () => {
    const rig = await rigWith(() => {});
    const stranger = await rigWith(() => {}, {
      identities: { whois: () => Promise.reject(new TailcastError('IDENTITY_UNKNOWN')) },
    });
    for (const [where, status] of [
      [rig, 404],
      [stranger, 401],
    ] as const) {
      const client = createClient(name, where);
      onTestFinished(() => client.close());
      for (const method of ['GET', 'POST', 'OPTIONS']) {
        const missing = await client.ask({ method, path: '/-/nothing?x=1' });
        expect([missing.status, JSON.parse(missing.body.toString())]).toMatchObject([
          status,
          { kind: 'Status' },
        ]);
      }
      const odd = await client.ask({ method: 'PROPFIND', path: '/-/nothing' });
      expect([odd.status, JSON.parse(odd.body.toString())]).toMatchObject([405, { kind: 'Status' }]);
      expect(where.upstreams).toHaveLength(0);
    }
  });

  it('share a connection with proxied requests', async () => {
    const { upstream, answer, asked } = onDemand();
    const rig = await rigWith(upstream);
    const client = createClient(name, rig);
    onTestFinished(() => client.close());
    for (let round = 0; round < 3; round++) {
      expect((await client.ask({ path: '/-/nothing' })).status).toBe(404);
      const asking = client.ask({ path: '/api' });
      await expect.poll(asked).toBe(1);
      answer();
      expect((await asking).body.toString()).toBe('ok');
    }
  });
});

describe('the front', () => {
  it('keeps the order of a pipeline with proxied requests and requests to the gateway itself', async () => {
    const { upstream, answer, asked } = onDemand();
    const rig = await rigWith(upstream);
    const client = await rawClient(rig);
    client.socket.write(
      `GET /api HTTP/1.1\r\n${HOST}\r\nGET /-/nothing HTTP/1.1\r\n${HOST}\r\nGET /apis ` +
        `HTTP/1.1\r\n${HOST}Connection: close\r\n\r\n`,
    );
    await expect.poll(asked).toBe(1);
    answer();
    await client.until((text) => text.includes('404 Not Found'));
    await expect.poll(asked).toBe(1);
    answer();
    await client.closed;
    expect(client.received().match(/HTTP\/1\.1 \d+/g)).toEqual([
      'HTTP/1.1 200',
      'HTTP/1.1 404',
      'HTTP/1.1 200',
    ]);
  });

  it('counts connections by protocol', async () => {
    const rig = await rigWith(() => {});
    const client = await rawClient(rig);
    const session = http2Client(rig);
    await once(session, 'remoteSettings');
    const open = async (): Promise<unknown> =>
      Object.fromEntries(
        (await rig.metrics.connections.get()).values.map(({ labels, value }) => [labels.alpn, value]),
      );
    expect(await open()).toEqual({ 'http/1.1': 1, h2: 1 });
    client.socket.destroy();
    session.destroy();
    await expect.poll(open).toEqual({ 'http/1.1': 0, h2: 0 });
  });

  it('does not leak memory over many requests', async () => {
    const rig = await rigWith((connection) =>
      connection.socket.on('data', () =>
        connection.socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok'),
      ),
    );
    const clients = [createClient('h1', rig), createClient('h2', rig)];
    onTestFinished(() => {
      for (const client of clients) client.close();
    });
    const round = async (count: number): Promise<void> => {
      for (let index = 0; index < count; index++)
        await Promise.all(clients.map((client) => client.ask({ path: '/api' })));
      rig.access.length = 0;
    };
    await round(500);
    const before = listenersOf(rig);
    await round(1500);
    expect(listenersOf(rig)).toEqual(before);
    expect(rig.pool.size.total).toBeLessThanOrEqual(2);
    expect(rig.proxy.inFlight).toBe(0);
  });
});

/** Returns the number of listeners on pooled connections, which grows if a request leaks one. */
function listenersOf(rig: Rig): number[] {
  return rig.upstreams
    .slice(-1)
    .map(({ socket }) => socket.eventNames().reduce((sum, name) => sum + socket.listenerCount(name), 0));
}
