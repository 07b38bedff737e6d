import { once } from 'node:events';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer, request, type Server } from 'node:http';
import { createServer as createTcpServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { TailcastError } from '../../src/errors.ts';
import { assertServiceWhois, BUS_MASK, createLocalApi, type LocalApi } from '../../src/tailnet/local-api.ts';
import { startLocalApiDouble, userNode, type LocalApiDouble } from '../support/local-api-double.ts';
import { listenOn } from '../support/listen.ts';

const never = new AbortController().signal;

let daemon: LocalApiDouble;
let api: LocalApi;
const cleanups: (() => Promise<unknown> | void)[] = [];

beforeEach(async () => {
  daemon = await startLocalApiDouble();
  api = createLocalApi({ socketPath: daemon.socketPath });
});

afterEach(async () => {
  api.close();
  await daemon.close();
  for (const cleanup of cleanups.splice(0)) await cleanup();
});

async function failureOf(promise: Promise<unknown>): Promise<TailcastError> {
  return (await promise.then(
    () => expect.fail('it did not throw'),
    (error: unknown) => error,
  )) as TailcastError;
}

describe('questions to tailscaled', () => {
  it('identify themselves as a local client and nothing else', async () => {
    daemon.whois.set('127.0.0.1:4711', userNode());
    const answer = await api.whois('127.0.0.1:4711', never);
    expect(answer.kind).toBe('found');
    const [asked] = daemon.requests;
    expect(asked!.url).toBe('/localapi/v0/whois?proto=tcp&addr=127.0.0.1%3A4711');
    expect(asked!.headers).toMatchObject({ host: 'local-tailscaled.sock' });
    expect(asked!.headers['tailscale-cap']).toMatch(/^\d+$/);
    expect(asked!.headers).not.toHaveProperty('origin');
    expect(asked!.headers).not.toHaveProperty('referer');
  });

  it('name the Service whose grants count', async () => {
    daemon.whois.set('100.64.0.4', userNode());
    await api.whois('100.64.0.4', never, 'svc:prod');
    expect(new URL(daemon.requests[0]!.url, 'http://x').searchParams.get('svc_name')).toBe('svc:prod');
  });

  it.each(['1.99.9', '0.200.0', '', 'double', '1', '-1.100', '1.x'])(
    'for a Service need a newer tailscaled than %j, which would return the grants of the node',
    (version) => {
      expect(() => assertServiceWhois(version)).toThrow('need tailscaled 1.100 or newer');
    },
  );

  it.each(['1.100.0', '1.100.1-tdeadbeef', '1.102', '2.0.0'])('for a Service work with %s', (version) => {
    expect(() => assertServiceWhois(version)).not.toThrow();
  });

  it('would be refused under any other host name', async () => {
    const status = await new Promise((resolve) => {
      request({
        socketPath: daemon.socketPath,
        path: '/localapi/v0/status',
        headers: { Host: 'localhost:9109' },
      })
        .on('response', (response) => resolve(response.resume().statusCode))
        .end();
    });
    expect(status).toBe(403);
  });

  it('take IPv6 addresses and bare addresses', async () => {
    daemon.whois.set('[fd7a::4]:80', userNode());
    daemon.whois.set('100.64.0.4', userNode());
    expect((await api.whois('[fd7a::4]:80', never)).kind).toBe('found');
    expect((await api.whois('100.64.0.4', never)).kind).toBe('found');
  });

  it('get "unknown" as an answer, not as an error, for an address nobody has', async () => {
    expect(await api.whois('100.64.0.9', never)).toEqual({
      kind: 'unknown',
      message: 'no match for IP:port',
    });
  });

  it('read the status', async () => {
    daemon.status = {
      Version: '1.102.5',
      BackendState: 'Running',
      CertDomains: ['gw.lab.ts.net'],
      CurrentTailnet: { MagicDNSSuffix: 'lab.ts.net' },
      Self: { ID: 'n1', DNSName: 'GW.lab.ts.net.', TailscaleIPs: ['100.64.0.1'], Online: true },
      Peer: {
        'nodekey:1': {
          ID: 'n2',
          DNSName: 'rec.lab.ts.net.',
          TailscaleIPs: ['100.64.0.2'],
          Tags: ['tag:rec'],
        },
      },
    };
    expect(await api.status(never)).toMatchObject({
      backendState: 'Running',
      certificateDomains: ['gw.lab.ts.net'],
      self: { name: 'gw.lab.ts.net', online: true, tags: [] },
      peers: [{ nodeId: 'n2', name: 'rec.lab.ts.net', tags: ['tag:rec'], online: false }],
    });
  });

  it('read the serve configuration with its ETag', async () => {
    daemon.serveConfig = { TCP: { 443: { TCPForward: '127.0.0.1:8443', ProxyProtocol: 2 } } };
    expect(await api.serveConfig(never)).toEqual({ etag: '"abc"', config: daemon.serveConfig });
  });

  it('split the key from the certificate chain', async () => {
    const key = '-----BEGIN EC PRIVATE KEY-----\nAAAA\n-----END EC PRIVATE KEY-----\n';
    const chain = ['B', 'C']
      .map((x) => `-----BEGIN CERTIFICATE-----\n${x}\n-----END CERTIFICATE-----\n`)
      .join('');
    daemon.certificates.set('gw.lab.ts.net', key + chain);
    expect(await api.certificate('gw.lab.ts.net', never)).toEqual({ keyPem: key, certificatePem: chain });
    await api.certificate('gw.lab.ts.net', never, { minValidityHours: 24 });
    expect(daemon.requests.map(({ url }) => url)).toEqual([
      '/localapi/v0/cert/gw.lab.ts.net?type=pair',
      '/localapi/v0/cert/gw.lab.ts.net?type=pair&min_validity=24h',
    ]);
    daemon.certificates.set('gw.lab.ts.net', chain);
    expect((await failureOf(api.certificate('gw.lab.ts.net', never))).code).toBe('CERTIFICATE_UNAVAILABLE');
  });

  it('reuse a bounded number of connections', async () => {
    daemon.whois.set('100.64.0.4', userNode());
    await Promise.all(Array.from({ length: 50 }, () => api.whois('100.64.0.4', never)));
    expect(daemon.requests).toHaveLength(50);
    expect(daemon.peak).toBeLessThanOrEqual(8);
  });
});

describe('what can go wrong with the socket', () => {
  async function messageFor(socketPath: string): Promise<string> {
    const other = createLocalApi({ socketPath });
    const error = await failureOf(other.status(never));
    expect(error.code).toBe('TAILNET_UNAVAILABLE');
    expect(error.message).toContain(socketPath);
    return error.message;
  }

  it('names a socket that is not there, and what to do', async () => {
    expect(await messageFor('/nonexistent/tailscaled.sock')).toContain('start tailscaled');
  });

  it('names a socket nobody listens on', async () => {
    const directory = await mkdtemp(join(tmpdir(), 'local-api-'));
    cleanups.push(() => rm(directory, { recursive: true }));
    await writeFile(join(directory, 'sock'), '');
    expect(await messageFor(join(directory, 'sock'))).toContain('nothing is listening');
  });

  it.skipIf(process.getuid?.() === 0)('names a socket this user may not open', async () => {
    await chmod(daemon.socketPath, 0o000);
    expect(await messageFor(daemon.socketPath)).toContain('user ID of tailscaled');
  });

  it.each([
    [403, 'whois access denied', 'refused this user (whois access denied)'],
    [404, 'not found', 'upgrade tailscaled'],
    [429, 'rate limited', 'CA limits requests'],
    [500, 'boom\u001b[2J\nsecond line', 'status 500 (boom [2J)'],
  ])('explains status %i', async (status, body, part) => {
    daemon.failure = { status, body };
    const error = await failureOf(api.status(never));
    expect(error.message).toContain(part);
    expect(error.message).toContain(daemon.socketPath);
  });

  it('does not wait longer than told', async () => {
    const impatient = createLocalApi({ socketPath: daemon.socketPath, whoisTimeoutMs: 30 });
    const { promise, resolve } = Promise.withResolvers<void>();
    daemon.hold = promise;
    const error = await failureOf(impatient.whois('100.64.0.4', never));
    resolve();
    impatient.close();
    expect(error.message).toContain('in time');
  });

  it('stops when the caller cancels', async () => {
    const { promise, resolve } = Promise.withResolvers<void>();
    daemon.hold = promise;
    const asker = new AbortController();
    const answer = failureOf(api.whois('100.64.0.4', asker.signal));
    asker.abort();
    expect((await answer).message).toContain('cancelled');
    resolve();
  });

  it('refuses a question when too many are waiting', async () => {
    const narrow = createLocalApi({ socketPath: daemon.socketPath, maxPending: 2 });
    const { promise, resolve } = Promise.withResolvers<void>();
    daemon.hold = promise;
    const first = [narrow.whois('100.64.0.1', never), narrow.whois('100.64.0.2', never)];
    expect((await failureOf(narrow.whois('100.64.0.3', never))).message).toContain('already waiting');
    resolve();
    await Promise.all(first);
    expect((await narrow.whois('100.64.0.3', never)).kind).toBe('unknown');
    narrow.close();
  });

  it('refuses an answer that is too long, and one that is not JSON', async () => {
    const small = createLocalApi({ socketPath: daemon.socketPath, maxStatusBytes: 1000 });
    daemon.status = { BackendState: 'Running', Version: 'x'.repeat(1000) };
    expect((await failureOf(small.status(never))).message).toContain('larger than 1000 bytes');
    small.close();
    daemon.failure = { status: 200, body: '<html>' };
    expect((await failureOf(api.status(never))).message).toContain('not JSON');
  });

  it('takes the longest answer there may be, and none that has a byte more', async () => {
    const body = JSON.stringify({ BackendState: 'Running', Version: '1' });
    daemon.failure = { status: 200, body };
    const wide = createLocalApi({ socketPath: daemon.socketPath, maxStatusBytes: body.length });
    expect(await wide.status(never)).toMatchObject({ version: '1' });
    wide.close();
    const narrow = createLocalApi({ socketPath: daemon.socketPath, maxStatusBytes: body.length - 1 });
    expect((await failureOf(narrow.status(never))).message).toContain(`larger than ${body.length - 1} bytes`);
    narrow.close();
  });
});

describe('dialling through the tailnet', () => {
  let echo: ReturnType<typeof createTcpServer>;
  beforeEach(async () => {
    echo = createTcpServer((socket) => void socket.pipe(socket));
    await listenOn(echo);
    cleanups.push(() => void echo.close());
    daemon.dials.set('100.64.0.2:80', (echo.address() as AddressInfo).port);
  });

  it('gives a byte tunnel, with the lower-case upgrade the daemon insists on', async () => {
    const tunnel = await api.dial('100.64.0.2', 80, never);
    tunnel.write('hello');
    expect(String((await once(tunnel, 'data'))[0])).toBe('hello');
    expect(daemon.requests[0]!.headers).toMatchObject({
      connection: 'upgrade',
      upgrade: 'ts-dial',
      'dial-network': 'tcp',
    });
    tunnel.destroy();
  });

  it('keeps bytes that come with the 101', async () => {
    daemon.dialGreeting = 'early';
    const tunnel = await api.dial('100.64.0.2', 80, never);
    expect(String((await once(tunnel, 'data'))[0])).toBe('early');
    tunnel.destroy();
  });

  it('leaves the tunnel alone when the dialling signal aborts later', async () => {
    const dialling = new AbortController();
    const tunnel = await api.dial('100.64.0.2', 80, dialling.signal);
    dialling.abort();
    tunnel.write('still here');
    expect(String((await once(tunnel, 'data'))[0])).toBe('still here');
    tunnel.destroy();
  });

  it('carries HTTP', async () => {
    const recorder: Server = createServer((_request, response) => response.end('recorder'));
    await listenOn(recorder);
    cleanups.push(() => void recorder.close());
    daemon.dials.set('100.64.0.3:80', (recorder.address() as AddressInfo).port);
    const tunnel = await api.dial('100.64.0.3', 80, never);
    const body = await new Promise((resolve) => {
      request({ createConnection: () => tunnel, path: '/' })
        .on('response', (response) => response.on('data', (data) => resolve(String(data))))
        .end();
    });
    expect(body).toBe('recorder');
    tunnel.destroy();
  });

  it('treats an address outside the tailnet as an error', async () => {
    daemon.dials.set('127.0.0.1:80', 'self');
    const error = await failureOf(api.dial('127.0.0.1', 80, never));
    expect(error.code).toBe('TAILNET_DIAL_FAILED');
    expect(error.message).toContain('127.0.0.1 port 80 is not an address of this tailnet');
  });

  it('takes no other upgrade for a tunnel', async () => {
    const other = createServer();
    other.on('upgrade', (_request, socket) => {
      socket.on('error', () => {});
      socket.write('HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n');
    });
    const directory = await mkdtemp(join(tmpdir(), 'local-api-'));
    other.listen(join(directory, 's'));
    await once(other, 'listening');
    cleanups.push(() => rm(directory, { recursive: true }));
    cleanups.push(() => void other.close());
    const dialled = createLocalApi({ socketPath: join(directory, 's') }).dial('100.64.0.2', 80, never);
    expect((await failureOf(dialled)).message).toContain('an upgrade to something else');
  });

  it('asks once more when the daemon had closed an idle connection, and only then', async () => {
    let connections = 0;
    let asked = 0;
    const daemon = createServer((request, response) => {
      asked += 1;
      if (asked === 2 || asked > 3) request.socket.destroy();
      else response.end(JSON.stringify({ BackendState: 'Running' }));
    });
    daemon.on('connection', () => (connections += 1));
    daemon.keepAliveTimeout = 60_000;
    const directory = await mkdtemp(join(tmpdir(), 'local-api-'));
    daemon.listen(join(directory, 's'));
    await once(daemon, 'listening');
    cleanups.push(() => rm(directory, { recursive: true }));
    cleanups.push(() => void daemon.close());
    const idle = createLocalApi({ socketPath: join(directory, 's') });
    await idle.status(never, { peers: false });
    // the server closes the keep-alive connection instead of responding, so the client retries on a new one
    await idle.status(never, { peers: false });
    expect([asked, connections]).toEqual([3, 2]);
    // a request on a new connection is not retried
    expect(await failureOf(idle.status(never, { peers: false }))).toMatchObject({ name: 'TailcastError' });
    expect(asked).toBe(4);
    idle.close();
  });

  it('says why a dial failed', async () => {
    daemon.dials.set('100.64.0.9:80', 'fail');
    expect((await failureOf(api.dial('100.64.0.9', 80, never))).message).toContain('dial failure: refused');
  });

  it('gives up on a port that the policy lets hang', async () => {
    const impatient = createLocalApi({ socketPath: daemon.socketPath, dialTimeoutMs: 30 });
    daemon.dials.set('100.64.0.9:80', 'hang');
    const error = await failureOf(impatient.dial('100.64.0.9', 80, never));
    expect(error.message).toContain('took longer than 30 ms');
  });

  it('stops dialling when told', async () => {
    daemon.dials.set('100.64.0.9:80', 'hang');
    expect((await failureOf(api.dial('100.64.0.9', 80, AbortSignal.abort()))).code).toBe(
      'TAILNET_DIAL_FAILED',
    );
  });

  it('refuses a host that would break out of its header', async () => {
    const error = await failureOf(api.dial('100.64.0.2\r\nDial-Port: 22', 80, never));
    expect(error.code).toBe('TAILNET_DIAL_FAILED');
    expect(daemon.requests).toHaveLength(0);
  });
});

describe('the notification bus', () => {
  it('gives each line as it comes, until the watcher leaves', async () => {
    const watcher = new AbortController();
    const arrived = daemon.nextWatcher();
    const seen: unknown[] = [];
    const done = (async () => {
      for await (const notify of api.watchBus(BUS_MASK.peerChanges, watcher.signal)) {
        seen.push(notify);
        if (seen.length === 2) watcher.abort();
      }
    })();
    await arrived;
    daemon.notify({ SelfChange: { ID: 1 } });
    daemon.notify({ State: 6 });
    await done;
    expect(seen).toHaveLength(2);
    expect(seen[1]).toEqual({ State: 6 });
  });

  it('throws when the daemon hangs up or refuses', async () => {
    const arrived = daemon.nextWatcher();
    const watching = failureOf(drain(api.watchBus(BUS_MASK.peerChanges, never)));
    await arrived;
    daemon.dropWatchers();
    expect((await watching).code).toBe('TAILNET_UNAVAILABLE');
    expect((await failureOf(drain(api.watchBus(256 | 4096, never)))).message).toContain('rate limit');
  });
});

async function drain(source: AsyncIterable<unknown>): Promise<void> {
  for await (const item of source) void item;
}
