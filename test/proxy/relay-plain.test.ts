import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { IncomingMessage } from 'node:http';
import { request } from 'node:https';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  answering,
  createClient,
  rigWith,
  person,
  valuesOf,
  type Client,
  type Rig,
  type UpstreamSocket,
} from './rig.ts';

function clientOf(name: 'h1' | 'h2', rig: Rig): Client {
  const client = createClient(name, rig);
  onTestFinished(() => client.close());
  return client;
}

/** Resolves when the socket accepts more data or is closed. */
function drained({ socket, closed }: UpstreamSocket): Promise<void> {
  return Promise.race([new Promise<void>((resolve) => socket.once('drain', resolve)), closed]);
}

const EMPTY_OK = 'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n';
const headEnd = (text: string): boolean => text.includes('\r\n\r\n');

/** Sends a request with a body and `Expect: 100-continue`. */
async function askExpecting(
  name: 'h1' | 'h2',
  rig: Rig,
): Promise<{ status: number; interim: readonly number[] }> {
  if (name === 'h2') {
    const { status, interim } = await clientOf(name, rig).ask({
      method: 'POST',
      path: '/api',
      headers: ['Expect', '100-continue', 'Content-Length', '7'],
      body: 'payload',
    });
    return { status, interim };
  }
  const outgoing = request({
    host: '127.0.0.1',
    port: rig.port,
    servername: 'localhost',
    ca: rig.pki.ca,
    method: 'POST',
    path: '/api',
    headers: { Expect: '100-continue', 'Content-Length': 7 },
  });
  outgoing.flushHeaders();
  await once(outgoing, 'continue');
  outgoing.end('payload');
  const [response] = (await once(outgoing, 'response')) as [IncomingMessage];
  response.resume();
  return { status: response.statusCode ?? 0, interim: [100] };
}

describe.each(['h1', 'h2'] as const)('a plain request over %s', (name) => {
  it('forwards the response head before the first byte of a silent watch', async () => {
    let watch: UpstreamSocket | undefined;
    const rig = await rigWith((connection) => {
      watch = connection;
      connection.socket.once('data', () =>
        connection.socket.write(
          'HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n',
        ),
      );
    });
    const answer = await clientOf(name, rig).open({ path: '/api/v1/pods?watch=1' });
    expect(answer.status).toBe(200);
    watch!.socket.write('5\r\nfirst\r\n');
    const [first] = (await once(answer.body, 'data')) as [Buffer];
    expect(first.toString()).toBe('first');
    watch!.socket.write('6\r\nsecond\r\n');
    const [second] = (await once(answer.body, 'data')) as [Buffer];
    expect(second.toString()).toBe('second');
    answer.abort();
    await watch!.closed;
  });

  it('closes the upstream connection when the client leaves before the head', async () => {
    const rig = await rigWith(() => {});
    const leave = new AbortController();
    const asked = clientOf(name, rig).ask({ path: '/api/v1/pods', signal: leave.signal });
    asked.catch(() => {});
    await expect.poll(() => rig.upstreams.length).toBe(1);
    await rig.upstreams[0]!.until(headEnd);
    leave.abort();
    await rig.upstreams[0]!.closed;
    await expect(asked).rejects.toThrow(/./);
    await expect.poll(() => rig.access.at(-1)?.status).toBe(499);
    expect(rig.proxy.inFlight).toBe(0);
  });

  it('closes the upstream connection when the client disconnects during the body', async () => {
    const rig = await rigWith(answering('HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'));
    const answer = await clientOf(name, rig).open({ path: '/api/v1/pods' });
    await once(answer.body, 'data');
    answer.abort();
    await rig.upstreams[0]!.closed;
    await expect.poll(() => rig.access.length).toBe(1);
  });

  it.each([
    ['with a length', 'HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf'],
    ['in chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n'],
    ['inside a chunk', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n64\r\nhalf'],
    ['before the last chunk ends', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n0\r\n'],
  ])('treats a crash of the API server during the body as an error %s', async (_, head) => {
    for (const end of ['destroy', 'end'] as const) {
      const rig = await rigWith((connection) =>
        connection.socket.once('data', () => connection.socket.write(head, () => connection.socket[end]())),
      );
      const answer = await clientOf(name, rig).open({ path: '/api/v1/pods' });
      await expect(answer.rest()).rejects.toThrow(/./);
      expect(rig.access.at(-1)).toMatchObject({ status: 200, error: 'UPSTREAM_BROKEN' });
    }
  });

  it('relays a body that ends with the connection, and reports one that breaks off', async () => {
    const rig = await rigWith((connection) =>
      connection.socket.once('data', () => connection.socket.end('HTTP/1.1 200 OK\r\n\r\nall of it')),
    );
    const answer = await clientOf(name, rig).ask({ path: '/logs' });
    expect(answer.body.toString()).toBe('all of it');
    expect(rig.pool.size.total).toBe(0);
  });

  it('sends each repeated header in its own line, and one line per group', async () => {
    const rig = await rigWith(answering(EMPTY_OK), {
      identity: person([{ impersonate: { groups: ['a', 'b, with comma'] } }]),
    });
    await clientOf(name, rig).ask({
      path: '/api',
      headers: ['X-Many', 'one', 'X-Many', 'two', 'Accept', 'a/b', 'Accept', 'c/d'],
    });
    const head = rig.upstreams[0]!.received().toLowerCase();
    expect(head).toContain('x-many: one\r\nx-many: two\r\n');
    expect(head).toContain('accept: a/b\r\naccept: c/d\r\n');
    expect(head).toContain('impersonate-group: a\r\nimpersonate-group: b, with comma\r\n');
  });

  it('keeps repeated response headers apart', async () => {
    const rig = await rigWith(
      answering(
        'HTTP/1.1 200 OK\r\nWarning: 299 - "a"\r\nX-A: 1\r\nWarning: 299 - "b"\r\nContent-Length: 0\r\n\r\n',
      ),
    );
    const answer = await clientOf(name, rig).ask({ path: '/api' });
    expect(valuesOf(answer.rawHeaders, 'warning')).toEqual(['299 - "a"', '299 - "b"']);
  });

  it('forwards the target unchanged', async () => {
    const rig = await rigWith(answering(EMPTY_OK), { basePath: '/k8s/clusters/c-1' });
    const path = '/api/v1/namespaces/n/services/s/proxy/a%2Fb%2fc/d?x=%2F+%20&y=a+b;c&fieldSelector=a%3Db';
    await clientOf(name, rig).ask({ path });
    expect(rig.upstreams[0]!.received()).toMatch(/^GET /);
    expect(rig.upstreams[0]!.received().split(' ')[1]).toBe(`/k8s/clusters/c-1${path}`);
  });

  it('sends the body of a DELETE with its length', async () => {
    const rig = await rigWith((connection) => {
      void connection
        .until((text) => text.endsWith('{"propagationPolicy":"Orphan"}'))
        .then(() => connection.socket.write(EMPTY_OK));
    });
    const body = '{"propagationPolicy":"Orphan"}';
    const answer = await clientOf(name, rig).ask({
      method: 'DELETE',
      path: '/api/v1/namespaces/n/pods/p',
      headers: ['Content-Type', 'application/json', 'Content-Length', String(body.length)],
      body,
    });
    expect(answer.status).toBe(200);
    expect(rig.upstreams[0]!.received()).toContain('Content-Length: 30\r\n\r\n');
  });

  it('relays trailers', async () => {
    const rig = await rigWith(
      answering(
        'HTTP/1.1 200 OK\r\nTrailer: X-Sum\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 42\r\n\r\n',
      ),
    );
    const client = clientOf(name, rig);
    for (let round = 0; round < 2; round++) {
      const answer = await client.ask({ path: '/api' });
      expect(answer.body.toString()).toBe('abc');
      expect(answer.trailers.map((text) => text.toLowerCase())).toEqual(['x-sum', '42']);
    }
    expect(rig.upstreams).toHaveLength(1);
  });

  it('forwards Expect to the API server, and its 100 before the body', async () => {
    const order: string[] = [];
    const rig = await rigWith((connection) => {
      void connection.until(headEnd).then(async (text) => {
        order.push(text.endsWith('\r\n\r\n') ? 'head alone' : 'head with body');
        connection.socket.write('HTTP/1.1 100 Continue\r\n\r\n');
        await connection.until((received) => received.endsWith('payload'));
        order.push('body');
        connection.socket.write('HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok');
      });
    });
    const answer = await askExpecting(name, rig);
    expect(answer).toEqual({ status: 201, interim: [100] });
    // Node's HTTP/1.1 client sends the body after the 100; its HTTP/2 client sends the body immediately, as the
    // protocol allows
    expect(order).toEqual([name === 'h1' ? 'head alone' : order[0], 'body']);
  });

  it('forwards 103, and a 503 exactly once', async () => {
    const rig = await rigWith(
      answering(
        'HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 503 Service Unavailable\r\nRetry-After: ' +
          '0\r\nContent-Length: 4\r\n\r\nbusy',
      ),
    );
    const answer = await clientOf(name, rig).ask({ path: '/api' });
    expect(answer).toMatchObject({ status: 503, interim: [103] });
    expect(answer.body.toString()).toBe('busy');
    expect(rig.upstreams[0]!.received().match(/GET /g)).toHaveLength(1);
  });

  it.each([
    ['HEAD', 'HTTP/1.1 200 OK\r\nContent-Length: 4711\r\n\r\n', 200],
    ['HEAD', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n', 200],
    ['GET', 'HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n', 204],
    ['GET', 'HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\nETag: "x"\r\n\r\n', 304],
  ])('ends a %s after the head of its response %j', async (method, head, status) => {
    const rig = await rigWith(answering(head));
    const client = clientOf(name, rig);
    for (let round = 0; round < 2; round++) {
      const answer = await client.ask({ method, path: '/api' });
      expect(answer.status).toBe(status);
      expect(answer.body).toHaveLength(0);
    }
    expect(rig.upstreams).toHaveLength(1);
  });

  it('carries 40 KB of headers both ways', async () => {
    const long = 'v'.repeat(10_000);
    const rig = await rigWith(
      answering(
        `HTTP/1.1 200 OK\r\n${[1, 2, 3, 4].map((n) => `X-${n}: ${long}\r\n`).join('')}Content-Length: 0\r\n\r\n`,
      ),
    );
    const answer = await clientOf(name, rig).ask({
      path: '/api',
      headers: [1, 2, 3, 4].flatMap((n) => [`X-${n}`, long]),
    });
    expect(valuesOf(answer.rawHeaders, 'x-4')).toEqual([long]);
    expect(rig.upstreams[0]!.received()).toMatch(new RegExp(`X-4: ${long}`, 'i'));
  });

  it('serves a GET while 150 watches are open', async () => {
    const rig = await rigWith((connection) => {
      void connection
        .until(headEnd)
        .then((text) =>
          connection.socket.write(
            text.includes('watch=1')
              ? 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n'
              : EMPTY_OK,
          ),
        );
    });
    const client = clientOf(name, rig);
    const watches = await Promise.all(
      Array.from({ length: 150 }, (_, index) => client.open({ path: `/api/v1/pods?watch=1&n=${index}` })),
    );
    expect((await client.ask({ path: '/api/v1/pods/one' })).status).toBe(200);
    expect(rig.proxy.inFlight).toBe(150);
    for (const watch of watches) watch.abort();
    await expect.poll(() => rig.proxy.inFlight).toBe(0);
    await expect.poll(() => rig.pool.size.total).toBe(1);
  });

  it.each([
    ['with a length', true],
    ['without a length', false],
  ])('uploads 8 MB %s', async (_, withLength) => {
    const payload = Buffer.alloc(8_000_000, 'abcdefg\r\n');
    const hash = createHash('sha256');
    let length = 0;
    const rig = await rigWith((connection) => {
      // hashes and counts only the payload bytes, not the chunked framing
      let head = '';
      let chunkedBody = '';
      connection.socket.removeAllListeners('data');
      connection.socket.on('data', (chunk: Buffer) => {
        let bytes = chunk;
        if (!head.includes('\r\n\r\n')) {
          head += chunk.toString('latin1');
          const end = head.indexOf('\r\n\r\n');
          if (end === -1) return;
          bytes = Buffer.from(head.slice(end + 4), 'latin1');
          head = head.slice(0, end + 4);
        }
        if (head.includes('Content-Length: 8000000')) {
          hash.update(bytes);
          length += bytes.length;
          if (length === payload.length) connection.socket.write(EMPTY_OK);
        } else {
          chunkedBody += bytes.toString('latin1');
          if (!chunkedBody.endsWith('\r\n0\r\n\r\n')) return;
          let at = 0;
          for (;;) {
            const eol = chunkedBody.indexOf('\r\n', at);
            const size = Number.parseInt(chunkedBody.slice(at, eol), 16);
            if (size === 0) break;
            hash.update(Buffer.from(chunkedBody.slice(eol + 2, eol + 2 + size), 'latin1'));
            length += size;
            at = eol + 4 + size;
          }
          connection.socket.write(EMPTY_OK);
        }
      });
    });
    const answer = await clientOf(name, rig).ask({
      method: 'POST',
      path: '/api/v1/namespaces/n/configmaps',
      headers: withLength
        ? ['Content-Length', String(payload.length)]
        : name === 'h1'
          ? ['Transfer-Encoding', 'chunked']
          : [],
      body: payload,
    });
    expect(answer.status).toBe(200);
    expect(length).toBe(payload.length);
    expect(hash.digest('hex')).toBe(createHash('sha256').update(payload).digest('hex'));
    expect(rig.access.at(-1)?.requestBytes).toBe(payload.length);
  });

  it.each([
    ['with a length', true],
    ['in chunks', false],
  ])('downloads 50 MB %s', async (_, withLength) => {
    const block = Buffer.alloc(1_000_000, '0123456789');
    const rig = await rigWith((connection) => {
      void connection.until(headEnd).then(async () => {
        const { socket } = connection;
        socket.write(
          `HTTP/1.1 200 OK\r\n${withLength ? 'Content-Length: 50000000' : 'Transfer-Encoding: chunked'}\r\n\r\n`,
        );
        for (let sent = 0; sent < 50; sent++) {
          if (!withLength) socket.write('f4240\r\n');
          const room = socket.write(block);
          if (!withLength) socket.write('\r\n');
          if (!room) await drained(connection);
        }
        if (!withLength) socket.write('0\r\n\r\n');
      });
    });
    const answer = await clientOf(name, rig).ask({ path: '/api/v1/pods' });
    expect(answer.body).toHaveLength(50_000_000);
    expect(answer.body.equals(Buffer.alloc(50_000_000, '0123456789'))).toBe(true);
  });

  it('pauses the API server while a client does not read', async () => {
    const block = Buffer.alloc(64 * 1024, 'x');
    let sent = 0;
    const rig = await rigWith((connection) => {
      void connection.until(headEnd).then(async () => {
        const { socket } = connection;
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n');
        while (!socket.destroyed && sent < 1_000_000_000) {
          sent += block.length;
          if (!socket.write(block)) await drained(connection);
        }
      });
    });
    const answer = await clientOf(name, rig).open({ path: '/api/v1/pods' });
    answer.body.pause();
    // the sender stops when every buffer on the path is full
    let before = -1;
    await expect
      .poll(
        () => {
          const still = sent === before && sent > 0;
          before = sent;
          return still;
        },
        { interval: 300 },
      )
      .toBe(true);
    expect(sent).toBeLessThan(48_000_000);
    answer.abort();
    await rig.upstreams[0]!.closed;
  });

  it('refuses with a Status that contains the reason', async () => {
    const rig = await rigWith(answering(EMPTY_OK));
    const answer = await clientOf(name, rig).ask({ path: '/api/v1/namespaces/n/pods/p%2Fexec' });
    expect(answer.status).toBe(400);
    expect(valuesOf(answer.rawHeaders, 'content-type')).toEqual(['application/json']);
    expect(JSON.parse(answer.body.toString())).toMatchObject({
      kind: 'Status',
      code: 400,
      reason: 'BadRequest',
    });
    expect(rig.upstreams).toHaveLength(0);
  });

  it('returns 502 when the API server is unreachable, and serves the next request', async () => {
    const rig = await rigWith(answering(EMPTY_OK), { upstreamPort: 1 });
    const client = clientOf(name, rig);
    for (let round = 0; round < 2; round++) {
      const answer = await client.ask({ path: '/api' });
      expect(answer.status).toBe(502);
      expect(JSON.parse(answer.body.toString())).toMatchObject({
        kind: 'Status',
        reason: 'ServiceUnavailable',
      });
    }
    expect(rig.proxy.inFlight).toBe(0);
  });

  it('refuses impersonation of another user with a Status, and logs and counts it', async () => {
    const rig = await rigWith(answering(EMPTY_OK));
    const answer = await clientOf(name, rig).ask({ path: '/api', headers: ['Impersonate-User', 'root'] });
    expect(answer.status).toBe(403);
    expect(JSON.parse(answer.body.toString())).toMatchObject({
      kind: 'Status',
      reason: 'Forbidden',
      message: expect.stringContaining('refuses --as, --as-group and --as-uid') as unknown,
      details: { causes: [{ message: 'IMPERSONATION_REFUSED' }] },
    });
    expect(rig.upstreams).toHaveLength(0);
    expect(rig.access).toMatchObject([{ status: 403, error: 'IMPERSONATION_REFUSED' }]);
    expect(await rig.metrics.registry.metrics()).toContain(
      'tailcast_refusals_total{code="IMPERSONATION_REFUSED"} 1',
    );
  });

  it('stores the event of a body first, and sends the body unchanged to the API server', async () => {
    const body = 'x'.repeat(5000);
    const events: string[] = [];
    const rig = await rigWith(
      (connection) => {
        void connection.until((text) => text.endsWith(body)).then(() => connection.socket.write(EMPTY_OK));
      },
      {
        identity: person([{ recorderAddrs: ['100.64.0.9:80'], enableEvents: true }]),
        recordApiRequest: (record) => {
          events.push(
            `${record.method} ${record.body.length} ${record.bodyTruncated} upstreams=${rig.upstreams.length}`,
          );
          return Promise.resolve();
        },
      },
    );
    const client = clientOf(name, rig);
    const answer = await client.ask({
      method: 'POST',
      path: '/api/v1/namespaces/n/pods',
      headers: ['Content-Length', '5000'],
      body,
    });
    expect(answer.status).toBe(200);
    expect(events).toEqual(['POST 1024 true upstreams=0']);
  });

  it('refuses requests above the limit of concurrent requests, with Retry-After', async () => {
    const rig = await rigWith(answering('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'), {
      maxInFlight: 2,
    });
    const client = clientOf(name, rig);
    const watches = [
      await client.open({ path: '/api/v1/pods?watch=1' }),
      await client.open({ path: '/api/v1/pods?watch=2' }),
    ];
    const answer = await client.ask({ path: '/api/v1/pods' });
    expect(answer.status).toBe(429);
    expect(valuesOf(answer.rawHeaders, 'retry-after')).toEqual(['1']);
    for (const watch of watches) watch.abort();
  });
});
