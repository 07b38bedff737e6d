/**
 * Hostile responses of a Service to `tailcast ingress`, with HTTP/1.1 and HTTP/2 on either side. `tailcast ingress`
 * must either deliver the response without internal headers or fail that request. Requests of other users must
 * continue, and the next request must get its own response.
 */
import type { Socket } from 'node:net';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  HONEST,
  HOSTILE,
  HOSTILE_RPC,
  openIngressRig,
  type IngressRig,
  type Witness,
} from './ingress-rig.ts';
import { honestAnswer, HTTP2_ANSWERS } from './http2-shapes.ts';
import { askHttp1, askHttp2, type Seen, type Verdict } from './node-clients.ts';

let rig: IngressRig;
let witness: Witness;
beforeAll(async () => {
  rig = await openIngressRig();
  witness = await rig.witness();
});
afterAll(async () => {
  witness.end();
  await rig.close();
});

type Protocol = 'h1' | 'h2' | 'websocket';

async function ask(protocol: Protocol, host: string): Promise<Seen> {
  if (protocol === 'h2') return askHttp2(await rig.connect('h2'), { scheme: 'http', host });
  const upgrade = ['Connection', 'Upgrade', 'Upgrade', 'websocket', 'Sec-WebSocket-Version', '13'];
  return askHttp1(await rig.connect('h1'), ['Host', host, ...(protocol === 'websocket' ? upgrade : [])]);
}

type Script = string | ((socket: Socket) => void);

const ok = (fields: string, body = 'body'): string =>
  `HTTP/1.1 200 OK\r\n${fields}Content-Length: ${body.length}\r\n\r\n${body}`;
const chunked = (rest: string): string =>
  `HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n${rest}`;
const SWITCH = 'HTTP/1.1 101 Switching Protocols\r\n';

const FOR_WEBSOCKETS = 'a 101 that nobody asked for';

/** Responses by expected result. */
const ANSWERS = new Map<Verdict, Readonly<Record<string, Script>>>([
  [
    200,
    {
      'an honest answer': ok(''),
      'fields of the connection': ok(
        'Connection: keep-alive, x-evil\r\nX-Evil: 1\r\nKeep-Alive: timeout=5\r\nProxy-Connection: a\r\nTE: gzip\r\n',
      ),
      'a wish to upgrade': ok('Connection: upgrade\r\nUpgrade: h2c\r\n'),
      'HTTP2-Settings': ok('HTTP2-Settings: AAMAAABk\r\n'),
      'a name that JavaScript knows': ok('__proto__: a\r\nconstructor: b\r\n'),
      'two ETags': ok('ETag: "a"\r\nETag: "b"\r\n'),
      'two types': ok('Content-Type: text/plain\r\nContent-Type: text/html\r\n'),
      'letters beyond ASCII': ok('X-A: b\xe9\r\n'),
      '500 fields': ok(Array.from({ length: 500 }, (_, index) => `X-${index}: y\r\n`).join('')),
      trailers: chunked('0\r\nGrpc-Status: 0\r\n\r\n'),
      'trailers of the connection': chunked(
        '0\r\nConnection: x\r\nHTTP2-Settings: a\r\nKeep-Alive: b\r\nTE: c\r\n\r\n',
      ),
      'trailers about framing': chunked('0\r\nTransfer-Encoding: chunked\r\n\r\n'),
      'repeated trailers': chunked('0\r\nETag: "a"\r\nETag: "b"\r\n\r\n'),
      'trailers that say who asks': chunked('0\r\nStatus: 500\r\nSet-Cookie: a=b\r\n\r\n'),
      hints: 'HTTP/1.1 103 Early Hints\r\n\r\n'.repeat(40) + ok(''),
      'another version': 'HTTP/2.0 200 OK\r\nContent-Length: 4\r\n\r\nbody',
      'a second answer behind the first': ok('') + ok('X-Evil: 1\r\n', 'evil'),
      'a body that ends with the connection': (socket) => void socket.end('HTTP/1.0 200 OK\r\n\r\nbody'),
    },
  ],
  [
    'refused',
    {
      'two lengths': ok('Content-Length: 5\r\n'),
      'a length and chunks':
        'HTTP/1.1 200 OK\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n',
      'an invalid length': 'HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\nbody',
      'a space in a name': ok('A B: c\r\n'),
      'a NUL in a value': ok('A: b\0c\r\n'),
      'a bare carriage return': ok('A: b\rC: d\r\n'),
      'a folded line': ok('A: b\r\n c\r\n'),
      'a head of 300 KB': ok(`X-A: ${'b'.repeat(300_000)}\r\n`),
      'a 101 of nothing': SWITCH + '\r\n',
      'a 101 of another protocol': SWITCH + 'Connection: Upgrade\r\nUpgrade: other\r\n\r\n',
      [FOR_WEBSOCKETS]: SWITCH + 'Connection: Upgrade\r\nUpgrade: websocket\r\n\r\nevil',
      'status 999': 'HTTP/1.1 999 Odd\r\nContent-Length: 4\r\n\r\nbody',
      'status 000': 'HTTP/1.1 000 Odd\r\nContent-Length: 4\r\n\r\nbody',
      'status 099': 'HTTP/1.1 099 Odd\r\nContent-Length: 4\r\n\r\nbody',
      'no HTTP at all': '\x16\x03\x01\x02\x00\x01\r\n\r\n',
      nothing: (socket) => socket.destroy(),
      'a reset': (socket) => void socket.resetAndDestroy(),
      'half a head': (socket) => void socket.end('HTTP/1.1 200 OK\r\nContent-Le'),
    },
  ],
  [
    'cut',
    {
      'a length in trailers': chunked('0\r\nContent-Length: 9\r\n\r\n'),
      'an invalid trailer': chunked('0\r\nno trailer\r\n\r\n'),
      'an invalid chunk size': chunked('zz\r\n'),
      'an end in the body': (socket) => void socket.end('HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nbody'),
      'an end in a chunk': (socket) => void socket.end(chunked('9\r\nab')),
    },
  ],
  [
    204,
    {
      'a 204 with a body': 'HTTP/1.1 204 No Content\r\nContent-Length: 4\r\n\r\nbody',
    },
  ],
  [
    304,
    {
      'a 304 with a body': 'HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\nbody',
    },
  ],
]);

function expectVerdict({ status, body, whole }: Seen, verdict: Verdict): void {
  if (verdict === 'refused') expect({ status, whole }).toEqual({ status: 502, whole: true });
  else if (verdict === 'cut') expect(whole).toBe(false);
  else
    expect({ status, body, whole }).toEqual({
      status: verdict,
      body: verdict === 200 ? 'body' : '',
      whole: true,
    });
}

function expectClean({ fields, trailers, body }: Seen, protocol: Protocol): void {
  const named = (list: readonly string[]): string =>
    list
      .filter((_, index) => index % 2 === 0)
      .join()
      .toLowerCase();
  expect(body).not.toContain('evil');
  expect(named(trailers)).not.toMatch(/connection|keep-alive|http2|length|encoding|te$|te,/);
  if (protocol === 'websocket') return;
  expect(named(fields)).not.toMatch(/evil|upgrade|http2|proxy/);
}

async function expectOthersServed(): Promise<void> {
  await witness.goesOn();
  expect(await ask('h1', HONEST)).toMatchObject({ status: 200, whole: true });
}

const CASES = [...ANSWERS].flatMap(([verdict, answers]) =>
  Object.entries(answers).map(([what, answer]) => [what, answer, verdict] as const),
);
describe.each(['h1', 'h2', 'websocket'] as const)(
  'a Service that answers a client over %s with',
  (protocol) => {
    it.each(CASES)('%s', async (what, answer, verdict) => {
      rig.script = (socket) => {
        if (typeof answer === 'string') socket.write(answer, 'latin1');
        else answer(socket);
      };
      const seen = await ask(protocol, HOSTILE);
      expectVerdict(seen, protocol === 'websocket' && what === FOR_WEBSOCKETS ? 101 : verdict);
      expectClean(seen, protocol);
      await expectOthersServed();
    });
  },
);

describe.each(['h1', 'h2'] as const)('a Service of HTTP/2 that answers a client over %s with', (protocol) => {
  it.each(Object.entries(HTTP2_ANSWERS))('%s', async (_what, answer) => {
    rig.script = (socket, id) => {
      const said = answer(id);
      if (typeof said === 'function') said(id, socket);
      else socket.write(said);
    };
    const seen = await ask(protocol, HOSTILE_RPC);
    // a complete response must be correct, or be the 502 of `tailcast ingress`
    if (seen.whole && seen.status !== 502) expectVerdict({ ...seen }, seen.status);
    else if (seen.whole) expectVerdict(seen, 'refused');
    expectClean(seen, protocol);
    await expectOthersServed();
    rig.script = (socket, id) => socket.write(honestAnswer(id));
    for (const socket of rig.services) socket.destroy();
    await expect.poll(() => rig.services.size).toBe(0);
    expect(await ask(protocol, HOSTILE_RPC)).toMatchObject({ status: 200, body: 'body', whole: true });
  });
});

it('a Service whose fields are too long for HTTP/2 is let go, and its client told', async () => {
  rig.script = (socket) =>
    socket.write(`HTTP/1.1 200 OK\r\nX-A: ${'b'.repeat(70_000)}\r\nContent-Length: 9\r\n\r\n`);
  for (const socket of rig.services) socket.destroy();
  await expect.poll(() => rig.services.size).toBe(0);
  expect(await ask('h2', HOSTILE)).toMatchObject({ status: 502, whole: true });
  await expect.poll(() => rig.services.size).toBe(0);
  await expectOthersServed();
});

it('a Service of HTTP/2 has one connection as long as that has room', async () => {
  for (const socket of rig.services) socket.destroy();
  await expect.poll(() => rig.services.size).toBe(0);
  rig.script = (socket, id) => socket.write(honestAnswer(id));
  for (let count = 0; count < 3; count += 1) {
    expect(await ask('h1', HOSTILE_RPC)).toMatchObject({ status: 200 });
    expect(rig.services.size).toBe(1);
  }
});
