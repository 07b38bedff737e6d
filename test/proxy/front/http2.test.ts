import { once } from 'node:events';
import {
  connect,
  constants,
  createServer,
  type ClientHttp2Session,
  type ClientHttp2Stream,
  type ServerHttp2Stream,
} from 'node:http2';
import type { Socket } from 'node:net';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { framingOf, mapStream } from '../../../src/proxy/front/http2.ts';
import { http2Fields } from '../../../src/http2-fields.ts';
import type { Peer } from '../../../src/tailnet/identity.ts';
import { createClient, http2Client, rigWith, rawClient, type Rig, type RigOptions } from '../rig.ts';
import { listenOn } from '../../support/listen.ts';

async function sessionOf(rig: Rig): Promise<ClientHttp2Session> {
  const session = http2Client(rig);
  onTestFinished(() => session.destroy());
  await once(session, 'remoteSettings');
  return session;
}

/** Simulates a crash of the API server's machine: a reset instead of an orderly end. */
function breakOff(socket: TLSSocket): void {
  const raw = (socket as unknown as { _parent: Socket })._parent;
  raw.resetAndDestroy();
}

/** Returns the pseudo-headers of a request. */
const request = (method = 'GET', path = '/api', scheme = 'https'): string[] => [
  ':method',
  method,
  ':path',
  path,
  ':scheme',
  scheme,
  ':authority',
  'a',
];

const headEnd = (text: string): boolean => text.includes('\r\n\r\n');
const silent = (): void => {};
const okOnce: RigOptions['upstream'] = (connection) => {
  connection.socket.on('data', () => connection.socket.write('HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n'));
};

/** Returns the status of a request with exactly these headers; 0 if the stream is reset instead. */
async function statusOf(session: ClientHttp2Session, fields: readonly string[]): Promise<number> {
  const stream = session.request([...fields], { endStream: true });
  stream.on('error', () => {});
  stream.resume();
  return new Promise((resolve) => {
    stream.on('response', (headers) => resolve(Number(headers[':status'])));
    stream.on('close', () => resolve(0));
  });
}

/** Encodes one HTTP/2 frame (RFC 9113 §4.1). */
function frame(type: number, flags: number, streamId: number, payload: Buffer): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(streamId, 5);
  return Buffer.concat([head, payload]);
}

function closedStream(stream: ClientHttp2Stream): Promise<void> {
  return new Promise((resolve) => stream.on('close', resolve));
}

describe('the headers of a stream', () => {
  const peer = { address: '100.64.0.4', port: 1, source: 'socket' } as const;
  const base = [':method', 'GET', ':path', '/api', ':scheme', 'https'];

  // the current nghttp2 rejects these headers, but the gateway must not rely on nghttp2
  it.each([
    ['two hosts', ['host', 'a', 'host', 'a']],
    ['two hosts beside an authority', [':authority', 'a', 'host', 'a', 'host', 'a']],
  ])('with %s are refused', (_, fields) => {
    expect(mapStream([...base, ...fields], peer).problem).toMatchObject({ code: 'HEADER_REFUSED' });
  });

  it('with one host, or with the same name in `:authority` and `Host`, are accepted', () => {
    for (const fields of [
      ['host', 'a'],
      [':authority', 'a'],
      [':authority', 'a', 'host', 'A'],
    ]) {
      expect(mapStream([...base, ...fields], peer).problem).toBeUndefined();
    }
  });
});

describe('the framing of a stream', () => {
  it.each([
    [[], { kind: 'chunked' }],
    [['content-length', '0'], { kind: 'length', bytes: 0 }],
    [['content-length', '42'], { kind: 'length', bytes: 42 }],
    // the value of one header is the name of another header
    [['x-a', 'content-length', '0x10', '0x10'], { kind: 'chunked' }],
    [['x-a', 'content-length', 'x-b', '7'], { kind: 'chunked' }],
    [['x-a', 'expect', 'content-length', '7'], { kind: 'length', bytes: 7 }],
  ])('of %j is %j', (fields, framing) => {
    expect(framingOf(fields)).toEqual(framing);
  });

  it.each([
    'NaN',
    '0x10',
    '-5',
    '+5',
    '1e400',
    '1e1',
    '',
    ' 5',
    '5 ',
    '5, 5',
    '5.0',
    'Infinity',
    '9007199254740993',
    '٥',
  ])('is invalid with the length %j', (length) => {
    expect(() => framingOf(['content-length', length])).toThrow(
      expect.objectContaining({ code: 'REQUEST_MALFORMED' }),
    );
    const base = request('POST');
    const peer = { address: '100.64.0.4', port: 1, source: 'socket' } as const;
    expect(mapStream([...base, 'content-length', length], peer).problem?.code).toBe('REQUEST_MALFORMED');
  });

  it('is refused with two lengths, or with a transfer coding', () => {
    for (const fields of [
      ['content-length', '5', 'content-length', '5'],
      ['transfer-encoding', 'chunked'],
    ])
      expect(() => framingOf(fields)).toThrow(expect.objectContaining({ code: 'REQUEST_MALFORMED' }));
  });

  it('is the framing that the API server gets, even if header values look like header names', async () => {
    const rig = await rigWith(okOnce);
    const session = await sessionOf(rig);
    const stream = session.request([...request('POST'), 'x-a', 'content-length', '17', 'x-b']);
    stream.on('error', () => {});
    stream.end('GET /evil HTTP/1.1');
    await once(stream, 'response');
    expect(rig.upstreams[0]?.received()).toContain('Transfer-Encoding: chunked\r\n');
    expect(rig.upstreams[0]?.received()).not.toContain('Content-Length');
    stream.close();
  });
});

describe('repeated response headers', () => {
  it('are merged if Node sends only one value of the header', async () => {
    const names = Object.entries(constants)
      .filter(([key]) => key.startsWith('HTTP2_HEADER_'))
      .map(([, name]) => String(name))
      .filter((name) => !name.startsWith(':'));
    expect(names.length).toBeGreaterThan(50);
    const server = createServer();
    const refused: string[] = [];
    server.on('stream', (stream: ServerHttp2Stream) => {
      stream.on('error', () => {});
      for (const name of names) {
        const fields = http2Fields([name, 'a', name, 'b', 'X-Other', 'c']);
        const headers: Record<string, string[]> = {};
        for (let index = 0; index < fields.length; index += 2)
          (headers[fields[index] ?? ''] ??= []).push(fields[index + 1] ?? '');
        try {
          stream.additionalHeaders({ ':status': 103, ...headers });
        } catch {
          refused.push(name);
        }
      }
      stream.close();
    });
    const client = connect(`http://127.0.0.1:${await listenOn(server)}`);
    const stream = client.request({ ':path': '/' });
    client.on('error', () => {});
    stream.on('error', () => {});
    stream.resume();
    await closedStream(stream);
    client.destroy();
    server.close();
    expect(refused).toEqual([]);
  });
});

describe('HTTP/2 sessions', () => {
  it('announce their limits and no extended CONNECT', async () => {
    const session = await sessionOf(await rigWith(silent));
    expect(session.remoteSettings).toMatchObject({
      maxConcurrentStreams: 250,
      initialWindowSize: 1024 * 1024,
      enableConnectProtocol: false,
    });
  });

  it('refuse CONNECT and extended CONNECT without help of the gate', () => {
    const peer: Peer = { address: '127.0.0.1', port: 1, source: 'socket' };
    const connect = mapStream([':method', 'CONNECT', ':authority', 'a:1'], peer);
    expect(connect.problem?.code).toBe('METHOD_REFUSED');
    const extended = mapStream(
      [
        ':method',
        'CONNECT',
        ':protocol',
        'websocket',
        ':scheme',
        'https',
        ':path',
        '/api',
        ':authority',
        'a',
      ],
      peer,
    );
    expect(extended.problem?.code).toBe('METHOD_REFUSED');
    const nameless = mapStream([':method', 'GET', ':scheme', 'https', ':path', '/api'], peer);
    expect(nameless.inbound.rawHeaders).toEqual([]);
  });

  it('join the parts of a split Cookie header where cookies are forwarded', async () => {
    const rig = await rigWith(okOnce, { mode: 'noauth' });
    const session = await sessionOf(rig);
    await statusOf(session, [...request(), 'cookie', 'a=1', 'cookie', 'b=2']);
    expect(rig.upstreams[0]!.received().toLowerCase()).toContain('cookie: a=1; b=2\r\n');
  });

  it('send no connection headers to the API server or to the client', async () => {
    const rig = await rigWith((connection) => {
      connection.socket.once('data', () =>
        connection.socket.write(
          'HTTP/1.1 200 OK\r\nConnection: keep-alive, X-Secret\r\nX-Secret: 1\r\nKeep-Alive: 5\r\nSet-Cookie: ' +
            'a=b\r\nX-Open: yes\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n',
        ),
      );
    });
    const client = createClient('h2', rig);
    onTestFinished(() => client.close());
    const answer = await client.ask({
      path: '/api',
      headers: ['TE', 'trailers', 'Authorization', 'Bearer stolen'],
    });
    expect(answer.rawHeaders.filter((_, index) => index % 2 === 0)).toEqual(['x-open', 'date']);
    expect(answer.body.toString()).toBe('ok');
    expect(rig.upstreams[0]!.received().toLowerCase()).not.toMatch(/te: |stolen/);
  });

  it.each([
    ['with a length', 'HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf'],
    ['in chunks', 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n'],
    ['up to the end of the connection', 'HTTP/1.1 200 OK\r\n\r\nhalf'],
  ])('reset a stream whose response %s breaks off, with an error code', async (_, head) => {
    const rig = await rigWith((connection) => {
      connection.socket.once('data', () => connection.socket.write(head));
    });
    const session = await sessionOf(rig);
    const stream = session.request({ ':path': '/api', ':authority': 'a' });
    stream.on('error', () => {});
    let ended = false;
    stream.on('end', () => (ended = true));
    await new Promise((resolve) => stream.once('data', resolve));
    breakOff(rig.upstreams[0]!.socket);
    await closedStream(stream);
    expect(stream.rstCode).toBe(constants.NGHTTP2_INTERNAL_ERROR);
    expect(ended).toBe(false);
  });

  it('relay a response that arrives before the request body is complete, and then close the stream', async () => {
    const rig = await rigWith((connection) => {
      void connection
        .until((text) => text.includes('first'))
        .then(() => connection.socket.write('HTTP/1.1 413 Too Large\r\nContent-Length: 6\r\n\r\nenough'));
    });
    const session = await sessionOf(rig);
    const stream = session.request({
      ':method': 'POST',
      ':path': '/api',
      ':authority': 'a',
      'content-length': 1_000_000,
    });
    stream.on('error', () => {});
    stream.write('first');
    let body = '';
    stream.on('data', (chunk: Buffer) => (body += chunk.toString()));
    const [headers] = (await once(stream, 'response')) as [Record<string, unknown>];
    await closedStream(stream);
    expect(headers[':status']).toBe(413);
    expect(body).toBe('enough');
    expect(rig.pool.size.total).toBe(0);
  });

  it('end all requests of a lost connection', async () => {
    const rig = await rigWith(silent);
    const session = await sessionOf(rig);
    for (let index = 0; index < 20; index++) {
      session.request({ ':path': `/api/v1/pods?watch=${index}`, ':authority': 'a' }).on('error', () => {});
    }
    await expect.poll(() => rig.upstreams.length).toBe(20);
    session.destroy();
    await Promise.all(rig.upstreams.map(({ closed }) => closed));
    expect(rig.proxy.inFlight).toBe(0);
  });

  it('are closed when streams are opened and reset in a flood', async () => {
    const rig = await rigWith(silent);
    const session = await sessionOf(rig);
    const gone = Promise.race([once(session, 'goaway'), once(session, 'close')]);
    let opened = 0;
    const flood = setInterval(() => {
      for (let index = 0; index < 100 && !session.destroyed && !session.closed; index++) {
        opened += 1;
        const stream = session.request({ ':path': '/api', ':authority': 'a' });
        stream.on('error', () => {});
        stream.close(constants.NGHTTP2_CANCEL);
      }
    }, 5);
    await gone;
    clearInterval(flood);
    expect(opened).toBeGreaterThan(500);
    await expect.poll(() => rig.proxy.inFlight).toBe(0);
  });

  it.each([
    ['PINGs whose answers it does not read', () => frame(6, 0, 0, Buffer.alloc(8))],
    ['SETTINGS whose answers it does not read', () => frame(4, 0, 0, Buffer.from([0, 3, 0, 0, 0, 100]))],
    [
      'CONTINUATION frames without end',
      (index: number) =>
        index === 0 ? frame(1, 0, 1, Buffer.from([0x82])) : frame(9, 0, 1, Buffer.alloc(0)),
    ],
    [
      'empty DATA frames',
      (index: number) =>
        index === 0 ? frame(1, 4, 1, Buffer.from('828684418164', 'hex')) : frame(0, 0, 1, Buffer.alloc(0)),
    ],
  ])('are closed when a client sends %s, and other clients are still served', async (_, next) => {
    const rig = await rigWith(okOnce);
    const flooder = connectTls({
      port: rig.port,
      host: '127.0.0.1',
      servername: 'localhost',
      ca: rig.pki.ca,
      ALPNProtocols: ['h2'],
    });
    flooder.on('error', () => {});
    await once(flooder, 'secureConnect');
    const gone = new Promise<void>((resolve) => flooder.on('close', resolve));
    flooder.pause();
    flooder.write(
      Buffer.concat([Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n'), frame(4, 0, 0, Buffer.alloc(0))]),
    );
    let sent = 0;
    const flood = (): void => {
      while (!flooder.destroyed && sent < 3_000_000) {
        const frames = Array.from({ length: 2000 }, (_frame, index) => next(sent + index));
        sent += 2000;
        if (!flooder.write(Buffer.concat(frames))) break;
      }
    };
    flooder.on('drain', flood);
    flood();
    // this client never reads, so only a failed write shows that the connection is closed
    await gone;
    expect(sent).toBeLessThan(3_000_000);
    const session = await sessionOf(rig);
    expect(await statusOf(session, request())).toBe(200);
  });

  it('pause an upload while the API server does not read', async () => {
    const rig = await rigWith((connection) => {
      void connection.until(headEnd).then(() => connection.socket.pause());
    });
    const session = await sessionOf(rig);
    const stream = session.request({ ':method': 'POST', ':path': '/api', ':authority': 'a' });
    stream.on('error', () => {});
    let sent = 0;
    const block = Buffer.alloc(256 * 1024);
    const pump = (): void => {
      while (sent < 400_000_000) {
        sent += block.length;
        if (!stream.write(block)) break;
      }
    };
    stream.on('drain', pump);
    pump();
    let before = -1;
    await expect
      .poll(
        () => {
          const still = sent === before;
          before = sent;
          return still;
        },
        { interval: 300 },
      )
      .toBe(true);
    expect(sent).toBeLessThan(32_000_000);
    stream.close(constants.NGHTTP2_CANCEL);
    rig.upstreams[0]!.socket.resume();
    await rig.upstreams[0]!.closed;
  });

  it('are refused on a connection that negotiated HTTP/1.1, and vice versa', async () => {
    const rig = await rigWith(silent);
    const h1 = await rawClient(rig);
    h1.socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
    await h1.closed;
    expect(h1.received()).toMatch(/^HTTP\/1\.1 400 /);
    const h2 = connectTls({
      port: rig.port,
      host: '127.0.0.1',
      servername: 'localhost',
      ca: rig.pki.ca,
      ALPNProtocols: ['h2'],
    });
    h2.on('error', () => {});
    await once(h2, 'secureConnect');
    h2.write('GET /api HTTP/1.1\r\nHost: a\r\n\r\n');
    h2.resume();
    await once(h2, 'close');
    expect(rig.upstreams).toHaveLength(0);
  });
});
