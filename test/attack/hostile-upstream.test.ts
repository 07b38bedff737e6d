/**
 * Hostile responses of pods, services and aggregated APIs to plain requests and to shells, over HTTP/1.1 and HTTP/2.
 * The gateway must either deliver the response or fail that request. A session of another user must not lose a byte,
 * and the next request of the same user must get its own response.
 */
import { once } from 'node:events';
import { request, type IncomingMessage } from 'node:http';
import { connect as connectHttp2 } from 'node:http2';
import type { Socket } from 'node:net';
import type { TLSSocket } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ByteReader } from '../support/byte-reader.ts';
import {
  ALICE,
  connectAs,
  GATEWAY_HOST,
  introduce,
  openArena,
  sendHttp1,
  type Arena,
  type Caller,
} from './arena.ts';
import type { EchoedRequest } from './echo-api-server.ts';
import { EXEC, WEBSOCKET } from './transports.ts';

const WITNESS: Caller = { address: '100.64.0.20', login: 'witness@example.com', groups: ['devs'] };
const ATTACKED = '/api/v1/namespaces/default/services/s/proxy/x';

type Script = string | ((socket: TLSSocket) => void);
/**
 * Expected result: the status if the response is delivered; `refused`: the client gets 502; `cut`: the client gets an
 * incomplete response and an error.
 */
type Verdict = number | 'refused' | 'cut';
interface Shape {
  readonly what: string;
  readonly script: Script;
  readonly request: Verdict;
  /** Expected result for an upgrade over HTTP/1.1, because Node parses that response. Default: `request`. */
  readonly upgrade?: Verdict;
}

const ok = (fields: string, body = 'body'): string =>
  `HTTP/1.1 200 OK\r\n${fields}Content-Length: ${body.length}\r\n\r\n${body}`;
const chunked = (fields: string, rest: string): string =>
  `HTTP/1.1 200 OK\r\n${fields}Transfer-Encoding: chunked\r\n\r\n${rest}`;

/** Sends the pieces separately. */
const inPieces =
  (...pieces: readonly string[]) =>
  (socket: TLSSocket): void => {
    const next = (index: number): void => {
      const piece = pieces[index];
      if (piece === undefined) return;
      socket.write(piece, 'latin1', () => setImmediate(() => setTimeout(() => next(index + 1), 5)));
    };
    next(0);
  };
const later = (fields: string): Script =>
  inPieces(`HTTP/1.1 200 OK\r\n${fields}Content-Length: 4\r\n\r\n`, 'bo', 'dy');

/** Simulates the crash of a server. */
function reset(socket: TLSSocket): void {
  (socket as unknown as { readonly _parent: Socket })._parent.resetAndDestroy();
}

const TWICE = (name: string, one: string, other = one): string => `${name}: ${one}\r\n${name}: ${other}\r\n`;

const SHAPES: readonly Shape[] = [
  { what: 'nosniff twice', script: ok(TWICE('X-Content-Type-Options', 'nosniff')), request: 200 },
  {
    what: 'nosniff twice, body later',
    script: later(TWICE('X-Content-Type-Options', 'nosniff')),
    request: 200,
  },
  {
    what: 'two types, body later',
    script: later(TWICE('Content-Type', 'text/plain', 'text/html')),
    request: 200,
  },
  { what: 'two types at once', script: ok(TWICE('Content-Type', 'text/plain', 'text/html')), request: 200 },
  { what: 'two ETags, body later', script: later(TWICE('ETag', '"a"', '"b"')), request: 200 },
  { what: 'two codings, body later', script: later(TWICE('Content-Encoding', 'x-a', 'x-b')), request: 200 },
  {
    what: 'three places to go',
    script: later(TWICE('Location', '/a', '/b') + 'Location: /c\r\n'),
    request: 200,
  },
  { what: 'HTTP2-Settings, body later', script: later('HTTP2-Settings: AAMAAABk\r\n'), request: 200 },
  { what: 'HTTP2-Settings at once', script: ok('HTTP2-Settings: AAMAAABk\r\n'), request: 200 },
  {
    what: 'connection fields',
    script: later('Proxy-Connection: a\r\nKeep-Alive: timeout=5\r\n'),
    request: 200,
  },
  { what: 'a wish to upgrade', script: later('Connection: Upgrade\r\nUpgrade: h2c\r\n'), request: 200 },
  { what: 'TE', script: later('TE: gzip\r\n'), request: 200 },
  {
    what: 'Connection that names the length',
    script: ok('Connection: content-length, etag\r\n'),
    request: 200,
  },
  {
    what: 'an unknown coding of the message',
    script: 'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n',
    request: 'refused',
    upgrade: 'refused',
  },
  { what: 'two lengths', script: ok('Content-Length: 5\r\n'), request: 'refused' },
  { what: 'a length twice', script: ok('Content-Length: 4\r\n'), request: 'refused' },
  {
    what: 'a length below nothing',
    script: 'HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nbody',
    request: 'refused',
  },
  {
    what: 'a length that is a word',
    script: 'HTTP/1.1 200 OK\r\nContent-Length: NaN\r\n\r\nbody',
    request: 'refused',
  },
  { what: 'a length and chunks', script: chunked('Content-Length: 4\r\n', '0\r\n\r\n'), request: 'refused' },
  {
    what: 'repeated trailers',
    script: inPieces(chunked('', '4\r\nbody\r\n'), `0\r\n${TWICE('ETag', '"a"', '"b"')}\r\n`),
    request: 200,
  },
  {
    what: 'connection trailers',
    script: inPieces(chunked('', '4\r\nbody\r\n'), '0\r\nHTTP2-Settings: a\r\nProxy-Connection: b\r\n\r\n'),
    request: 200,
  },
  {
    what: 'connection trailers at once',
    script: chunked('', '4\r\nbody\r\n0\r\nHTTP2-Settings: a\r\nProxy-Connection: b\r\nTE: c\r\n\r\n'),
    request: 200,
  },
  {
    what: 'framing in trailers',
    script: inPieces(
      chunked('', '4\r\nbody\r\n'),
      '0\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n',
    ),
    request: 'cut',
  },
  {
    what: 'a trailer that is none',
    script: inPieces(chunked('', '4\r\nbody\r\n'), '0\r\nno trailer\r\n\r\n'),
    request: 'cut',
  },
  {
    what: 'endless trailers',
    script: inPieces(chunked('', '4\r\nbody\r\n'), `0\r\n${'A: b\r\n'.repeat(60_000)}`),
    request: 'cut',
  },
  {
    what: 'a chunk size that is none',
    script: inPieces(chunked('', '4\r\nbody\r\n'), 'zz\r\n'),
    request: 'cut',
  },
  {
    what: 'a chunk that is too long',
    script: inPieces(chunked('', '4\r\nbody\r\n'), '2\r\nabcd\r\n0\r\n\r\n'),
    request: 'cut',
  },
  { what: 'a space in a name', script: ok('A B: c\r\n'), request: 'refused' },
  { what: 'a pseudo field', script: ok(':status: 500\r\n'), request: 'refused' },
  { what: 'a NUL in a value', script: ok('A: b\0c\r\n'), request: 'refused' },
  { what: 'a bare carriage return', script: ok('A: b\rC: d\r\n'), request: 'refused' },
  { what: 'a folded line', script: ok('A: b\r\n c\r\n'), request: 'refused', upgrade: 'refused' },
  {
    what: '300 fields',
    script: later(Array.from({ length: 300 }, (_, index) => `X-${index}: y\r\n`).join('')),
    request: 200,
  },
  {
    what: 'a head of 100 KB',
    script: later(`X-A: ${'b'.repeat(50_000)}\r\nX-B: ${'b'.repeat(50_000)}\r\n`),
    request: 200,
    upgrade: 'refused',
  },
  { what: 'a head of 300 KB', script: later(`X-A: ${'b'.repeat(300_000)}\r\n`), request: 'refused' },
  {
    what: 'a head without end',
    script: inPieces(
      'HTTP/1.1 200 OK\r\n',
      ...Array.from({ length: 40 }, () => `X: ${'y'.repeat(16_000)}\r\n`),
    ),
    request: 'refused',
  },
  {
    what: 'hints with repeated fields',
    script: inPieces(
      `HTTP/1.1 103 Early Hints\r\n${TWICE('ETag', '"a"', '"b"')}HTTP2-Settings: a\r\n\r\n`,
      ok(''),
    ),
    request: 200,
  },
  {
    what: 'hints without end',
    script: 'HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(40) + ok(''),
    request: 'refused',
    upgrade: 200,
  },
  {
    what: 'a 100 that nobody asked for',
    script: inPieces('HTTP/1.1 100 Continue\r\n\r\n', ok('')),
    request: 200,
  },
  { what: 'a 101 of nothing', script: 'HTTP/1.1 101 Switching Protocols\r\n\r\n', request: 'refused' },
  {
    what: 'a 101 of another protocol',
    script: 'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n',
    request: 'refused',
  },
  {
    what: 'status 999',
    script: 'HTTP/1.1 999 Odd\r\nContent-Length: 4\r\n\r\nbody',
    request: 'refused',
    upgrade: 'refused',
  },
  {
    what: 'status 000',
    script: 'HTTP/1.1 000 Odd\r\nContent-Length: 4\r\n\r\nbody',
    request: 'refused',
    upgrade: 'refused',
  },
  { what: 'another version', script: 'HTTP/2.0 200 OK\r\nContent-Length: 4\r\n\r\nbody', request: 'refused' },
  {
    what: 'no HTTP at all',
    script: '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n',
    request: 'refused',
  },
  { what: 'a reset before the head', script: reset, request: 'refused' },
  {
    what: 'half a head',
    script: (socket) => void socket.end('HTTP/1.1 200 OK\r\nContent-Le'),
    request: 'refused',
  },
  {
    what: 'a reset in the body',
    script: (socket) =>
      socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody', () =>
        setTimeout(() => reset(socket), 5),
      ),
    request: 'cut',
  },
  {
    what: 'an end in the body',
    script: (socket) => void socket.end('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody'),
    request: 'cut',
  },
  { what: 'a second answer behind the first', script: ok('') + ok('X-Second: 1\r\n', 'evil'), request: 200 },
  {
    what: 'a 204 with a body',
    script: 'HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nbody',
    request: 'refused',
    upgrade: 204,
  },
  {
    what: 'a 304 with a body',
    script: 'HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nbody',
    request: 304,
  },
  { what: 'byte after byte', script: inPieces(...Array.from(ok(TWICE('ETag', '"a"')))), request: 200 },
];

interface Seen {
  readonly status: number;
  readonly body: string;
  readonly whole: boolean;
  readonly fields: readonly string[];
}

interface Road {
  readonly name: string;
  readonly method: string;
  readonly target: string;
  readonly upgrade: boolean;
  readonly ask: (arena: Arena, road: Road) => Promise<Seen>;
}

/** Ways to send a request. The HTTP/2 shell sends no upgrade headers, because HTTP/2 has no upgrades. */
const ROADS: readonly Road[] = [
  { name: 'h1 request', method: 'GET', target: ATTACKED, upgrade: false, ask: askHttp1 },
  { name: 'h2 request', method: 'GET', target: ATTACKED, upgrade: false, ask: askHttp2 },
  { name: 'h1 upgrade', method: 'GET', target: EXEC, upgrade: true, ask: askHttp1 },
  { name: 'h2 shell', method: 'POST', target: EXEC, upgrade: false, ask: askHttp2 },
];

async function askHttp1(arena: Arena, { method, target, upgrade }: Road): Promise<Seen> {
  const socket = await connectAs(arena, ALICE, 'http/1.1');
  const asking = request({
    method,
    path: target,
    createConnection: () => socket,
    maxHeaderSize: 1024 * 1024,
    headers: ['Host', GATEWAY_HOST, ...(upgrade ? WEBSOCKET.flat() : [])] as never,
  });
  asking.end();
  try {
    const [response] = (await once(asking, 'response')) as [IncomingMessage];
    asking.on('error', () => {});
    let body = '';
    response.on('data', (chunk: Buffer) => (body += chunk.toString('latin1')));
    response.on('error', () => {});
    await new Promise((resolve) => response.once('close', resolve));
    return { status: response.statusCode ?? 0, body, whole: response.complete, fields: response.rawHeaders };
  } finally {
    socket.destroy();
  }
}

async function askHttp2(arena: Arena, { method, target }: Road): Promise<Seen> {
  const socket = await connectAs(arena, ALICE, 'h2');
  const session = connectHttp2(`https://${GATEWAY_HOST}`, {
    createConnection: () => socket,
    settings: { maxHeaderListSize: 1024 * 1024 },
    maxHeaderListPairs: 1000,
  });
  session.on('error', () => {});
  const flat = [':method', method, ':path', target, ':scheme', 'https', ':authority', GATEWAY_HOST];
  const stream = session.request(flat, { endStream: true });
  let seen: Seen = { status: 0, body: '', whole: false, fields: [] };
  stream.on('error', () => {});
  stream.on('response', (headers, _flags, raw: string[]) => {
    seen = { ...seen, status: Number(headers[':status']), fields: raw };
  });
  let body = '';
  stream.on('data', (chunk: Buffer) => (body += chunk.toString('latin1')));
  await new Promise((resolve) => stream.once('close', resolve));
  session.destroy();
  return { ...seen, body, whole: stream.rstCode === 0 };
}

let arena: Arena;
let witness: Session;
let script: Script | undefined;

/** A session of another user: both ends of its connection. */
interface Session {
  readonly user: TLSSocket;
  readonly reader: ByteReader;
  readonly pod: EchoedRequest;
}

beforeAll(async () => {
  arena = await openArena({ accessLog: false });
  introduce(arena.localApi, WITNESS, [{ impersonate: { groups: WITNESS.groups } }]);
  witness = await openSession(arena);
  arena.apiServer.script = ({ requestLine }) =>
    script !== undefined && [ATTACKED, EXEC].some((target) => requestLine.includes(` ${target} `))
      ? script
      : undefined;
});
afterAll(async () => {
  witness.user.destroy();
  await arena.close();
});

async function openSession(at: Arena): Promise<Session> {
  const user = await connectAs(at, WITNESS, 'http/1.1');
  const reader = new ByteReader(user);
  const fields = WEBSOCKET.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  user.write(`GET ${EXEC} HTTP/1.1\r\nHost: ${GATEWAY_HOST}\r\n${fields}\r\n`);
  expect(await reader.takeThrough('\r\n\r\n')).toMatch(/^HTTP\/1\.1 101 /);
  const pod = at.apiServer.requests.at(-1);
  if (pod === undefined) throw new Error('no session');
  return { user, reader, pod };
}

/** Checks both directions of the session byte for byte. */
async function expectUndisturbed({ user, reader, pod }: Session, round: number): Promise<void> {
  const words = Buffer.from(`round ${round}`.padEnd(16));
  const output = Buffer.concat([Buffer.of(0x82, words.length + 1, 1), words]);
  pod.socket.write(output);
  expect(await reader.take(output.length)).toEqual(output);
  const input = Buffer.concat([Buffer.of(0x82, 0x80 + words.length + 1, 0, 0, 0, 0, 0), words]);
  const before = pod.tunnelled().length;
  user.write(input);
  await expect.poll(() => pod.tunnelled().subarray(before), { interval: 2 }).toEqual(input);
}

/** The next request of the same user gets the correct response. */
async function expectServed(at: Arena, round: number): Promise<void> {
  const target = `/api/v1/namespaces/default/pods/honest-${round}`;
  const bytes = `GET ${target} HTTP/1.1\r\nHost: ${GATEWAY_HOST}\r\n\r\n`;
  const honest = await sendHttp1(at, ALICE, bytes);
  expect(honest).toMatchObject({ kind: 'response', status: 200 });
  expect(honest.kind === 'response' ? honest.body : '').toContain(target);
}

function expectVerdict(seen: Seen, verdict: Verdict): void {
  if (verdict === 'refused') {
    expect(seen).toMatchObject({ status: 502, whole: true });
    expect(JSON.parse(seen.body)).toMatchObject({ kind: 'Status', code: 502 });
  } else if (verdict === 'cut') {
    expect(seen).toMatchObject({ status: 200, whole: false });
  } else {
    expect(seen).toMatchObject({ status: verdict, whole: true, body: verdict === 200 ? 'body' : '' });
  }
}

let round = 0;
describe.each(ROADS)('an upstream that answers a $name with', (road) => {
  it.each(SHAPES)('$what', async ({ script: shape, request: plain, upgrade = plain }) => {
    round += 1;
    script = shape;
    const seen = await road.ask(arena, road);
    script = undefined;
    expectVerdict(seen, road.upgrade ? upgrade : plain);
    await expectUndisturbed(witness, round);
    await expectServed(arena, round);
  });
});

describe('repeated fields', () => {
  it.each([
    ['X-Content-Type-Options', ['nosniff', 'nosniff'], ['nosniff']],
    ['X-Content-Type-Options', ['nosniff', 'other'], ['nosniff, other']],
    ['Content-Type', ['text/plain', 'text/html'], ['text/plain']],
    ['ETag', ['"a"', '"b"'], ['"a"']],
    ['Content-Encoding', ['x-a', 'x-b'], ['x-a, x-b']],
    ['Vary', ['Accept', 'Origin'], ['Accept', 'Origin']],
  ])('of %s %j reach an HTTP/2 client as %j', async (name, sent, received) => {
    const road = ROADS[1];
    if (road === undefined) throw new Error('unreachable');
    script = later(sent.map((value) => `${name}: ${value}\r\n`).join(''));
    const { fields } = await road.ask(arena, road);
    script = undefined;
    expect(fields.filter((_, index) => fields[index - 1] === name.toLowerCase())).toEqual(received);
  });
});
