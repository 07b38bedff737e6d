import { createServer as createPlain } from 'node:http';
import { constants, createServer as createHttp2, type ServerHttp2Stream } from 'node:http2';
import { createServer as createTcp, type AddressInfo, type Server, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import { createServer as createTls } from 'node:tls';
import { afterEach, describe, expect, it } from 'vitest';
import {
  createUpstreams,
  type ServiceAnswer,
  type ServiceQuestion,
  type UpstreamLimits,
} from '../../src/ingress/upstreams.ts';
import { createTestAuthority } from '../support/issued-certificates.ts';
import { listenOn } from '../support/listen.ts';

it.each([
  ['HTTP/1.1', false],
  ['HTTP/2', true],
])(
  'a Service that says nothing for so long is given up, by %s, before its answer and in it',
  async (_what, http2) => {
    const server = http2
      ? createHttp2((request, response) => {
          if (request.url === '/begun') response.write('begun');
        })
      : createPlain((request, response) => {
          if (request.url === '/begun') response.write('begun');
        });
    await listenOn(server);
    const upstreams = createUpstreams({ idleMs: 200 });
    const { signal } = new AbortController();
    const { port } = server.address() as AddressInfo;
    const question = (path: string): ServiceQuestion => ({
      upstream: `http://127.0.0.1:${port}`,
      method: 'GET',
      path,
      fields: ['host', 'shop.example.org'],
      body: undefined,
      http2,
    });
    try {
      await expect(upstreams.ask(question('/silent'), signal)).rejects.toThrow('silent for 200 ms');
      const { status, body } = await upstreams.ask(question('/begun'), signal);
      expect(status).toBe(200);
      await expect(body.setEncoding('utf8').toArray()).rejects.toThrow(/silent for 200 ms|aborted/);
    } finally {
      upstreams.close();
      server.close();
    }
  },
);

describe('a Service that closes a connection at the moment it is asked over it', () => {
  const closings: (() => void)[] = [];
  afterEach(() => {
    for (const close of closings.splice(0)) close();
  });

  interface Service {
    /** For each request: method, path, and number of the connection. */
    readonly asked: string[];
    ask(change: Partial<ServiceQuestion>): Promise<ServiceAnswer>;
  }

  /**
   * Starts a Service, and sends it one request, to which it responds. Later requests on the same connection are passed
   * to `act`. `others` handles requests on other connections.
   */
  async function service({
    act = (socket) => void socket.destroy(),
    others = answer,
    secure = false,
  }: {
    readonly act?: (socket: Socket) => void;
    readonly others?: (socket: Socket) => void;
    readonly secure?: boolean;
  } = {}): Promise<Service> {
    const asked: string[] = [];
    let connections = 0;
    const serve = (socket: Socket): void => {
      connections += 1;
      const number = connections;
      let requests = 0;
      socket.on('error', () => {});
      socket.setEncoding('latin1').on('data', (chunk: string) => {
        for (const [line] of chunk.matchAll(/^[A-Z]+ \S+(?= HTTP)/gm)) {
          requests += 1;
          asked.push(`${line} ${number}`);
          (number > 1 ? others : requests > 1 ? act : answer)(socket);
        }
      });
      closings.push(() => socket.destroy());
    };
    let server: Server;
    if (secure) {
      const { certificatePem, keyPem } = await (await createTestAuthority()).issue(['localhost']);
      server = createTls({ cert: certificatePem, key: keyPem }, serve);
    } else server = createTcp(serve);
    await listenOn(server);
    const upstreams = createUpstreams();
    closings.push(
      () => server.close(),
      () => upstreams.close(),
    );
    const { port } = server.address() as AddressInfo;
    const { signal } = new AbortController();
    const ask = (change: Partial<ServiceQuestion>): Promise<ServiceAnswer> =>
      upstreams.ask(
        {
          upstream: `${secure ? 'https+insecure' : 'http'}://127.0.0.1:${port}`,
          method: 'GET',
          path: '/two',
          fields: ['host', 'shop.example.org'],
          body: undefined,
          http2: false,
          ...change,
        },
        signal,
      );
    const first = await ask({ path: '/one' });
    await first.body.toArray();
    return { asked, ask };
  }

  const answer = (socket: Socket): void => void socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n');

  it.each([
    ['GET', 'closes it', {}],
    ['HEAD', 'closes it', {}],
    ['GET', 'ends it', { act: (socket: Socket): void => void socket.end() }],
    ['GET', 'resets it', { act: (socket: Socket): void => void socket.resetAndDestroy() }],
    ['GET', 'closes it, by TLS', { secure: true }],
  ] as const)('gets a %s once more, over another connection, when it %s', async (method, _how, options) => {
    const { asked, ask } = await service(options);
    expect((await ask({ method })).status).toBe(200);
    expect(asked).toEqual(['GET /one 1', `${method} /two 1`, `${method} /two 2`]);
  });

  it('is asked no third time', async () => {
    const { asked, ask } = await service({ others: (socket) => void socket.destroy() });
    await expect(ask({})).rejects.toMatchObject({ code: 'ECONNRESET' });
    expect(asked).toEqual(['GET /one 1', 'GET /two 1', 'GET /two 2']);
  });

  it.each([
    ['a request with a body', { body: Readable.from(['x']), fields: ['host', 'a', 'content-length', '1'] }],
    ['a POST', { method: 'POST', fields: ['host', 'a', 'content-length', '0'] }],
    ['a DELETE', { method: 'DELETE' }],
  ])('gets %s once', async (_what, change) => {
    const { asked, ask } = await service();
    await expect(ask(change)).rejects.toThrow('socket hang up');
    expect(asked).toHaveLength(2);
  });

  it.each([
    ['a byte of an answer', 'H', false],
    ['half a head', 'HTTP/1.1 200 OK\r\nContent-Le', false],
    ['an interim answer', 'HTTP/1.1 103 Early Hints\r\n\r\n', false],
    ['a byte of an answer, by TLS', 'H', true],
  ])('is asked once when it has said %s', async (_what, said, secure) => {
    const { asked, ask } = await service({ act: (socket) => void socket.end(said, 'latin1'), secure });
    await expect(ask({})).rejects.toThrow(/socket hang up|Parse Error/);
    expect(asked).toEqual(['GET /one 1', 'GET /two 1']);
  });

  it('is asked once over a connection that nobody has used before', async () => {
    const { asked, ask } = await service({ act: () => {}, others: (socket) => void socket.destroy() });
    // this request uses the existing keep-alive connection
    const stays = ask({ path: '/stays' });
    await expect(ask({})).rejects.toMatchObject({ code: 'ECONNRESET' });
    expect(asked.toSorted()).toEqual(['GET /one 1', 'GET /stays 1', 'GET /two 2']);
    for (const close of closings.splice(0)) close();
    await expect(stays).rejects.toThrow('ECONNREFUSED');
  });
});

describe('a Service that speaks HTTP/2', () => {
  const closings: (() => void)[] = [];
  afterEach(() => {
    for (const close of closings.splice(0)) close();
  });

  interface Service {
    /** For each request: method, path, and number of the connection. */
    readonly asked: string[];
    ask(change?: Partial<ServiceQuestion>): Promise<ServiceAnswer>;
  }

  /** Responds to every path except `/two`, which `act` handles. */
  async function service(
    act: (stream: ServerHttp2Stream, connection: number) => void,
    limits: UpstreamLimits = {},
  ): Promise<Service> {
    const asked: string[] = [];
    const connections: unknown[] = [];
    const server = createHttp2();
    server.on('session', (session) => {
      connections.push(session);
      session.on('error', () => {});
      closings.push(() => session.destroy());
    });
    server.on('stream', (stream: ServerHttp2Stream, { ':method': method, ':path': path }) => {
      const connection = connections.indexOf(stream.session) + 1;
      asked.push(`${method} ${path} ${connection}`);
      stream.on('error', () => {});
      if (path === '/two') act(stream, connection);
      else answer(stream);
    });
    await listenOn(server);
    const upstreams = createUpstreams(limits);
    closings.push(
      () => server.close(),
      () => upstreams.close(),
    );
    const { port } = server.address() as AddressInfo;
    const common = { upstream: `http://127.0.0.1:${port}`, method: 'GET', path: '/two', http2: true };
    const { signal } = new AbortController();
    return {
      asked,
      ask: (change) =>
        upstreams.ask(
          { ...common, fields: ['host', 'shop.example.org'], body: undefined, ...change },
          signal,
        ),
    };
  }

  const answer = (stream: ServerHttp2Stream): void => {
    stream.respond({ ':status': 200 });
    stream.end();
  };
  const onFirst =
    (act: (stream: ServerHttp2Stream) => void) =>
    (stream: ServerHttp2Stream, connection: number): void =>
      connection === 1 ? act(stream) : answer(stream);
  const leave = (stream: ServerHttp2Stream): void => void stream.session!.socket.destroy();
  const goAway =
    (code: number) =>
    (stream: ServerHttp2Stream): void =>
      stream.session!.goaway(code, stream.id! - 2);
  const refuse = (stream: ServerHttp2Stream): void => stream.close(constants.NGHTTP2_REFUSED_STREAM);

  it.each([
    ['GET', 'leaves', leave],
    ['GET', 'refuses the request', refuse],
    ['POST', 'refuses the request', refuse],
    ['POST', 'goes away before it', goAway(constants.NGHTTP2_NO_ERROR)],
    ['DELETE', 'goes away before it for too many', goAway(constants.NGHTTP2_ENHANCE_YOUR_CALM)],
  ])('gets a %s once more, over another connection, when it %s', async (method, _how, act) => {
    const { asked, ask } = await service(onFirst(act));
    expect((await ask({ path: '/one' })).status).toBe(200);
    expect((await ask({ method })).status).toBe(200);
    expect(asked).toEqual(['GET /one 1', `${method} /two 1`, `${method} /two 2`]);
  });

  it.each([
    ['leaves', leave],
    ['refuses the request', refuse],
  ])('is asked no third time when it %s again', async (_how, act) => {
    const { asked, ask } = await service(act);
    await ask({ path: '/one' });
    await expect(ask()).rejects.toThrow(/closed/);
    expect(asked).toEqual(['GET /one 1', 'GET /two 1', 'GET /two 2']);
  });

  it('is asked over a new connection once it has gone away', async () => {
    const { asked, ask } = await service((stream) => {
      answer(stream);
      stream.session!.goaway();
    });
    await (await ask()).body.toArray();
    await (await ask({ path: '/three' })).body.toArray();
    await (await ask({ path: '/four' })).body.toArray();
    expect(asked).toEqual(['GET /two 1', 'GET /three 2', 'GET /four 2']);
  });

  it.each([
    ['leaves and the request is not safe', leave, { method: 'POST' }],
    ['leaves and the request has a body', leave, { body: Readable.from(['x']) }],
    ['refuses and the request has a body', refuse, { method: 'POST', body: Readable.from(['x']) }],
    ['breaks off', (stream: ServerHttp2Stream): void => stream.close(constants.NGHTTP2_INTERNAL_ERROR), {}],
    [
      'goes away after it and leaves',
      (stream: ServerHttp2Stream): void => {
        stream.session!.goaway(constants.NGHTTP2_NO_ERROR, stream.id);
        stream.close(constants.NGHTTP2_INTERNAL_ERROR);
      },
      {},
    ],
    [
      'has begun to answer',
      (stream: ServerHttp2Stream): void => {
        stream.additionalHeaders({ ':status': 103 });
        setImmediate(() => leave(stream));
      },
      {},
    ],
    ['says nothing for too long', (): void => {}, {}],
  ])('is asked once when it %s', async (_how, act, change) => {
    const { asked, ask } = await service(act, { idleMs: 300 });
    await ask({ path: '/one' });
    await expect(ask(change)).rejects.toThrow(/closed|silent/);
    expect(asked).toHaveLength(2);
  });

  it('is asked once over a connection that nobody has used before', async () => {
    const { asked, ask } = await service(leave);
    await expect(ask()).rejects.toThrow('closed without a response');
    expect(asked).toEqual(['GET /two 1']);
  });
});
