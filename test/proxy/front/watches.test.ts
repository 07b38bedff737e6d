import { once } from 'node:events';
import {
  constants,
  createSecureServer,
  type Http2SecureServer,
  type ServerHttp2Session,
  type ServerHttp2Stream,
  type Settings,
} from 'node:http2';
import type { AddressInfo } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { afterEach, describe, expect, it } from 'vitest';
import type { Identity } from '../../../src/tailnet/identity.ts';
import {
  createClient,
  openRig,
  person,
  rawClient,
  valuesOf,
  type Client,
  type OpenAnswer,
  type Rig,
  type RigOptions,
} from '../rig.ts';

const cleanups: (() => Promise<void> | void)[] = [];
afterEach(async () => {
  for (const cleanup of cleanups.splice(0).reverse()) await cleanup();
});

interface Asked {
  readonly stream: ServerHttp2Stream;
  readonly session: ServerHttp2Session;
  /** Flat, as received. */
  readonly fields: readonly string[];
}

interface ApiServer {
  readonly port: number;
  readonly sessions: ServerHttp2Session[];
  readonly asked: Asked[];
  /** Requests over HTTP/1.1. */
  alone: number;
  readonly rig: Rig;
  /** A client's watch that is under way. */
  watch(client?: Client, path?: string): Promise<OpenAnswer>;
}

interface ServerOptions {
  readonly settings?: Settings;
  /** Default: a head, and nothing after it. */
  readonly answer?: (asked: Asked) => void;
  readonly rig?: Partial<RigOptions>;
}

const WATCH = '/api/v1/pods?watch=true';
const begin = ({ stream }: Asked): void =>
  stream.respond({ ':status': 200, 'content-type': 'application/json' });

/** An API server that speaks both protocols, and a gateway in front of it whose watches all share. */
async function apiServer({
  settings = {},
  answer = begin,
  rig: options = {},
}: ServerOptions = {}): Promise<ApiServer> {
  // the rig of a test has one authority for all
  const probe = await openRig({ upstream: () => {} });
  await probe.close();
  const { key, cert } = probe.pki;
  const server: Http2SecureServer = createSecureServer({
    key,
    cert,
    allowHTTP1: true,
    settings,
    requestCert: true,
    rejectUnauthorized: false,
  });
  const sessions: ServerHttp2Session[] = [];
  const asked: Asked[] = [];
  server.on('session', (session) => {
    sessions.push(session);
    session.on('error', () => {});
  });
  server.on('stream', (stream: ServerHttp2Stream, _headers, _flags, raw: string[]) => {
    stream.on('error', () => {});
    const one: Asked = { stream, session: stream.session as ServerHttp2Session, fields: raw };
    asked.push(one);
    answer(one);
  });
  server.on('request', (request, response) => {
    if (request.httpVersionMajor === 2) return;
    found.alone += 1;
    response.writeHead(200);
    if (request.method === 'HEAD') response.end();
    else response.write('{}\n');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  const rig = await openRig({ upstream: () => {}, upstreamPort: port, shareAfter: 0, ...options });
  cleanups.push(async () => {
    await rig.close();
    for (const session of sessions) session.destroy();
    const closed = once(server, 'close');
    server.close();
    await closed;
  });
  const found: ApiServer = {
    port,
    sessions,
    asked,
    alone: 0,
    rig,
    watch: (client = clientOf(rig, 'h1'), path = WATCH) => client.open({ path }),
  };
  return found;
}

function clientOf(rig: Rig, name: 'h1' | 'h2'): Client {
  const client = createClient(name, rig);
  cleanups.push(() => client.close());
  return client;
}

/** Reads what a watch brings until there are so many bytes of it. */
function reader({ body }: OpenAnswer): (bytes: number) => Promise<string> {
  let text = '';
  body.on('data', (chunk: Buffer) => (text += chunk.toString('latin1')));
  return async (bytes) => {
    await expect.poll(() => text.length, { timeout: 10_000 }).toBeGreaterThanOrEqual(bytes);
    return text;
  };
}

const gauge = async (rig: Rig, name: string): Promise<number | undefined> =>
  (await rig.metrics.registry.getSingleMetric(name)?.get())?.values[0]?.value;

describe.each(['h1', 'h2'] as const)('watches that share a connection, over %s', (protocol) => {
  it('each get their own events, and their end', async () => {
    const upstream = await apiServer();
    const client = clientOf(upstream.rig, protocol);
    const open = await Promise.all(
      Array.from({ length: 10 }, (_, index) => upstream.watch(client, `${WATCH}&n=${index}`)),
    );
    expect(upstream.sessions).toHaveLength(1);
    expect(upstream.alone).toBe(0);
    expect(await gauge(upstream.rig, 'tailcast_watches_shared')).toBe(10);
    expect(await gauge(upstream.rig, 'tailcast_upstream_connections_shared')).toBe(1);
    const rests = open.map((watch) => watch.rest());
    for (const event of ['first', 'second'])
      for (const { stream, fields } of upstream.asked)
        stream.write(`${event} of ${valuesOf(fields, ':path')[0]}\n`);
    for (const { stream } of upstream.asked) stream.end();
    const bodies = await Promise.all(rests);
    expect(bodies.map(String)).toEqual(
      open.map((_, index) => `first of ${WATCH}&n=${index}\nsecond of ${WATCH}&n=${index}\n`),
    );
    expect(open[0]!.status).toBe(200);
    expect(valuesOf(open[0]!.rawHeaders, 'content-type')).toEqual(['application/json']);
    await expect.poll(() => gauge(upstream.rig, 'tailcast_watches')).toBe(0);
    expect(upstream.rig.access.map(({ status, responseBytes }) => [status, responseBytes])).toEqual(
      bodies.map((body) => [200, body.length]),
    );
  });

  it('get an answer that is none, with its length', async () => {
    const status = JSON.stringify({ kind: 'Status', code: 410, reason: 'Expired' });
    const upstream = await apiServer({
      answer: ({ stream }) => {
        stream.respond({ ':status': 410, 'content-length': status.length });
        stream.end(status);
      },
    });
    const answer = await clientOf(upstream.rig, protocol).ask({ path: WATCH });
    expect([answer.status, answer.body.toString()]).toEqual([410, status]);
    expect(valuesOf(answer.rawHeaders, 'content-length')).toEqual([String(status.length)]);
  });

  it.each([
    ['breaks off', ({ stream }: Asked) => stream.close(constants.NGHTTP2_INTERNAL_ERROR)],
    ['is cancelled', ({ stream }: Asked) => stream.close(constants.NGHTTP2_CANCEL)],
    ['loses its connection', ({ session }: Asked) => session.socket.destroy()],
    ['loses its session', ({ session }: Asked) => session.destroy()],
  ] as const)('are cut when a stream %s', async (_what, end) => {
    const upstream = await apiServer();
    const client = clientOf(upstream.rig, protocol);
    const watch = await upstream.watch(client);
    const rest = watch.rest();
    upstream.asked[0]!.stream.write('half');
    await expect.poll(() => upstream.rig.access.length + watch.status).toBe(200);
    end(upstream.asked[0]!);
    await expect(rest).rejects.toThrow(/aborted|reset|NGHTTP2/);
    await expect.poll(() => upstream.rig.access.map(({ error }) => error)).toEqual(['UPSTREAM_BROKEN']);
    // the next one has a new connection, or the one that is left
    await upstream.watch(client);
    expect(upstream.asked).toHaveLength(2);
  });

  it('end at the API server when their client leaves, and the others go on', async () => {
    const upstream = await apiServer();
    const client = clientOf(upstream.rig, protocol);
    const [leaving, staying] = await Promise.all([
      upstream.watch(client, `${WATCH}&n=1`),
      upstream.watch(client),
    ]);
    const of = (text: string): Asked =>
      upstream.asked.find(({ fields }) => valuesOf(fields, ':path')[0] === text)!;
    leaving.body.on('error', () => {});
    leaving.abort();
    await once(of(`${WATCH}&n=1`).stream, 'close');
    expect(of(`${WATCH}&n=1`).stream.rstCode).toBe(constants.NGHTTP2_CANCEL);
    of(WATCH).stream.write('still');
    expect(await reader(staying)(5)).toBe('still');
    expect(await gauge(upstream.rig, 'tailcast_watches')).toBe(1);
  });
});

describe('callers that share a connection', () => {
  it('are each asked for by their own name, however their requests are mixed', async () => {
    const people = new Map<number, Identity>();
    const upstream = await apiServer({
      answer: ({ stream, fields }) => {
        stream.respond({ ':status': 200 });
        stream.end(
          `${valuesOf(fields, 'impersonate-user')[0]} ${valuesOf(fields, 'impersonate-group').join()}`,
        );
      },
      rig: {
        identities: {
          // later callers are known sooner
          whois: async ({ port }) => {
            const identity = people.get(port)!;
            for (let turns = 40 - people.size; turns > 0; turns--) await new Promise(setImmediate);
            return identity;
          },
        },
      },
    });
    const clients = await Promise.all(Array.from({ length: 24 }, () => rawClient(upstream.rig)));
    cleanups.push(() => clients.forEach(({ socket }) => socket.destroy()));
    for (const [index, { socket }] of clients.entries()) {
      const groups = Array.from({ length: 1 + (index % 3) }, (_, group) => `g${index}-${group}`);
      people.set(socket.localPort ?? 0, {
        ...person([{ impersonate: { groups } }]),
        nodeId: `n${index}`,
        login: `user${index}@example.com`,
      } as Identity);
    }
    const ask = `GET ${WATCH} HTTP/1.1\r\nHost: a\r\nImpersonate-User: root\r\nImpersonate-Group: system:masters\r\nAuthorization: Bearer stolen\r\n\r\n`;
    for (const round of [1, 2, 3]) {
      for (const { socket } of clients) socket.write(ask);
      const texts = await Promise.all(
        clients.map((client) => client.until((text) => text.split('\r\n0\r\n\r\n').length > round)),
      );
      for (const [index, text] of texts.entries()) {
        const groups = Array.from({ length: 1 + (index % 3) }, (_, group) => `g${index}-${group}`).join();
        expect(text.match(/user\d+@example\.com [^\r]*/g)).toEqual(
          Array.from({ length: round }, () => `user${index}@example.com ${groups}`),
        );
      }
    }
    expect(upstream.sessions).toHaveLength(1);
    expect(upstream.asked).toHaveLength(72);
    for (const { fields } of upstream.asked) {
      expect(valuesOf(fields, 'impersonate-user')).toHaveLength(1);
      expect(valuesOf(fields, 'authorization')).toEqual(['Bearer gateway-token']);
      expect(fields.join()).not.toMatch(/root|system:masters|stolen/);
    }
  });

  it('send the fields that a connection of their own would', async () => {
    const upstream = await apiServer();
    await clientOf(upstream.rig, 'h1').open({
      path: WATCH,
      headers: [
        'Accept',
        'application/json;stream=watch',
        'X-Two',
        '\xe9',
        'Cookie',
        'a=b',
        'Connection',
        'close',
      ],
    });
    expect(upstream.asked[0]!.fields).toEqual([
      ':method',
      'GET',
      ':scheme',
      'https',
      ':authority',
      'kubernetes.test',
      ':path',
      WATCH,
      'accept',
      'application/json;stream=watch',
      'x-two',
      '\xe9',
      'authorization',
      'Bearer gateway-token',
      'audit-id',
      'request-id',
      'impersonate-user',
      'alice@example.com',
      'impersonate-group',
      'devs',
    ]);
  });
});

describe('which connection a watch goes over', () => {
  it('is its own until there are so many', async () => {
    const upstream = await apiServer({ rig: { shareAfter: 2 } });
    const client = clientOf(upstream.rig, 'h1');
    for (let count = 0; count < 5; count++) await upstream.watch(client);
    expect([upstream.alone, upstream.asked.length, upstream.sessions.length]).toEqual([2, 3, 1]);
    expect(await gauge(upstream.rig, 'tailcast_watches')).toBe(5);
    expect(await gauge(upstream.rig, 'tailcast_watches_shared')).toBe(3);
  });

  it('is its own for what is no watch, has a long head or says a thing twice', async () => {
    const upstream = await apiServer();
    const client = clientOf(upstream.rig, 'h1');
    await client.open({ path: '/api/v1/pods' });
    await client.open({ path: '/api/v1/namespaces/a/pods/b/log?follow=true' });
    // as its answer shows: over HTTP/1.1 this API server takes no more than 16 KB
    const long = await client.open({ path: WATCH, headers: ['X-Long', 'x'.repeat(17_000)] });
    expect(long.status).toBe(431);
    await client.open({ path: WATCH, headers: ['X-Twice', 'a', 'X-Twice', 'b'] });
    expect((await client.open({ path: WATCH, method: 'HEAD' })).status).toBe(200);
    expect([upstream.alone, upstream.asked.length]).toEqual([4, 0]);
  });

  it('is its own where the API server speaks no HTTP/2', async () => {
    const rig = await openRig({
      shareAfter: 0,
      upstream: ({ socket }) =>
        socket.on('data', () =>
          socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n'),
        ),
    });
    cleanups.push(() => rig.close());
    const client = clientOf(rig, 'h1');
    const open = await Promise.all([client.open({ path: WATCH }), client.open({ path: WATCH })]);
    for (const watch of open) expect(await reader(watch)(2)).toBe('ok');
    // asked once, and then not again for a while
    const connections = rig.upstreams.length;
    expect(await reader(await client.open({ path: WATCH }))(2)).toBe('ok');
    expect(rig.upstreams.length).toBe(connections + 1);
    expect(rig.pool.size.total).toBe(3);
  });

  it.each([
    [3, 7, 3],
    [0, 2, 2],
  ])(
    'follows from what the API server allows: %i streams',
    async (maxConcurrentStreams, count, connections) => {
      const upstream = await apiServer({ settings: { maxConcurrentStreams } });
      const client = clientOf(upstream.rig, 'h1');
      const open = await Promise.all(Array.from({ length: count }, () => upstream.watch(client)));
      expect(open.map(({ status }) => status)).toEqual(Array.from({ length: count }, () => 200));
      if (maxConcurrentStreams === 0) expect(upstream.alone).toBe(connections);
      else expect(upstream.sessions).toHaveLength(connections);
    },
  );

  it('answers 502 when nobody is there, and counts nothing', async () => {
    const upstream = await apiServer({ rig: { upstreamPort: 1 } });
    const answer = await clientOf(upstream.rig, 'h1').ask({ path: WATCH });
    expect(answer.status).toBe(502);
    await expect.poll(() => gauge(upstream.rig, 'tailcast_watches')).toBe(0);
    expect(await gauge(upstream.rig, 'tailcast_watches_shared')).toBe(0);
  });
});

describe('a shared connection', () => {
  it('that the API server wants to be rid of keeps its watches and takes no more', async () => {
    const upstream = await apiServer();
    const client = clientOf(upstream.rig, 'h1');
    const first = await upstream.watch(client);
    upstream.sessions[0]!.goaway(constants.NGHTTP2_NO_ERROR);
    await expect
      .poll(async () => {
        await upstream.watch(client);
        return upstream.sessions.length;
      })
      .toBe(2);
    const read = reader(first);
    upstream.asked[0]!.stream.write('still');
    expect(await read(5)).toBe('still');
    const gone = once(upstream.sessions[0]!, 'close');
    for (const { stream, session } of upstream.asked) if (session === upstream.sessions[0]) stream.end();
    await gone;
    expect(upstream.sessions[1]!.closed).toBe(false);
  });

  it('that refuses a stream is asked once more', async () => {
    let refusals = 1;
    const upstream = await apiServer({
      answer: (asked) => {
        if (refusals-- > 0) asked.stream.close(constants.NGHTTP2_REFUSED_STREAM);
        else begin(asked);
      },
    });
    expect((await upstream.watch()).status).toBe(200);
    refusals = 2;
    const answer = await clientOf(upstream.rig, 'h1').ask({ path: WATCH });
    expect([answer.status, upstream.asked.length]).toEqual([502, 4]);
  });

  it('goes on for the others while one does not read, and holds no more than a window for it', async () => {
    const upstream = await apiServer();
    const slow = await rawClient(upstream.rig);
    cleanups.push(() => void slow.socket.destroy());
    slow.socket.pause();
    slow.socket.write(`GET ${WATCH} HTTP/1.1\r\nHost: a\r\n\r\n`);
    await expect.poll(() => upstream.asked.length).toBe(1);
    const other = await upstream.watch();
    const read = reader(other);
    const [{ stream: stalled }, { stream: going }] = upstream.asked as [Asked, Asked];
    const piece = Buffer.alloc(16 * 1024);
    const total = 64 * 2 ** 20;
    let sent = 0;
    const send = (): void => {
      while (sent < total) {
        sent += piece.length;
        if (!stalled.write(piece)) return;
      }
    };
    stalled.on('drain', send);
    send();
    for (let count = 1; count <= 50; count++) {
      going.write('event\n');
      await read(count * 6);
    }
    // the kernel's buffers of two sockets, and here a window
    expect(sent).toBeLessThan(16 * 2 ** 20);
    slow.socket.resume();
    await expect.poll(() => sent, { timeout: 20_000 }).toBe(total);
  });

  it('is closed when it has had no watch for a while', async () => {
    const upstream = await apiServer({ rig: { shared: { idleMs: 40 } } });
    const watch = await upstream.watch();
    const rest = watch.rest();
    upstream.asked[0]!.stream.end();
    await rest;
    await once(upstream.sessions[0]!, 'close');
    await expect.poll(() => gauge(upstream.rig, 'tailcast_upstream_connections_shared')).toBe(0);
    expect((await upstream.watch()).status).toBe(200);
    expect(upstream.sessions).toHaveLength(2);
  });

  it('takes no new watches when it is old', async () => {
    const upstream = await apiServer({ rig: { shared: { maxAgeMs: 0 } } });
    const client = clientOf(upstream.rig, 'h1');
    const open = await Promise.all([upstream.watch(client), upstream.watch(client)]);
    expect(open).toHaveLength(2);
  });

  it('takes no new watches once its credentials have been replaced, and ends with the last it has', async () => {
    const upstream = await apiServer();
    const client = clientOf(upstream.rig, 'h1');
    const before = await upstream.watch(client);
    const { ca, key, cert } = upstream.rig.pki;
    upstream.rig.rotate({ ca, key, cert });
    await Promise.all([upstream.watch(client), upstream.watch(client)]);
    const [old, fresh] = upstream.sessions as [ServerHttp2Session, ServerHttp2Session];
    expect(upstream.asked.map(({ session }) => session)).toEqual([old, fresh, fresh]);
    const presents = ({ socket }: ServerHttp2Session): boolean =>
      Object.keys((socket as TLSSocket).getPeerCertificate()).length > 0;
    expect([old, fresh].map(presents)).toEqual([false, true]);
    const read = reader(before);
    upstream.asked[0]!.stream.write('still');
    expect(await read(5)).toBe('still');
    const gone = once(old, 'close');
    upstream.asked[0]!.stream.end();
    await gone;
    expect(fresh.closed).toBe(false);
    await expect.poll(() => gauge(upstream.rig, 'tailcast_upstream_connections_shared')).toBe(1);
  });

  it('ends with the gateway', async () => {
    const upstream = await apiServer();
    const watch = await upstream.watch();
    watch.body.on('error', () => {});
    const gone = once(upstream.sessions[0]!, 'close');
    await upstream.rig.proxy.drain(50);
    await gone;
    expect(upstream.rig.access).toHaveLength(1);
  });
});
