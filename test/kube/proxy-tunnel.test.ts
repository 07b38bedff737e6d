import { once } from 'node:events';
import { createServer as createHttpServer, type IncomingMessage } from 'node:http';
import { createServer as createHttpsServer } from 'node:https';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openProxyTunnel } from '../../src/kube/proxy-tunnel.ts';
import { createUpstreamConnector } from '../../src/proxy/upstream/upstream-connect.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';

async function listen(server: Server): Promise<number> {
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => undefined);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** Starts the server behind the proxies. */
function startEcho(): Promise<number> {
  return listen(createServer((socket) => void socket.pipe(socket)));
}

function join(left: Socket, port: number, begin: () => void): void {
  const right = connect(port, '127.0.0.1', () => {
    begin();
    left.pipe(right).pipe(left);
  });
  right.on('error', () => left.destroy());
}

interface Asked {
  readonly target: string | undefined;
  readonly authorization: string | undefined;
}

async function startConnectProxy(port: number, status = 200): Promise<{ port: number; asked: Asked[] }> {
  const asked: Asked[] = [];
  const server = createHttpServer();
  server.on('connect', (request: IncomingMessage, socket: Socket) => {
    asked.push({ target: request.url, authorization: request.headers['proxy-authorization'] });
    if (status === 200) join(socket, port, () => socket.write('HTTP/1.1 200 Connection established\r\n\r\n'));
    else socket.end(`HTTP/1.1 ${status} No\r\nContent-Length: 0\r\n\r\n`);
  });
  return { port: await listen(server), asked };
}

/** Starts a SOCKS5 server that sends its responses one byte at a time. */
async function startSocksProxy(
  port: number,
  options: { readonly method?: number; readonly login?: number; readonly code?: number } = {},
): Promise<{ port: number; said: string[] }> {
  const said: string[] = [];
  const server = createServer((socket) => {
    const answers = [
      Buffer.from([5, options.method ?? 0]),
      ...(options.method === 2 ? [Buffer.from([1, options.login ?? 0])] : []),
    ];
    const onData = (chunk: Buffer): void => {
      said.push(chunk.toString('hex'));
      const answer = answers.shift();
      if (answer !== undefined) {
        for (const byte of answer) socket.write(Buffer.from([byte]));
        return;
      }
      socket.off('data', onData);
      const code = options.code ?? 0;
      const last = Buffer.from([5, code, 0, 3, 1, 0x78, 0, 80]);
      if (code === 0) join(socket, port, () => socket.write(last));
      else socket.end(last);
    };
    socket.on('data', onData);
  });
  return { port: await listen(server), said };
}

async function echoThrough(url: string, target: { host: string; port: number }): Promise<string> {
  const socket = await openProxyTunnel(url, 'proxy-url', target)(AbortSignal.timeout(30_000));
  onTestFinished(() => void socket.destroy());
  socket.write('hello');
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  return chunk.toString();
}

describe('a tunnel through HTTP CONNECT', () => {
  it('asks for host and port, with user name and password', async () => {
    const echo = await startEcho();
    const proxy = await startConnectProxy(echo);
    const target = { host: 'kubernetes', port: 6443 };
    expect(await echoThrough(`http://al%40ice:s%3Acret@127.0.0.1:${proxy.port}`, target)).toBe('hello');
    expect(await echoThrough(`http://127.0.0.1:${proxy.port}`, { host: '::1', port: 443 })).toBe('hello');
    expect(proxy.asked).toEqual([
      {
        target: 'kubernetes:6443',
        authorization: `Basic ${Buffer.from('al@ice:s:cret').toString('base64')}`,
      },
      { target: '[::1]:443', authorization: undefined },
    ]);
  });

  it('is refused as the proxy refuses, without the password', async () => {
    const proxy = await startConnectProxy(1, 407);
    const url = `http://alice:secret@127.0.0.1:${proxy.port}`;
    const opened = openProxyTunnel(url, 'proxy-url', { host: 'kubernetes', port: 443 })(
      new AbortController().signal,
    );
    await expect(opened).rejects.toMatchObject({
      code: 'UPSTREAM_UNAVAILABLE',
      message: expect.stringContaining(
        `the proxy 127.0.0.1:${proxy.port}: it answered CONNECT with 407`,
      ) as string,
    });
    await expect(opened).rejects.not.toThrow(/secret/);
  });
});

describe('a tunnel through SOCKS5', () => {
  it('names the host, so that the proxy resolves it', async () => {
    const proxy = await startSocksProxy(await startEcho());
    expect(await echoThrough(`socks5://127.0.0.1:${proxy.port}`, { host: 'k8s', port: 6443 })).toBe('hello');
    expect(proxy.said).toEqual(['050100', `0501000303${Buffer.from('k8s').toString('hex')}192b`]);
  });

  it('gives an address as one, and a password where there is one', async () => {
    const proxy = await startSocksProxy(await startEcho(), { method: 2 });
    const target = { host: '10.0.0.1', port: 443 };
    expect(await echoThrough(`socks5h://u:pw@127.0.0.1:${proxy.port}`, target)).toBe('hello');
    expect(proxy.said).toEqual(['05020002', '010175027077', '050100010a00000101bb']);
  });

  it.each([
    [{ method: 255 }, 'no accepted authentication type', 'socks5'],
    [{ code: 5 }, 'rejected connection - ConnectionRefused', 'socks5'],
    [{ code: 99 }, 'rejected connection', 'socks5'],
  ])('is refused as the proxy refuses: %j', async (options, problem, scheme) => {
    const proxy = await startSocksProxy(1, options);
    await expect(echoThrough(`${scheme}://127.0.0.1:${proxy.port}`, { host: 'k', port: 1 })).rejects.toThrow(
      problem,
    );
  });

  it('is refused with a wrong password, and by what is no proxy', async () => {
    const proxy = await startSocksProxy(1, { method: 2, login: 1 });
    await expect(echoThrough(`socks5://u:p@127.0.0.1:${proxy.port}`, { host: 'k', port: 1 })).rejects.toThrow(
      'Socks5 Authentication failed',
    );
    const other = await listen(createServer((socket) => void socket.end('HTTP/1.1 400 Bad Request\r\n\r\n')));
    await expect(echoThrough(`socks5://127.0.0.1:${other}`, { host: 'k', port: 1 })).rejects.toThrow(
      'invalid socks version',
    );
    const silent = await listen(createServer((socket) => void socket.end()));
    await expect(echoThrough(`socks5://127.0.0.1:${silent}`, { host: 'k', port: 1 })).rejects.toThrow(
      'Socket closed',
    );
  });

  it('sends an IPv6 address as an address', async () => {
    const proxy = await startSocksProxy(await startEcho());
    expect(await echoThrough(`socks5://127.0.0.1:${proxy.port}`, { host: '::1', port: 443 })).toBe('hello');
    expect(proxy.said.at(-1)).toBe(`05010004${'00'.repeat(15)}0101bb`);
  });

  it('is refused at start if SOCKS5 cannot send a name or password', () => {
    const longest = 'x'.repeat(255);
    expect(
      openProxyTunnel(`socks5://${longest}:${longest}@p`, 'proxy-url', { host: longest, port: 1 }),
    ).toBeTypeOf('function');
    for (const [url, host] of [
      [`socks5://x${longest}:p@p`, 'k'],
      [`socks5://u:x${longest}@p`, 'k'],
      ['socks5://p', `x${longest}`],
    ] as const) {
      expect(() => openProxyTunnel(url, 'proxy-url', { host, port: 1 })).toThrow(
        'proxy-url is no proxy that can be used',
      );
    }
  });

  it('ends with its signal', async () => {
    const silent = await listen(createServer(() => undefined));
    const abort = new AbortController();
    const opened = openProxyTunnel(`socks5://127.0.0.1:${silent}`, 'proxy-url', { host: 'k', port: 1 })(
      abort.signal,
    );
    abort.abort(new Error('gone'));
    await expect(opened).rejects.toThrow('gone');
  });
});

describe('the gateway’s connection through a proxy', () => {
  it.each(['http', 'socks5'])(
    'speaks TLS to the API server, and hands over what it reads: %s',
    async (scheme) => {
      const authority = await createTestAuthority();
      const { keyPem: key, certificatePem: cert } = await authority.issue(['kubernetes']);
      const api = createHttpsServer({ key, cert }, (_request, response) => response.end('x'.repeat(100_000)));
      const apiPort = await listen(api);
      const proxy = scheme === 'http' ? await startConnectProxy(apiPort) : await startSocksProxy(apiPort);
      const target = { host: 'kubernetes', port: 443 };
      const connector = createUpstreamConnector({
        ...target,
        serverName: 'kubernetes',
        open: openProxyTunnel(`${scheme}://127.0.0.1:${proxy.port}`, 'proxy-url', target),
        tls: { ca: authority.caPem },
      });
      // tests `connect`, which the connection pool calls, and `connectStream`: the connections of both can be read as
      // streams
      const socket = await connector.connect(() => expect.unreachable());
      onTestFinished(() => void socket.destroy());
      expect(socket.authorized).toBe(true);
      for (const connection of [socket, await connector.connectStream()]) {
        connection.write('GET / HTTP/1.1\r\nHost: kubernetes\r\nConnection: close\r\n\r\n');
        const answer = await text(connection);
        expect(answer).toContain('HTTP/1.1 200 OK');
        expect(answer.endsWith('x'.repeat(100_000))).toBe(true);
      }
    },
  );

  it('ends when the proxy does not answer in time', async () => {
    const silent = await listen(createServer(() => undefined));
    const target = { host: 'kubernetes', port: 443 };
    const open = openProxyTunnel(`http://127.0.0.1:${silent}`, 'proxy-url', target);
    const connector = createUpstreamConnector(
      { ...target, serverName: undefined, open, tls: {} },
      { connectTimeoutMs: 50 },
    );
    await expect(connector.connect()).rejects.toThrow('kubernetes:443: no connection within 50 ms');
  });
});

describe('what is no proxy', () => {
  it.each(['ftp://x', 'x', 'http://', '10.0.0.1:3128', 'http://u%:p@x'])(
    'is refused at start: %s',
    (text) => {
      expect(() => openProxyTunnel(text, 'clusters[k].cluster.proxy-url', { host: 'k', port: 1 })).toThrow(
        /clusters\[k\]\.cluster\.proxy-url is no proxy that can be used; write http:\/\/host:port/,
      );
    },
  );
});
