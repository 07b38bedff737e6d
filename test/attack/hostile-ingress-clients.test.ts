/**
 * Hostile requests to `tailcast ingress`, over HTTP/1.1 and HTTP/2. The Service must get one request with the caller's
 * identity, or no request. A concurrent request of another user must not be interrupted.
 */
import { once } from 'node:events';
import { connect as connectHttp2, constants, type ClientHttp2Session } from 'node:http2';
import type { Socket } from 'node:net';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { TailcastError } from '../../src/errors.ts';
import {
  ALICE,
  HONEST,
  HOSTILE,
  HOSTILE_RPC,
  openIngressRig,
  type IngressRig,
  type Witness,
} from './ingress-rig.ts';
import {
  encodeBlock,
  encodeFrame,
  encodeRequest,
  exchangeHttp2,
  FLAG,
  FRAME,
  PREFACE,
  type Field,
} from './raw-http2.ts';
import { honestAnswer } from './http2-shapes.ts';

let rig: IngressRig;
let witness: Witness;
const sessions: ClientHttp2Session[] = [];
async function open(options: Parameters<typeof openIngressRig>[0] = {}): Promise<void> {
  rig = await openIngressRig(options);
  witness = await rig.witness();
}
beforeEach(() => open());
afterEach(async () => {
  for (const session of sessions.splice(0)) session.destroy();
  witness.end();
  await rig.close();
});

/** Sends the pieces, and reads all responses until the server closes the connection after the last piece. */
async function send(...pieces: readonly string[]): Promise<string> {
  const socket = await rig.connect('h1');
  for (const piece of pieces) {
    socket.write(piece, 'latin1');
    await new Promise(setImmediate);
  }
  return (await socket.setEncoding('latin1').toArray()).join('');
}
const statuses = (text: string): string =>
  (text.match(/^HTTP\/1\.1 \d{3}/gm) ?? []).map((line) => line.slice(9)).join();
const closed = (one: NodeJS.EventEmitter): Promise<void> =>
  new Promise((resolve) => one.once('close', resolve));
const asked = (): readonly string[] => rig.seen.slice(1).map(({ url = '' }) => url);
const END = `GET /end HTTP/1.1\r\nHost: ${HONEST}\r\nConnection: close\r\n\r\n`;
const get = (fields: string, target = '/x'): string =>
  `GET ${target} HTTP/1.1\r\nHost: ${HONEST}\r\n${fields}\r\n`;

describe('a caller over HTTP/1.1', () => {
  it.each([
    ['two hosts', `GET /x HTTP/1.1\r\nHost: ${HONEST}\r\nHost: ${HOSTILE}\r\n\r\n`, '400'],
    ['no host', 'GET /x HTTP/1.1\r\n\r\n', '400'],
    ['an empty host', 'GET /x HTTP/1.1\r\nHost: \r\n\r\n', '400'],
    ['no host in HTTP/1.0', 'GET /x HTTP/1.0\r\n\r\n', '400'],
    ['a host with more behind it', `GET /x HTTP/1.1\r\nHost: ${HONEST}, ${HOSTILE}\r\n\r\n`, '400'],
    ['a host with a name before it', `GET /x HTTP/1.1\r\nHost: a@${HONEST}\r\n\r\n`, '400'],
    ['a host with a path', `GET /x HTTP/1.1\r\nHost: ${HONEST}/x\r\n\r\n`, '400'],
    ['a host of NUL', `GET /x HTTP/1.1\r\nHost: ${HONEST}\0\r\n\r\n`, '400'],
    ['a host that nobody serves', 'GET /x HTTP/1.1\r\nHost: other.example.org\r\n\r\n', '404'],
    ['another host in its target', `GET http://${HOSTILE}/x HTTP/1.1\r\nHost: ${HONEST}\r\n\r\n`, '400'],
    ['a target of nothing', `OPTIONS * HTTP/1.1\r\nHost: ${HONEST}\r\n\r\n`, '400'],
    ['a part of a page', get('', '/x#/../y'), '400'],
    ['a way out', get('', '/x/../y'), '400'],
    ['a way out in code', get('', '/x/%2e%2E/y'), '400'],
    ['a way out behind a coded slash', get('', '/x%2f..%2fy'), '400'],
    ['a way out with backslashes', get('', '/x\\..\\y'), '400'],
    ['a way out with coded backslashes', get('', '/x%5c..%5Cy'), '400'],
    ['a way out with parameters', get('', '/x/..;a=b/y'), '400'],
    ['a way out with coded parameters', get('', '/x/%2e%2e%3ba/y'), '400'],
    ['a tunnel', `CONNECT ${HONEST}:80 HTTP/1.1\r\nHost: ${HONEST}\r\n\r\n`, ''],
    ['an invalid method', `GE T /x HTTP/1.1\r\nHost: ${HONEST}\r\n\r\n`, '400'],
    ['another version', `GET /x HTTP/2.0\r\nHost: ${HONEST}\r\n\r\n`, '400'],
    ['two lengths', get('Content-Length: 4\r\nContent-Length: 5\r\n'), '400'],
    ['a list of lengths', get('Content-Length: 4, 4\r\n'), '400'],
    ['a length with a sign', get('Content-Length: +4\r\n'), '400'],
    ['a length and chunks', get('Content-Length: 4\r\nTransfer-Encoding: chunked\r\n') + '0\r\n\r\n', '400'],
    ['chunks twice', get('Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n'), '400'],
    ['chunks that are not last', get('Transfer-Encoding: chunked, gzip\r\n'), '400'],
    ['chunks with a tab', get('Transfer-Encoding:\x0bchunked\r\n'), '400'],
    ['a name with a space', get('Content-Length : 4\r\n'), '400'],
    ['a folded line', get('X-A: b\r\n Content-Length: 4\r\n'), '400'],
    ['a bare line feed', get('X-A: b\nContent-Length: 4\r\n'), '400'],
    ['a bare carriage return', get('X-A: b\rContent-Length: 4\r\n'), '400'],
    ['an invalid chunk size', get('Transfer-Encoding: chunked\r\n') + '0x4\r\nbody\r\n0\r\n\r\n', '400'],
    ['a chunk that is too long', get('Transfer-Encoding: chunked\r\n') + '2\r\nbody\r\n0\r\n\r\n', '400'],
    ['an expectation', get('Expect: the unexpected\r\n'), '417'],
    ['no HTTP at all', '\x16\x03\x01\x02\x00\x01\r\n\r\n', '400'],
  ])('with %s is told so, and no Service of it', async (_what, bytes, status) => {
    const text = await send(bytes, END).catch(() => '');
    const [first = ''] = statuses(text).split(',');
    // the server can detect the invalid body only after it has forwarded the request
    if (first !== '502') expect(first).toBe(status);
    expect(asked().filter((url) => !['/end', '/x'].includes(url))).toEqual([]);
    if (status !== '400') expect(asked().filter((url) => url === '/x')).toEqual([]);
    await witness.goesOn();
  });

  it.each([
    'Tailscale-User-Login',
    'tailscale_user_login',
    'TAILSCALE.USER.LOGIN',
    'Tailscale-User_Name',
    'Tailscale-App-Capabilities',
    'Tailscale-Anything',
    'X-Forwarded-For',
    'X_Forwarded_For',
    'X-Forwarded-User',
    'X-Forwarded-Email',
    'X-Forwarded-Prefix',
    'x.forwarded.host',
    'Forwarded',
    'X-Real-IP',
    'X_Real_Ip',
    'Proxy-Authorization',
    'HTTP2-Settings',
    'Upgrade',
    'Keep-Alive',
  ])('who says %s says nothing', async (name) => {
    expect(
      statuses(
        await send(
          get(`${name}: mallory\r\nConnection: close, x-forwarded-for, tailscale-user-login, host\r\n`),
        ),
      ),
    ).toBe('200');
    const { rawHeaders, headers } = rig.seen.at(-1)!;
    expect(rawHeaders.join()).not.toContain('mallory');
    expect(headers).toMatchObject({
      host: HONEST,
      'tailscale-user-login': ALICE.kind === 'user' ? ALICE.login : '',
      'x-forwarded-for': '127.0.0.1',
    });
    await witness.goesOn();
  });

  it('gets as many answers as it asks for, whatever hides in bodies', async () => {
    const hidden = get('', '/hidden');
    const text = await send(
      `POST /a HTTP/1.1\r\nHost: ${HONEST}\r\nContent-Length: ${hidden.length}\r\n\r\n${hidden}`,
      `POST /b HTTP/1.1\r\nHost: ${HONEST}\r\nTransfer-Encoding: ` +
        `chunked\r\n\r\n${hidden.length.toString(16)};a=b\r\n${hidden}\r\n0\r\nContent-Type: c\r\n\r\n`,
      `POST /c HTTP/1.1\r\nHost: ${HONEST}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nContent-Length: ` +
        `${hidden.length}\r\n\r\n${hidden}`,
      END,
    );
    expect(statuses(text)).toBe('200,200,200,200');
    expect(asked()).toEqual(['/a', '/b', '/c', '/end']);
    expect(rig.seen.map(({ method }) => method)).toEqual(['POST', 'POST', 'POST', 'POST', 'GET']);
  });

  it('who breaks off takes its request with it', async () => {
    const socket = await rig.connect('h1');
    socket.write(`POST /half HTTP/1.1\r\nHost: ${HONEST}\r\nContent-Length: 9\r\n\r\nhalf`);
    await expect.poll(() => rig.seen.length).toBe(2);
    const gone = closed(rig.seen[1]!);
    socket.resetAndDestroy();
    await gone;
    expect(rig.seen[1]!.complete).toBe(false);
    await expect.poll(() => rig.server.inFlight).toBe(1);
    await witness.goesOn();
  });

  it.each(['李@example.com', 'a\r\nX-Evil: 1', 'a\0b'])('may be called %j', async (login) => {
    rig.identity = () => Promise.resolve({ ...ALICE, login, displayName: login } as typeof ALICE);
    rig.script = (socket) => void socket.end('HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n');
    expect(statuses(await send(get('Connection: close\r\n')))).toBe('200');
    const said = Buffer.from(login).toString('base64');
    expect(rig.seen.at(-1)!.headers).toMatchObject({ 'tailscale-user-login': `=?utf-8?b?${said}?=` });
    const upgrade = `GET / HTTP/1.1\r\nHost: ${HOSTILE}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`;
    expect(statuses(await send(upgrade))).toBe('403');
    await witness.goesOn();
  });

  it('who wants a WebSocket of a Service that says nothing is told so, and has no place any more', async () => {
    witness.end();
    await rig.close();
    await open({ idleMs: 300 });
    rig.script = () => {};
    const upgrade = `GET / HTTP/1.1\r\nHost: ${HOSTILE}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n`;
    expect(statuses(await send(upgrade))).toBe('502');
    await expect.poll(() => rig.server.inFlight).toBe(0);
  });
});

const HEAD: readonly Field[] = [
  [':method', 'GET'],
  [':scheme', 'https'],
  [':authority', HONEST],
  [':path', '/x'],
];
const withHead = (name: string, value: string): readonly Field[] =>
  HEAD.map(([key, old]) => [key, key === name ? value : old]);

describe('a caller over HTTP/2', () => {
  it.each([
    ['another host', [...HEAD, ['host', HOSTILE]], 400],
    ['no authority', HEAD.filter(([name]) => name !== ':authority'), 0],
    ['an invalid authority', withHead(':authority', `a@${HONEST}`), 0],
    ['a way out', withHead(':path', '/x/%2e./y'), 400],
    ['a part of a page', withHead(':path', '/x#y'), 400],
    ['a target elsewhere', withHead(':path', `http://${HOSTILE}/`), 0],
    [
      'a tunnel',
      [
        [':method', 'CONNECT'],
        [':authority', HONEST],
      ],
      405,
    ],
    ['an invalid method', withHead(':method', 'GE T'), 0],
    ['a path of two lines', withHead(':path', '/x\r\nX-Evil: 1'), 0],
    ['a value of two lines', [...HEAD, ['x-a', 'b\r\nx-evil: 1']], 200],
    ['connection fields', [...HEAD, ['connection', 'close']], 0],
    ['chunks', [...HEAD, ['transfer-encoding', 'chunked']], 0],
    ['capitals', [...HEAD, ['Tailscale-User-Login', 'mallory']], 0],
    ['another name', [...HEAD, ['tailscale-user-login', 'mallory'], ['x_forwarded_for', 'mallory']], 200],
    ['200 fields', [...HEAD, ...Array.from({ length: 200 }, (_, index) => [`x-${index}`, 'y'] as const)], 0],
    ['a length that its body has not', [...withHead(':method', 'POST'), ['content-length', '9']], 0],
  ] as readonly (readonly [string, readonly Field[], number])[])(
    'with %s is told so, or cut: %#',
    async (_what, fields, status) => {
      const socket = await rig.connect('h2');
      const outcome = await exchangeHttp2(socket, encodeRequest(fields));
      expect(outcome.kind === 'response' ? outcome.status : 0).toBe(status);
      if (status !== 200) expect(asked()).toEqual([]);
      expect(rig.seen.flatMap(({ rawHeaders }) => rawHeaders).join()).not.toMatch(/mallory|evil/i);
      await witness.goesOn();
    },
  );

  it.each([
    [
      'resets without end',
      Buffer.concat(
        Array.from({ length: 2000 }, (_, index) =>
          Buffer.concat([
            ...encodeBlock(HEAD, FLAG.endStream, 2 * index + 1),
            encodeFrame(FRAME.reset, 0, 2 * index + 1, Buffer.of(0, 0, 0, 8)),
          ]),
        ),
      ),
    ],
    [
      'a head without end',
      Buffer.concat([
        encodeFrame(FRAME.headers, 0, 1, Buffer.alloc(0)),
        ...Array.from({ length: 100 }, () => encodeFrame(FRAME.continuation, 0, 1, Buffer.of(0x82))),
      ]),
    ],
    [
      'settings without end',
      Buffer.concat(Array.from({ length: 20_000 }, () => encodeFrame(FRAME.settings, 0, 0, Buffer.alloc(0)))),
    ],
    [
      'pings without end',
      Buffer.concat(Array.from({ length: 20_000 }, () => encodeFrame(FRAME.ping, 0, 0, Buffer.alloc(8)))),
    ],
  ])('with %s is cut', async (_what, bytes) => {
    const socket = await rig.connect('h2');
    const gone = closed(socket);
    socket.write(Buffer.concat([PREFACE, encodeFrame(FRAME.settings, 0, 0, Buffer.alloc(0)), bytes]));
    socket.resume();
    await gone;
    await expect.poll(() => rig.server.inFlight).toBe(1);
    await witness.goesOn();
  });

  async function session(): Promise<ClientHttp2Session> {
    const socket: Socket = await rig.connect('h2');
    const one = connectHttp2(`http://${HONEST}`, { createConnection: () => socket });
    one.on('error', () => {});
    sessions.push(one);
    return one;
  }
  const post = (one: ClientHttp2Session, authority = HONEST) => {
    const stream = one.request({ ':method': 'POST', ':path': '/x', ':authority': authority });
    stream.on('error', () => {});
    return stream;
  };

  it('that is refused in the middle of its body keeps no place', async () => {
    rig.identity = () => Promise.reject(new TailcastError('IDENTITY_UNKNOWN'));
    const stream = post(await session());
    stream.write('begun');
    const [head] = (await once(stream, 'response')) as [Record<string, unknown>];
    expect(head[':status']).toBe(403);
    stream.resume();
    await expect.poll(() => rig.server.inFlight).toBe(1);
  });

  it('that breaks off while there are too many ends nothing but its own request', async () => {
    witness.end();
    await rig.close();
    await open({ maxRequests: 1 });
    const one = await session();
    for (const code of [constants.NGHTTP2_PROTOCOL_ERROR, constants.NGHTTP2_INTERNAL_ERROR]) {
      const stream = post(one);
      stream.write('begun');
      stream.close(code);
      await closed(stream);
    }
    const last = post(one);
    last.end();
    const [head] = (await once(last, 'response')) as [Record<string, unknown>];
    expect(head[':status']).toBe(503);
    await witness.goesOn();
  });

  it('that says a thing twice to a Service of HTTP/2 gets an answer of ours', async () => {
    const said = await send(
      `GET / HTTP/1.1\r\nHost: ${HOSTILE_RPC}\r\nAuthorization: a\r\nAuthorization: b\r\nConnection: close\r\n\r\n`,
    );
    expect(statuses(said)).toBe('502');
    expect(rig.ended).toContain('unreachable');
  });
});

describe('one caller', () => {
  it('has so many requests at a time, and the others go on', async () => {
    witness.end();
    await rig.close();
    await open({ maxPerCaller: 2 });
    rig.identity = () => Promise.resolve({ ...ALICE, login: 'mallory@example.com' } as typeof ALICE);
    rig.script = () => {};
    const held = `GET / HTTP/1.1\r\nHost: ${HOSTILE}\r\n\r\n`;
    const sockets = await Promise.all([rig.connect('h1'), rig.connect('h1')]);
    for (const socket of sockets) socket.write(held);
    await expect.poll(() => rig.services.size).toBe(2);
    const refused = await send(held.replace('\r\n\r\n', '\r\nConnection: close\r\n\r\n'));
    expect(statuses(refused)).toBe('503');
    const upgrade = held.replace('\r\n\r\n', '\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n');
    expect(statuses(await send(upgrade))).toBe('503');
    expect(rig.ended.filter((outcome) => outcome === 'overloaded')).toHaveLength(2);
    rig.identity = () => Promise.resolve(ALICE);
    expect(statuses(await send(END))).toBe('200');
    await witness.goesOn();
    for (const socket of sockets) socket.destroy();
    rig.identity = () => Promise.resolve({ ...ALICE, login: 'mallory@example.com' } as typeof ALICE);
    await expect.poll(async () => statuses(await send(END))).toBe('200');
  });

  it('whose streams fill what a Service of HTTP/2 takes on a connection keeps nobody waiting', async () => {
    let count = 0;
    rig.script = (socket, id) => {
      // on the first connection, the Service allows one stream at a time and never responds
      if (id === 1 && count++ === 0)
        socket.write(encodeFrame(FRAME.settings, 0, 0, Buffer.of(0, 3, 0, 0, 0, 1)));
      else socket.write(honestAnswer(id));
    };
    const first = await rig.connect('h1');
    first.write(`GET / HTTP/1.1\r\nHost: ${HOSTILE_RPC}\r\n\r\n`);
    await expect.poll(() => count).toBe(1);
    await witness.goesOn();
    expect(statuses(await send(`GET / HTTP/1.1\r\nHost: ${HOSTILE_RPC}\r\nConnection: close\r\n\r\n`))).toBe(
      '200',
    );
    first.destroy();
  });
});
