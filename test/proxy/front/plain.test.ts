import { once } from 'node:events';
import { describe, expect, it, onTestFinished } from 'vitest';
import { answering, rigWith, rawClient, type Rig, type RigOptions, type UpstreamSocket } from '../rig.ts';

async function connectTo(rig: Rig): Promise<UpstreamSocket> {
  const client = await rawClient(rig);
  onTestFinished(() => void client.socket.destroy());
  return client;
}

/** Responds to each request with the raw bytes of its head. */
const echo: RigOptions['upstream'] = (connection) => {
  let from = 0;
  connection.socket.on('data', () => {
    for (;;) {
      const text = connection.received();
      const end = text.indexOf('\r\n\r\n', from);
      if (end === -1) return;
      const head = text.slice(from, end);
      from = end + 4;
      connection.socket.write(`HTTP/1.1 200 OK\r\nContent-Length: ${head.length}\r\n\r\n${head}`, 'latin1');
    }
  });
};

const headEnd = (text: string): boolean => text.includes('\r\n\r\n');
const HOST = 'Host: gateway.test\r\n';

/** Sends raw bytes and returns everything up to the end of the connection. */
async function exchangeRaw(rig: Rig, bytes: string): Promise<string> {
  const client = await connectTo(rig);
  client.socket.write(bytes, 'latin1');
  await client.closed;
  return client.received();
}

/** Sends `GET /api` on a new connection. */
async function askApi(rig: Rig): Promise<UpstreamSocket> {
  const client = await connectTo(rig);
  client.socket.write(`GET /api HTTP/1.1\r\n${HOST}\r\n`);
  return client;
}

/** Expects that the gateway refuses requests with a Status, and sends none of them upstream. */
async function expectRefused(cases: readonly (readonly [bytes: string, status: number])[]): Promise<void> {
  const rig = await rigWith(echo);
  for (const [bytes, status] of cases) {
    const text = await exchangeRaw(rig, bytes);
    expect([bytes.slice(0, 90), text.slice(0, 12)]).toEqual([bytes.slice(0, 90), `HTTP/1.1 ${status}`]);
    expect(text).toContain('"kind":"Status"');
  }
  expect(rig.upstreams).toHaveLength(0);
}

describe('HTTP/1.1 connections', () => {
  it('serve requests one after another, and keep the order of a pipeline', async () => {
    const rig = await rigWith((connection) => {
      void connection.until(headEnd).then((text) => {
        const name = /GET \/(\w+)/.exec(text)?.[1] ?? '';
        const answer = `HTTP/1.1 200 OK\r\nContent-Length: ${name.length}\r\nConnection: close\r\n\r\n${name}`;
        // the response to the first request is delayed the longest
        setTimeout(() => connection.socket.end(answer), name === 'first' ? 60 : 0);
      });
    });
    const client = await connectTo(rig);
    client.socket.write(
      ['first', 'second', 'third'].map((name) => `GET /${name} HTTP/1.1\r\n${HOST}\r\n`).join(''),
    );
    const text = await client.until((received) => received.includes('third'));
    expect(text.indexOf('first')).toBeLessThan(text.indexOf('second'));
    expect(text.indexOf('second')).toBeLessThan(text.indexOf('third'));
    // a request is sent upstream only after the response to the previous one
    expect(rig.upstreams[0]!.received()).toContain('/first');
  });

  it('are closed when too many requests wait in a pipeline', async () => {
    const rig = await rigWith(() => {});
    await exchangeRaw(rig, `GET /api HTTP/1.1\r\n${HOST}\r\n`.repeat(40));
    await expect.poll(() => rig.proxy.inFlight).toBe(0);
    expect(rig.upstreams.length).toBeLessThanOrEqual(1);
  });

  it('stay open for the next request unless there is a reason to close them', async () => {
    const rig = await rigWith(echo);
    const client = await connectTo(rig);
    for (let round = 1; round <= 3; round++) {
      client.socket.write(`GET /round${round} HTTP/1.1\r\n${HOST}\r\n`);
      await client.until((text) => text.includes(`GET /round${round} `));
    }
    expect(rig.upstreams).toHaveLength(1);
    expect(client.received()).not.toMatch(/connection: close/i);
  });

  it("write everything from one read of the API server's connection at once", async () => {
    const [head, rest] = [
      'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nfirst\r\n',
      '4\r\nlast\r\n0\r\n\r\n',
    ];
    const rig = await rigWith((connection) => {
      connection.socket.on('data', () => {
        connection.socket.write(head);
        connection.socket.write(rest);
      });
    });
    const client = await connectTo(rig);
    // the gateway sends one TLS record per write, and the client receives each record as one chunk
    const pieces: string[] = [];
    client.socket.on('data', (piece: Buffer) => pieces.push(piece.toString('latin1')));
    for (const round of [1, 2]) {
      client.socket.write(`GET /api HTTP/1.1\r\n${HOST}\r\n`);
      await client.until((text) => text.split(rest).length > round);
    }
    expect(pieces).toEqual([head + rest, head + rest]);
  });

  it('get the first part of a response whose rest arrives later', async () => {
    const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
    const rig = await rigWith((connection) => {
      connection.socket.on('data', () => connection.socket.write(head));
    });
    const client = await askApi(rig);
    await client.until((text) => text === head);
    for (const event of ['1\r\na\r\n', '1\r\nb\r\n']) {
      rig.upstreams[0]!.socket.write(event);
      await client.until((text) => text.endsWith(event));
    }
    expect(client.received()).toBe(`${head}1\r\na\r\n1\r\nb\r\n`);
  });

  it('are closed after the response if the client requests it', async () => {
    const rig = await rigWith(echo);
    const text = await exchangeRaw(rig, `GET /api HTTP/1.1\r\n${HOST}Connection: close\r\n\r\n`);
    expect(text).toMatch(/^HTTP\/1\.1 200 OK\r\nContent-Length: \d+\r\nConnection: close\r\n\r\nGET \/api/);
  });

  it('give an HTTP/1.0 client its body without chunks and the end of the connection', async () => {
    const rig = await rigWith(
      answering('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n'),
    );
    const text = await exchangeRaw(rig, `GET /api HTTP/1.0\r\n${HOST}\r\n`);
    expect(text).toBe('HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcde');
  });

  it('get each piece of a response without a length as a chunk when it arrives', async () => {
    const rig = await rigWith((connection) => {
      void connection.until(headEnd).then(() => connection.socket.write('HTTP/1.1 200 OK\r\n\r\nfirst'));
    });
    const client = await askApi(rig);
    await client.until((text) => text.endsWith('5\r\nfirst\r\n'));
    rig.upstreams[0]!.socket.write('second');
    await client.until((text) => text.endsWith('6\r\nsecond\r\n'));
    rig.upstreams[0]!.socket.end();
    const whole = await client.until((text) => text.endsWith('0\r\n\r\n'));
    expect(whole).toMatch(/^HTTP\/1\.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n/);
  });

  it('relay a complete response that arrives during the request body, and then close', async () => {
    const rig = await rigWith((connection) => {
      void connection
        .until((text) => text.includes('first part'))
        .then(() => connection.socket.write('HTTP/1.1 413 Too Large\r\nContent-Length: 6\r\n\r\nenough'));
    });
    const client = await connectTo(rig);
    client.socket.write(`POST /api HTTP/1.1\r\n${HOST}Content-Length: 1000000\r\n\r\nfirst part`);
    await client.until((text) => text.includes('enough'));
    expect(client.received()).toContain('Connection: close\r\n');
    client.socket.write(Buffer.alloc(100_000));
    await client.closed;
    await rig.upstreams[0]!.closed;
    expect(rig.pool.size.total).toBe(0);
  });

  it('upgrade nothing while a response is pending', async () => {
    const rig = await rigWith(() => {});
    const upgrade =
      `GET /api/v1/namespaces/n/pods/p/exec HTTP/1.1\r\n${HOST}Connection: Upgrade\r\nUpgrade: ` +
      'websocket\r\n\r\n';
    const text = await exchangeRaw(rig, `GET /api HTTP/1.1\r\n${HOST}\r\n${upgrade}`);
    expect(text).toBe('');
    const alone = await exchangeRaw(rig, upgrade);
    expect(alone).toContain('599 Upgrade Handler');
  });

  it('get a Status for an invalid request', async () => {
    await expectRefused([
      ['GET /api HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc', 400],
      ['POST /api HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd', 400],
      ['POST /api HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\nabc', 400],
      ['POST /api HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n', 400],
      ['POST /api HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, identity\r\n\r\n', 400],
      ['GET /api HTTP/1.1\r\nHost: a\r\nA: b\r\n c\r\n\r\n', 400],
      ['GET /api HTTP/1.1\nHost: a\n\n', 400],
      ['GET /api HTTP/1.1\r\nHost: a\r\nA: b\0c\r\n\r\n', 400],
      ['GET /api HTTP/1.1\r\nHost: a\r\nImpersonate-User : root\r\n\r\n', 400],
      ['get /api HTTP/1.1\r\nHost: a\r\n\r\n', 400],
      ['PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n', 400],
      [`GET /api HTTP/1.1\r\nHost: a\r\nA: ${'x'.repeat(1_400_000)}\r\n\r\n`, 431],
      ['CONNECT kubernetes:443 HTTP/1.1\r\nHost: a\r\n\r\n', 405],
    ]);
  });

  it('time out when a request head does not arrive', async () => {
    const rig = await rigWith(echo, { server: { limits: { headersTimeoutMs: 200 } } });
    const client = await connectTo(rig);
    client.socket.write('GET /api HTTP/1.1\r\nHost: a\r\nX-Slow: ');
    await client.closed;
    expect(client.received()).toMatch(/^HTTP\/1\.1 408 [\s\S]*"kind":"Status"/);
  });

  it('are closed when idle for longer than the keep-alive time', async () => {
    const rig = await rigWith(echo, { server: { limits: { keepAliveMs: 50 } } });
    const client = await askApi(rig);
    await client.until((text) => text.includes('GET /api'));
    await client.closed;
    expect(client.received()).toMatch(/^HTTP\/1\.1 200 /);
  });

  it('do not reuse a connection on which the API server sent more than its response', async () => {
    const rig = await rigWith(
      answering(
        'HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong',
      ),
    );
    const client = await connectTo(rig);
    for (let round = 1; round <= 2; round++) {
      client.socket.write(`GET /api HTTP/1.1\r\n${HOST}\r\n`);
      await client.until((text) => text.split('\r\n\r\nok').length === round + 1);
    }
    expect(client.received()).not.toContain('wrong');
    expect(rig.upstreams).toHaveLength(2);
  });

  it('survive a client that half-closes after its request', async () => {
    const rig = await rigWith(echo);
    const client = await connectTo(rig);
    client.socket.end(`GET /api HTTP/1.1\r\n${HOST}\r\n`);
    await once(client.socket, 'close');
    await expect.poll(() => rig.proxy.inFlight).toBe(0);
  });
});

describe('clients that disconnect during a response', () => {
  it('do not count as failures of the API server', async () => {
    const rig = await rigWith((connection) => {
      void connection.until(headEnd).then(() => {
        connection.socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n');
        const timer = setInterval(() => connection.socket.write(`4000\r\n${'e'.repeat(0x4000)}\r\n`), 1);
        connection.socket.once('close', () => clearInterval(timer));
      });
    });
    const clients = await Promise.all(Array.from({ length: 20 }, () => connectTo(rig)));
    for (const { socket } of clients) socket.write(`GET /api/v1/pods?watch=1 HTTP/1.1\r\n${HOST}\r\n`);
    await Promise.all(clients.map((client) => client.until((text) => text.length > 0x4000)));
    for (const { socket } of clients) socket.destroy();
    await expect.poll(() => rig.access.length).toBe(clients.length);
    const { values } = await rig.metrics.upstreamFailures.get();
    expect(values.filter(({ value }) => value > 0)).toEqual([]);
  });
});

describe('an unknown expectation', () => {
  it('does not bypass authentication and logs', async () => {
    const rig = await rigWith(echo);
    const client = await connectTo(rig);
    client.socket.write(`GET /api HTTP/1.1\r\n${HOST}Expect: the-unexpected\r\n\r\n`);
    expect(await client.until((text) => text.includes('\r\n\r\n'))).toContain('HTTP/1.1 200');
    await expect.poll(() => rig.access.length).toBe(1);
    expect(rig.upstreams[0]!.received().toLowerCase()).not.toContain('expect');
  });
});
