import { STALE_MS } from '../../../src/stale-connections.ts';
import { once } from 'node:events';
import { connect, createServer as createPlainServer, type AddressInfo, type Socket } from 'node:net';
import { createServer } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  startExchange,
  type ExchangeOwner,
  type UpstreamRequest,
} from '../../../src/proxy/upstream/upstream.ts';
import { DEFAULT_POOL_LIMITS, UpstreamPool } from '../../../src/proxy/upstream/upstream-pool.ts';
import { socketPair } from '../../support/socket-pair.ts';
import {
  answering,
  createClient,
  issuePki,
  rigWith as openClosingRig,
  type Client,
  type Rig,
  type RigOptions,
} from '../rig.ts';
import { listenOn } from '../../support/listen.ts';

async function rigWith(
  upstream: RigOptions['upstream'],
  options: Partial<RigOptions> = {},
): Promise<[Rig, Client]> {
  const rig = await openClosingRig(upstream, options);
  const client = createClient('h1', rig);
  onTestFinished(() => client.close());
  return [rig, client];
}

const OK = 'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok';
const POST: UpstreamRequest = {
  method: 'POST',
  target: '/api',
  headers: ['Host', 'a'],
  framing: { kind: 'length', bytes: 5 },
  repeatable: false,
};
const requestsIn = (text: string): number => text.match(/^[A-Z]+ \S+ HTTP\/1\.1\r$/gm)?.length ?? 0;

/**
 * Responds to the first request of the first connection, and closes that connection when the second request arrives.
 */
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

describe('the head of a request', () => {
  const good: UpstreamRequest = {
    method: 'GET',
    target: '/api',
    headers: ['Host', 'a'],
    framing: { kind: 'none' },
    repeatable: true,
  };
  const length = (bytes: number): UpstreamRequest => ({ ...good, framing: { kind: 'length', bytes } });
  const withHeaders = (...headers: string[]): UpstreamRequest => ({ ...good, headers });

  /** Starts an exchange with a connection pool that never opens a connection. */
  function begin(request: UpstreamRequest): void {
    const pool = new UpstreamPool(
      { connect: () => new Promise(() => {}), credentials: {} },
      DEFAULT_POOL_LIMITS,
      () => 0,
    );
    const unused = (): never => {
      throw new Error('not to be called');
    };
    const owner: ExchangeOwner = {
      needsPayload: false,
      informational: unused,
      head: unused,
      body: unused,
      end: unused,
      flush: unused,
      writable: unused,
      failed: unused,
    };
    try {
      startExchange(request, owner, pool);
    } finally {
      pool.close();
    }
  }

  it.each([
    good,
    length(0),
    length(Number.MAX_SAFE_INTEGER),
    withHeaders('X-A', 'tab\t and \xe9'),
    withHeaders('impersonate-extra-a%2fb', ''),
  ])('is written when it is well-formed: %j', (request) => {
    expect(() => begin(request)).not.toThrow();
  });

  it.each([
    ['a space in the method', { ...good, method: 'GET /x' }],
    ['a line break in the method', { ...good, method: 'GET\r\nX:' }],
    ['no method', { ...good, method: '' }],
    ['a space in the target', { ...good, target: '/api HTTP/1.1\r\n' }],
    ['a line break in the target', { ...good, target: '/api\r\nX: y' }],
    ['a target of another form', { ...good, target: 'http://a/api' }],
    ['a line break in a value', withHeaders('X-A', 'b\r\nImpersonate-User: admin')],
    ['a bare line feed in a value', withHeaders('X-A', 'b\nc')],
    ['a NUL in a value', withHeaders('X-A', 'b\0c')],
    ['a value that is not latin1', withHeaders('X-A', '\u010d\u010a')],
    ['a line break in a name', withHeaders('X-A: b\r\nX-C', 'd')],
    ['a space in a name', withHeaders('X A', 'b')],
    ['no name', withHeaders('', 'b')],
    ['a length of its own', withHeaders('Content-Length', '4')],
    ['a coding of its own', withHeaders('transfer-encoding', 'chunked')],
    ['a length that is no number', length(Number.NaN)],
    ['a length below nothing', length(-5)],
    ['a length that is not whole', length(1.5)],
    ['a length without end', length(Infinity)],
    ['a length that is not exact', length(2 ** 53)],
  ] satisfies [string, UpstreamRequest][])('never leaves with %s', (_what, request) => {
    expect(() => begin(request)).toThrow(expect.objectContaining({ code: 'INTERNAL' }));
  });
});

describe('a body with a Content-Length', () => {
  /**
   * Sends a body in pieces after a Content-Length of 5. @returns the bytes that the API server received, and the error
   * code of the exchange
   */
  async function send(
    pieces: readonly string[],
    connects: 'before' | 'after' = 'before',
  ): Promise<{ received: string; code: string | undefined }> {
    let received = '';
    const server = createPlainServer((socket) =>
      socket.on('error', () => {}).on('data', (chunk) => (received += chunk.toString('latin1'))),
    );
    await listenOn(server);
    const closed = new Promise<void>((resolve) => {
      server.once('connection', (socket: Socket) => socket.once('close', () => resolve()));
    });
    const socket = connect((server.address() as AddressInfo).port, '127.0.0.1');
    await once(socket, 'connect');
    const written = Promise.withResolvers<void>();
    const pool = new UpstreamPool(
      {
        credentials: {},
        async connect() {
          if (connects === 'after') await written.promise;
          return socket;
        },
      },
      DEFAULT_POOL_LIMITS,
      () => 0,
    );
    const failure = Promise.withResolvers<string>();
    const unused = (): never => {
      throw new Error('not to be called');
    };
    const exchange = startExchange(
      POST,
      {
        needsPayload: false,
        informational: unused,
        head: unused,
        body: unused,
        end: unused,
        flush: () => {},
        writable: () => {},
        failed: (error) => failure.resolve(error.code),
      },
      pool,
    );
    if (connects === 'before') await expect.poll(() => received).toContain('\r\n\r\n');
    for (const piece of pieces) exchange.write(Buffer.from(piece));
    exchange.end();
    written.resolve();
    const isWhole = exchange.requestComplete;
    if (isWhole) await expect.poll(() => received).toContain(pieces.join(''));
    const code = isWhole ? undefined : await failure.promise;
    pool.close();
    socket.destroy();
    await closed;
    server.close();
    return { received: received.slice(received.indexOf('\r\n\r\n') + 4), code };
  }

  it('is sent if its length is correct', async () => {
    expect(await send(['ab', 'cde'])).toEqual({ received: 'abcde', code: undefined });
    expect(await send(['ab', 'cde'], 'after')).toEqual({ received: 'abcde', code: undefined });
  });

  it.each([
    ['longer, in one piece', ['abcdeGET /secret HTTP/1.1\r\n\r\n'], ''],
    ['longer, in a second piece', ['abcde', 'GET /secret HTTP/1.1\r\n\r\n'], 'abcde'],
    ['shorter', ['abcd'], 'abcd'],
  ])(
    'of wrong length closes the connection before the API server could read another request: %s',
    async (_, pieces, most) => {
      const { received, code } = await send(pieces);
      expect(code).toBe('WIRE_MALFORMED');
      expect(most.startsWith(received)).toBe(true);
    },
  );
});

describe('an exchange', () => {
  /** Starts a request with `Content-Length: 5` on an existing connection. */
  async function begin() {
    const { near, far } = await socketPair();
    onTestFinished(() => void (near.destroy(), far.destroy()));
    const pool = new UpstreamPool(
      { connect: () => Promise.resolve(near), credentials: {} },
      DEFAULT_POOL_LIMITS,
      () => 0,
    );
    onTestFinished(() => pool.close());
    const failures: string[] = [];
    const failed = Promise.withResolvers<void>();
    const nothing = (): void => {};
    const exchange = startExchange(
      POST,
      {
        needsPayload: false,
        informational: nothing,
        head: nothing,
        body: nothing,
        end: nothing,
        flush: nothing,
        writable: nothing,
        failed: (error) => (failures.push(error.code), failed.resolve()),
      },
      pool,
    );
    await once(far, 'data');
    return { exchange, near, failures, failed: failed.promise };
  }

  it('that was aborted reports nothing more, however its body ends', async () => {
    const { exchange, near, failures } = await begin();
    exchange.write(Buffer.from('ab'));
    exchange.abort();
    exchange.end();
    if (!near.closed) await once(near, 'close');
    expect([failures, exchange.requestComplete]).toEqual([[], false]);
  });

  it('fails when its connection is closed by the gateway', async () => {
    const { near, failures, failed } = await begin();
    near.destroy();
    await failed;
    expect(failures).toEqual(['UPSTREAM_BROKEN']);
  });
});

describe('exchanges with the API server', () => {
  it('send a GET again, on a new connection, when an idle connection turns out to be closed', async () => {
    const [rig, client] = await rigWith(staleAfterFirst());
    await client.ask({ path: '/api' });
    const answer = await client.ask({ path: '/apis' });
    expect(answer.status).toBe(200);
    expect(rig.upstreams).toHaveLength(2);
    expect(rig.upstreams[1]!.received()).toMatch(/^GET \/apis /);
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

  it.each(['/api/v1/namespaces/n/pods/p/proxy/x', '/apis/x.example/v1/machines/m/run'])(
    'send a GET of %s, which may have side effects, at most once',
    async (path) => {
      const [rig, client] = await rigWith(staleAfterFirst());
      await client.ask({ path: '/one' });
      expect((await client.ask({ path })).status).toBe(502);
      expect(rig.upstreams).toHaveLength(1);
    },
  );

  it('do not send a GET again if the API server had time to handle it', async () => {
    const [rig, client] = await rigWith((connection) =>
      connection.socket.on('data', () => {
        if (requestsIn(connection.received()) === 1) connection.socket.write(OK);
        else setTimeout(() => connection.socket.destroy(), 2 * STALE_MS);
      }),
    );
    await client.ask({ path: '/one' });
    expect((await client.ask({ path: '/two' })).status).toBe(502);
    expect(rig.upstreams).toHaveLength(1);
  });

  it('do not send a GET again if it was the first on its connection, or if a response had started', async () => {
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
    const [rig, client] = await rigWith(answering(OK));
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

  it('do not use a connection that sent data while it was idle', async () => {
    const [rig, client] = await rigWith(answering(OK));
    await client.ask({ path: '/one' });
    rig.upstreams[0]!.socket.write('HTTP/1.1 408 Request Timeout\r\n\r\n');
    await rig.upstreams[0]!.closed;
    expect((await client.ask({ path: '/two' })).status).toBe(200);
    expect(rig.upstreams).toHaveLength(2);
  });

  it('use no connection with replaced credentials, and close it when its request has ended', async () => {
    const slow = Promise.withResolvers<void>();
    const [rig, client] = await rigWith((connection) =>
      connection.socket.on('data', () => {
        const answer = (): void => void connection.socket.write(OK);
        if (connection.received().startsWith('GET /slow')) void slow.promise.then(answer);
        else answer();
      }),
    );
    const underWay = client.ask({ path: '/slow' });
    await expect.poll(() => rig.upstreams[0]?.received()).toContain('/slow');
    await client.ask({ path: '/one' });
    const old = rig.upstreams.slice();
    expect([old.length, rig.pool.size]).toEqual([2, { total: 2, idle: 1 }]);
    rig.rotate({ ca: rig.pki.ca });
    expect((await client.ask({ path: '/two' })).status).toBe(200);
    expect((await client.ask({ path: '/three' })).status).toBe(200);
    expect(rig.upstreams).toHaveLength(3);
    expect(rig.upstreams[2]!.received()).toMatch(/^GET \/two [^]*GET \/three /);
    await old[1]!.closed;
    slow.resolve();
    expect((await underWay).status).toBe(200);
    await old[0]!.closed;
    expect(rig.pool.size).toEqual({ total: 1, idle: 1 });
  });

  it('close a connection after its idle timeout', async () => {
    const [rig, client] = await rigWith(answering(OK), {
      pool: { idleMs: 40 },
    });
    await client.ask({ path: '/one' });
    await rig.upstreams[0]!.closed;
    expect(rig.pool.size).toEqual({ total: 0, idle: 0 });
  });

  it('keep a limited number of idle connections, and refuse above the total limit', async () => {
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
    const [rig, client] = await rigWith(answering(OK));
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

  it('stop connecting after the time limit', async () => {
    const sockets: Socket[] = [];
    const blackHole = createPlainServer((socket) => sockets.push(socket.on('error', () => {})));
    await listenOn(blackHole);
    onTestFinished(() => {
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
    await listenOn(impostor);
    onTestFinished(() => void impostor.close());
    const [, asking] = await rigWith(() => {}, { upstreamPort: (impostor.address() as AddressInfo).port });
    const answer = await asking.ask({ path: '/api' });
    expect(answer.status).toBe(502);
    expect(answer.body.toString()).toMatch(/certificate|signature/);
  });
});
