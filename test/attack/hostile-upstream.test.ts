/**
 * Hostile responses of pods, services and aggregated APIs to plain requests and to shells, over HTTP/1.1 and HTTP/2.
 * The gateway must either deliver the response or fail that request. A session of another user must not lose a byte,
 * and the next request of the same user must get its own response.
 */
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
import { askHttp1, askHttp2, type Seen, type Verdict } from './node-clients.ts';
import { EXEC, WEBSOCKET } from './transports.ts';

const WITNESS: Caller = { address: '100.64.0.20', login: 'witness@example.com', groups: ['devs'] };
const ATTACKED = '/api/v1/namespaces/default/services/s/proxy/x';

type Script = string | ((socket: TLSSocket) => void);

const ok = (fields: string, body = 'body'): string =>
  `HTTP/1.1 200 OK\r\n${fields}Content-Length: ${body.length}\r\n\r\n${body}`;
const chunked = (fields: string, rest: string): string =>
  `HTTP/1.1 200 OK\r\n${fields}Transfer-Encoding: chunked\r\n\r\n${rest}`;
const BODY_CHUNK = chunked('', '4\r\nbody\r\n');

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

/** Responses by expected result. */
const SHAPES = new Map<Verdict, Readonly<Record<string, Script>>>([
  [
    200,
    {
      'nosniff twice': ok(TWICE('X-Content-Type-Options', 'nosniff')),
      'nosniff twice, body later': later(TWICE('X-Content-Type-Options', 'nosniff')),
      'two types, body later': later(TWICE('Content-Type', 'text/plain', 'text/html')),
      'two types at once': ok(TWICE('Content-Type', 'text/plain', 'text/html')),
      'two ETags, body later': later(TWICE('ETag', '"a"', '"b"')),
      'two codings, body later': later(TWICE('Content-Encoding', 'x-a', 'x-b')),
      'three places to go': later(TWICE('Location', '/a', '/b') + 'Location: /c\r\n'),
      'HTTP2-Settings, body later': later('HTTP2-Settings: AAMAAABk\r\n'),
      'HTTP2-Settings at once': ok('HTTP2-Settings: AAMAAABk\r\n'),
      'connection fields': later('Proxy-Connection: a\r\nKeep-Alive: timeout=5\r\n'),
      'a wish to upgrade': later('Connection: Upgrade\r\nUpgrade: h2c\r\n'),
      TE: later('TE: gzip\r\n'),
      'Connection that names the length': ok('Connection: content-length, etag\r\n'),
      'repeated trailers': inPieces(BODY_CHUNK, `0\r\n${TWICE('ETag', '"a"', '"b"')}\r\n`),
      'connection trailers': inPieces(BODY_CHUNK, '0\r\nHTTP2-Settings: a\r\nProxy-Connection: b\r\n\r\n'),
      'connection trailers at once': chunked(
        '',
        '4\r\nbody\r\n0\r\nHTTP2-Settings: a\r\nProxy-Connection: b\r\nTE: c\r\n\r\n',
      ),
      '300 fields': later(Array.from({ length: 300 }, (_, index) => `X-${index}: y\r\n`).join('')),
      'a head of 100 KB': later(`X-A: ${'b'.repeat(50_000)}\r\nX-B: ${'b'.repeat(50_000)}\r\n`),
      'hints with repeated fields': inPieces(
        `HTTP/1.1 103 Early Hints\r\n${TWICE('ETag', '"a"', '"b"')}HTTP2-Settings: a\r\n\r\n`,
        ok(''),
      ),
      'a 100 that nobody asked for': inPieces('HTTP/1.1 100 Continue\r\n\r\n', ok('')),
      'a second answer behind the first': ok('') + ok('X-Second: 1\r\n', 'evil'),
      'byte after byte': inPieces(...Array.from(ok(TWICE('ETag', '"a"')))),
    },
  ],
  [
    'refused',
    {
      'an unknown coding of the message':
        'HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n',
      'two lengths': ok('Content-Length: 5\r\n'),
      'a length twice': ok('Content-Length: 4\r\n'),
      'a length below nothing': 'HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nbody',
      'a length that is a word': 'HTTP/1.1 200 OK\r\nContent-Length: NaN\r\n\r\nbody',
      'a length and chunks': chunked('Content-Length: 4\r\n', '0\r\n\r\n'),
      'a space in a name': ok('A B: c\r\n'),
      'a pseudo field': ok(':status: 500\r\n'),
      'a NUL in a value': ok('A: b\0c\r\n'),
      'a bare carriage return': ok('A: b\rC: d\r\n'),
      'a folded line': ok('A: b\r\n c\r\n'),
      'a head of 300 KB': later(`X-A: ${'b'.repeat(300_000)}\r\n`),
      'a head without end': inPieces(
        'HTTP/1.1 200 OK\r\n',
        ...Array.from({ length: 40 }, () => `X: ${'y'.repeat(16_000)}\r\n`),
      ),
      'hints without end': 'HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(40) + ok(''),
      'a 101 of nothing': 'HTTP/1.1 101 Switching Protocols\r\n\r\n',
      'a 101 of another protocol':
        'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n',
      'status 999': 'HTTP/1.1 999 Odd\r\nContent-Length: 4\r\n\r\nbody',
      'status 000': 'HTTP/1.1 000 Odd\r\nContent-Length: 4\r\n\r\nbody',
      'another version': 'HTTP/2.0 200 OK\r\nContent-Length: 4\r\n\r\nbody',
      'no HTTP at all': '\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n',
      'a reset before the head': reset,
      'half a head': (socket) => void socket.end('HTTP/1.1 200 OK\r\nContent-Le'),
      'a 204 with a body': 'HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nbody',
    },
  ],
  [
    'cut',
    {
      'framing in trailers': inPieces(
        BODY_CHUNK,
        '0\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n',
      ),
      'an invalid trailer': inPieces(BODY_CHUNK, '0\r\nno trailer\r\n\r\n'),
      'endless trailers': inPieces(BODY_CHUNK, `0\r\n${'A: b\r\n'.repeat(60_000)}`),
      'an invalid chunk size': inPieces(BODY_CHUNK, 'zz\r\n'),
      'a chunk that is too long': inPieces(BODY_CHUNK, '2\r\nabcd\r\n0\r\n\r\n'),
      'a reset in the body': (socket) =>
        socket.write('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody', () =>
          setTimeout(() => reset(socket), 5),
        ),
      'an end in the body': (socket) => void socket.end('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody'),
    },
  ],
  [
    304,
    {
      'a 304 with a body': 'HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nbody',
    },
  ],
]);

/** Results that differ for upgrades over HTTP/1.1. Node's HTTP parser reads their responses. */
const OF_UPGRADES: Readonly<Record<string, Verdict>> = {
  'a head of 100 KB': 'refused',
  'hints without end': 200,
  'a 204 with a body': 204,
};

interface Road {
  readonly name: string;
  readonly method: string;
  readonly path: string;
  readonly upgrade: boolean;
}

/** Ways to send a request. The HTTP/2 shell sends no upgrade headers, because HTTP/2 has no upgrades. */
const ROADS: readonly Road[] = [
  { name: 'h1 request', method: 'GET', path: ATTACKED, upgrade: false },
  { name: 'h2 request', method: 'GET', path: ATTACKED, upgrade: false },
  { name: 'h1 upgrade', method: 'GET', path: EXEC, upgrade: true },
  { name: 'h2 shell', method: 'POST', path: EXEC, upgrade: false },
];

async function ask(road: Road): Promise<Seen> {
  if (road.name.startsWith('h2'))
    return askHttp2(await connectAs(arena, ALICE, 'h2'), { ...road, scheme: 'https', host: GATEWAY_HOST });
  const headers = ['Host', GATEWAY_HOST, ...(road.upgrade ? WEBSOCKET.flat() : [])];
  return askHttp1(await connectAs(arena, ALICE, 'http/1.1'), headers, road);
}

let arena: Arena;
let witness: Session;
let script: Script | undefined;

/** Both ends of another user's session. */
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

/** Checks that the next request of the same user gets its own response. */
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
const CASES = [...SHAPES].flatMap(([verdict, scripts]) =>
  Object.entries(scripts).map(([what, shape]) => [what, shape, verdict] as const),
);
describe.each(ROADS)('an upstream that answers a $name with', (road) => {
  it.each(CASES)('%s', async (what, shape, verdict) => {
    round += 1;
    script = shape;
    const seen = await ask(road);
    script = undefined;
    expectVerdict(seen, (road.upgrade ? OF_UPGRADES[what] : undefined) ?? verdict);
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
    const { fields } = await ask(road);
    script = undefined;
    expect(fields.filter((_, index) => fields[index - 1] === name.toLowerCase())).toEqual(received);
  });
});
