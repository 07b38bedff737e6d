/**
 * Checks that the portal disables some default behaviour of `@fastify/http-proxy`, `@fastify/reply-from`, undici and
 * Fastify.
 */
import type { AddressInfo } from 'node:net';
import { createServer, type Socket } from 'node:net';
import { describe, expect, it } from 'vitest';
import { ACCEPTED, startRecorderSpy, type RecorderSpy } from '../support/recorder-spy.ts';
import { CAST, CUT, field, ID, LIST, openPortalRig, stack } from './portal-rig.ts';
import { listenOn } from '../support/listen.ts';

/** All headers of a request as the recorder must receive them. */
const HEAD = [
  ['Host', 'localhost'],
  ['tailscale-user-login', 'alice@example.com'],
  ['x-tailcast-viewer-node', expect.any(String)],
  ['x-tailcast-viewer-node-id', expect.any(String)],
  ['x-tailcast-viewer-address', expect.any(String)],
  ['Connection', 'close'],
];

/** Starts a second recorder. */
async function another(): Promise<RecorderSpy> {
  const recorder = await startRecorderSpy();
  stack.push(() => recorder.close());
  return recorder;
}

/** Starts a recorder that sends exactly these bytes; `%` is replaced by the viewer of the request. */
async function speaking(bytes: string, then: (socket: Socket) => void = () => {}): Promise<string> {
  const server = createServer((socket) => {
    socket.on('error', () => {});
    socket.once('data', (chunk: Buffer) => {
      const viewer = /viewer-node-id: (\S+)/.exec(chunk.toString('latin1'))?.[1] ?? '';
      socket.write(bytes.replaceAll('%', `${ACCEPTED}: ${viewer}\r\n`), () => then(socket));
    });
  });
  await listenOn(server);
  stack.push(() => server.close());
  return `127.0.0.1:${(server.address() as AddressInfo).port}`;
}

describe.each(['h1', 'h2'] as const)('an order over %s', (protocol) => {
  const path = `${LIST}/${ID}/orders/end`;
  const headers = ['Content-Length', '0'];

  it('is a POST, and reaches the recorder that receives the session', async () => {
    const other = await another();
    other.script = (_request, response) => void response.writeHead(409, { 'content-length': 2 }).end('{}');
    const { client, recorder } = await openPortalRig([other.address, 'recorder']);
    recorder.script = (request, response) => {
      const body = JSON.stringify([request.method, request.url]);
      response.writeHead(200, { 'content-length': body.length }).end(body);
    };
    const answer = await client(protocol).ask({ path: `${path}?reason=stop`, method: 'POST', headers });
    expect([answer.status, other.requests.length]).toEqual([200, 1]);
    expect(JSON.parse(answer.body.toString())).toEqual([
      'POST',
      `/api/v1/recordings/${ID}/orders/end?reason=stop`,
    ]);
  });

  it('is refused as a GET, with a body, from a page of another site, and with another name', async () => {
    const { client, recorder } = await openPortalRig();
    const { ask } = client(protocol);
    expect((await ask({ path })).status).toBe(405);
    expect((await ask({ path, method: 'POST', body: '{}' })).status).toBe(400);
    const foreign = [...headers, 'Origin', 'https://evil.example'];
    expect((await ask({ path, method: 'POST', headers: foreign })).status).toBe(403);
    expect((await ask({ path: `${LIST}/${ID}/orders/kill`, method: 'POST', headers })).status).toBe(404);
    expect(recorder.requests).toEqual([]);
  });
});

describe.each(['h1', 'h2'] as const)('a question over %s', (protocol) => {
  it('is asked once, whatever is answered', async () => {
    const { client, recorder } = await openPortalRig();
    for (const [status, fields] of [
      [503, { 'retry-after': '0' }],
      [500, {}],
      [429, { 'retry-after': '0' }],
      [408, {}],
      [301, { location: '/api/v1/events' }],
      [307, { location: 'http://127.0.0.1:1/' }],
    ] as const) {
      recorder.requests.length = 0;
      recorder.script = (_request, response) => {
        response.writeHead(status, { ...fields, 'content-length': 2 });
        response.end('{}');
      };
      const answer = await client(protocol).ask({ path: LIST });
      expect([answer.status, answer.body.toString(), recorder.requests.length]).toEqual([status, '{}', 1]);
      expect(field(answer.rawHeaders, 'location')).toBeUndefined();
      const retryAfter = 'retry-after' in fields ? fields['retry-after'] : undefined;
      expect(field(answer.rawHeaders, 'retry-after')).toBe(retryAfter);
    }
  });

  it('is asked once when the connection breaks before the answer', async () => {
    const { client, recorder } = await openPortalRig();
    recorder.script = (request) => void request.socket.resetAndDestroy();
    const answer = await client(protocol).ask({ path: LIST });
    expect([answer.status, recorder.requests.length]).toEqual([503, 1]);
    expect(JSON.parse(answer.body.toString())).toMatchObject({ kind: 'Status', code: 503 });
  });

  it('has a connection of its own, which ends with it', async () => {
    const { client, recorder } = await openPortalRig();
    const sockets = new Set<unknown>();
    recorder.script = (request, response) => {
      sockets.add(request.socket);
      response.shouldKeepAlive = true;
      response.writeHead(200, { 'content-length': 2, connection: 'keep-alive' });
      response.end('{}');
    };
    const { ask } = client(protocol);
    for (let round = 0; round < 3; round++) expect((await ask({ path: LIST })).status).toBe(200);
    expect(sockets.size).toBe(3);
    for (const { gone } of recorder.requests) await gone;
  });

  it('says nothing that the client said of its connection, its formats or its versions', async () => {
    const { client, recorder } = await openPortalRig();
    const { ask } = client(protocol);
    const hop: readonly (readonly [string, string])[] =
      protocol === 'h2'
        ? [['te', 'trailers']]
        : [
            ['Connection', 'x-tailcast-viewer-node, tailscale-user-login, host'],
            ['TE', 'trailers, gzip'],
            ['Keep-Alive', 'timeout=500'],
            ['Proxy-Connection', 'keep-alive'],
          ];
    for (const [name, value] of [
      ...hop,
      ['Accept-Version', '9.9.9'],
      ['Accept-Encoding', 'br'],
      ['Accept', 'text/html'],
      ['Content-Type', 'no type at all'],
      ['Content-Encoding', 'gzip'],
      ['X-Request-Id', 'mine'],
      ['Request-Id', 'mine'],
      ['Expect', 'something'],
      ['Via', '1.1 me'],
      ['Traceparent', '00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01'],
      ['Range', 'bytes=0-1, lines'],
    ] as const) {
      recorder.requests.length = 0;
      const { status } = await ask({ path: LIST, headers: [name, value] });
      // Node.js rejects an unknown value of `Expect` with 417
      if (name === 'Expect' && status === 417) continue;
      expect([name, status]).toEqual([name, 200]);
      expect(recorder.requests.map(({ headers }) => headers)).toEqual([HEAD]);
    }
  });

  it('has the path of its route and the query as it came', async () => {
    const { client, recorder } = await openPortalRig();
    const { ask } = client(protocol);
    const query = '?b=%2F..%2f&a=+%20&a=/../x&=&&c=//evil.example&d=http://evil.example/';
    for (const [path, asked] of [
      [`${LIST}${query}`, `/api/v1/recordings${query}`],
      [`${LIST}?`, '/api/v1/recordings'],
      [`${CAST}${query}`, `/api/v1/recordings/${ID}/cast${query}`],
      [`${LIST}/${decodeURIComponent(ID)}`, `/api/v1/recordings/${ID}`],
      [`${LIST}/%6e${ID.slice(1)}/notes`, `/api/v1/recordings/${ID}/notes`],
    ] as const) {
      recorder.requests.length = 0;
      expect([path, (await ask({ path })).status]).toEqual([path, 200]);
      expect(recorder.requests.map(({ url }) => url)).toEqual([asked]);
    }
  });

  it('cannot be put by a name of the router, or of the package', async () => {
    const { client, recorder } = await openPortalRig();
    for (const name of ['data', 'data/', 'page', 'live', 'redirect', 'nothing', '*', 'request-1.invalid']) {
      expect((await client(protocol).ask({ path: `/-/recordings/${name}` })).status).toBe(404);
    }
    expect(recorder.requests).toEqual([]);
  });

  it('that is refused is refused with a Status, whatever Fastify thinks of it', async () => {
    const { client, recorder } = await openPortalRig();
    const { ask } = client(protocol);
    const json = ['Content-Type', 'application/json'];
    for (const [method, headers, body, code] of [
      ['POST', json, '{"broken', 405],
      ['POST', ['Content-Type', '/'], 'x', 405],
      ['PUT', ['Content-Type', 'application/x-none'], 'x', 405],
      ['GET', [...json, 'Content-Length', '8'], '{"broken', 400],
      ['GET', [...json, 'Content-Length', '1024'], 'x'.repeat(1024), 400],
      ['QUERY', [], undefined, 405],
      ['PROPFIND', [], undefined, 405],
      ...(protocol === 'h2' ? ([['INVENTED', [], undefined, 405]] as const) : []),
    ] as const) {
      const answer = await ask({ path: LIST, method, headers, ...(body === undefined ? {} : { body }) });
      expect([method, answer.status]).toEqual([method, code]);
      const said: unknown = JSON.parse(answer.body.toString());
      expect(said).toMatchObject({ kind: 'Status', code });
      expect(said).not.toHaveProperty('statusCode');
    }
    expect(recorder.requests).toEqual([]);
  });

  it('ends at the recorder when the client leaves before the answer, and is accounted once', async () => {
    const { client, recorder, log, rig } = await openPortalRig();
    recorder.script = () => undefined;
    const left = new AbortController();
    const asked = client(protocol).ask({ path: LIST, signal: left.signal });
    asked.catch(() => undefined);
    await recorder.until(() => recorder.requests.length === 1);
    left.abort();
    await expect(asked).rejects.toThrow(/abort/i);
    await recorder.requests[0]?.gone;
    await recorder.until(() => rig.proxy.inFlight === 0);
    expect(log).toMatchObject([{ path: LIST, status: 499, responseBytes: 0 }]);
  });
});

describe.each(['h1', 'h2'] as const)('an answer over %s', (protocol) => {
  it('brings back fields that are there once, and nothing of its connection', async () => {
    const { client, recorder } = await openPortalRig();
    recorder.script = (_request, response) => {
      response.setHeader('connection', ['etag, close']);
      response.setHeader('etag', ['"a"', '"b"']);
      response.setHeader('accept-ranges', 'bytes');
      response.setHeader('trailer', 'x-late');
      response.setHeader('content-encoding', 'gzip');
      response.setHeader('keep-alive', 'timeout=1');
      response.setHeader('strict-transport-security', 'max-age=0');
      response.write('{}');
      response.addTrailers({ 'x-late': 'yes', etag: '"late"' });
      response.end();
    };
    const answer = await client(protocol).ask({ path: LIST });
    expect([answer.status, answer.body.toString()]).toEqual([200, '{}']);
    expect(field(answer.rawHeaders, 'accept-ranges')).toBe('bytes');
    for (const name of ['etag', 'trailer', 'content-encoding', 'strict-transport-security', ACCEPTED]) {
      expect(field(answer.rawHeaders, name)).toBeUndefined();
    }
    expect(field(answer.rawHeaders, 'keep-alive')).not.toBe('timeout=1');
    expect(answer.trailers).toEqual([]);
  });

  it('is given out when it says once whom it took for the viewer, and not before', async () => {
    const secret = 'content-length: 6\r\n\r\nsecret';
    for (const [head, code] of [
      [`HTTP/1.1 200 OK\r\n%%${secret}`, 502],
      [`HTTP/1.1 200 OK\r\n${secret}`, 502],
      [`HTTP/1.1 304 Not Modified\r\n\r\n`, 502],
      [`HTTP/1.1 103 Early Hints\r\n%link: </x>\r\n\r\nHTTP/1.1 200 OK\r\n${secret}`, 502],
      [`HTTP/1.1 500 No\r\n${secret}`, 503],
      [`HTTP/1.1 101 Switching Protocols\r\n%upgrade: x\r\nconnection: upgrade\r\n\r\nsecret`, 503],
      [`HTTP/1.1 099 Odd\r\n%${secret}`, 503],
      [`HTTP/1.1 200 OK\r\n%x: ${'a'.repeat(20_000)}\r\n${secret}`, 503],
      [`HTTP/1.1 200 OK\r\n%content-length: 5\r\n${secret}`, 503],
      [`HTTP/1.1 200 OK\r\n%transfer-encoding: chunked\r\n${secret}`, 503],
      // without a length, a client could not detect that the response is incomplete
      ['HTTP/1.1 200 OK\r\n%\r\nsecret', 503],
      ['HTTP/1.0 200 OK\r\n%\r\nsecret', 503],
      ['secret', 503],
    ] as const) {
      const { client } = await openPortalRig([await speaking(head)]);
      const answer = await client(protocol).ask({ path: LIST });
      expect([head, answer.status]).toEqual([head, code]);
      expect(JSON.stringify(answer.rawHeaders) + answer.body.toString()).not.toContain('secret');
      expect(answer.interim).toEqual([]);
    }
  });

  it('keeps nothing of one that was not given out', async () => {
    const recorder = await another();
    const untrusting = await another();
    untrusting.trusting = false;
    untrusting.script = (_request, response) => {
      response.writeHead(200, { etag: '"foreign"', 'content-range': 'bytes 0-1/2', 'content-length': 2 });
      response.end('no');
    };
    const odd = await speaking(`HTTP/1.1 099 Odd\r\n%etag: "odd"\r\ncontent-range: bytes 0-1/2\r\n\r\n`);
    const both = await openPortalRig([untrusting.address, odd, recorder.address]);
    recorder.script = (_request, response) => void response.end('{}');
    const answer = await both.client(protocol).ask({ path: LIST });
    expect([answer.status, answer.body.toString()]).toEqual([200, '{}']);
    expect(field(answer.rawHeaders, 'etag')).toBeUndefined();
    expect(field(answer.rawHeaders, 'content-range')).toBeUndefined();
    const refused = await openPortalRig([odd]);
    const refusal = await refused.client(protocol).ask({ path: LIST });
    expect([refusal.status, field(refusal.rawHeaders, 'etag')]).toEqual([503, undefined]);
  });

  it.each([
    ['with a length', 'content-length: 10\r\n\r\nhalf', false],
    ['in chunks', 'transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n', false],
    ['in chunks, by a reset', 'transfer-encoding: chunked\r\n\r\n4\r\nhalf\r\n', true],
  ])('that breaks off does not look whole: %s', async (_name, rest, reset) => {
    const sockets: Socket[] = [];
    const recorder = await speaking(`HTTP/1.1 200 OK\r\n%${rest}`, (socket) => sockets.push(socket));
    const { client } = await openPortalRig([recorder]);
    const answer = await client(protocol).open({ path: CAST });
    expect(answer.status).toBe(200);
    if (reset) sockets[0]?.resetAndDestroy();
    else sockets[0]?.destroy();
    await expect(answer.rest()).rejects.toThrow(CUT);
  });

  it('may be silent for longer than any of the packages allows by itself', async () => {
    const { client, recorder, dialled } = await openPortalRig();
    recorder.script = (_request, response) => void response.write('half');
    const answer = await client(protocol).open({ path: `${CAST}?follow=1` });
    expect(answer.status).toBe(200);
    expect(dialled.map(({ timeout }) => timeout ?? 0)).toEqual([0]);
    answer.rest().catch(() => undefined);
    answer.abort();
    await recorder.requests[0]?.gone;
  });

  it('is whole however large it is, and no larger than it says', async () => {
    const { client, recorder } = await openPortalRig();
    const large = Buffer.alloc(24 * 1024 * 1024, 'recording ');
    recorder.script = (_request, response) => void response.end(large);
    const { body } = await client(protocol).ask({ path: CAST });
    expect(body.equals(large)).toBe(true);
    const more = await openPortalRig([
      await speaking('HTTP/1.1 200 OK\r\n%content-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n\r\nsmuggled'),
    ]);
    const answer = await more.client(protocol).ask({ path: LIST });
    expect(answer.body.toString()).toBe('{}');
    expect((await more.client(protocol).ask({ path: LIST })).body.toString()).toBe('{}');
  });
});
