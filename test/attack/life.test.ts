/**
 * Attack corpus A13, E4, E7, E8, F11 and the policy file: limits on the duration and number of sessions and
 * connections, and the log messages about these limits.
 */
import { once } from 'node:events';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ByteReader } from '../support/byte-reader.ts';
import { MASK, serverMessage, utf8 } from '../support/stream-peers.ts';
import { encodeSpdyFrame } from '../../src/wire/spdy/frame.ts';
import { createHeaderDeflater } from '../../src/wire/spdy/headers.ts';
import { encodeWebSocketFrame, OPCODE } from '../../src/wire/websocket/frame.ts';
import {
  ALICE,
  BOB,
  CAROL,
  connectAs,
  GATEWAY_HOST,
  introduce,
  openArena,
  type Arena,
  type Caller,
} from './arena.ts';
import { valuesOf } from './echo-api-server.ts';
import { EXEC, honest, LIST, send, SPDY, WEBSOCKET } from './transports.ts';
import { expectDenied, expectForwarded, observe } from './verdict.ts';

const POD = '/api/v1/namespaces/n/pods/p';
const HOST = `Host: ${GATEWAY_HOST}\r\n`;
const UPGRADE = WEBSOCKET.map(([name, value]) => `${name}: ${value}\r\n`).join('');

/** Sends a request and reads the response headers. @returns the open connection */
async function begin(
  arena: Arena,
  caller: Caller,
  head: string,
): Promise<{ reader: ByteReader; head: string; end(): void }> {
  const socket = await connectAs(arena, caller, 'http/1.1');
  const reader = new ByteReader(socket);
  socket.write(`${head}\r\n`);
  return { reader, head: await reader.takeThrough('\r\n\r\n'), end: () => socket.destroy() };
}

const beginExec = (arena: Arena, caller: Caller, target = EXEC) =>
  begin(arena, caller, `GET ${target} HTTP/1.1\r\n${HOST}${UPGRADE}`);

describe('what was begun under a grant', () => {
  let arena: Arena;
  beforeAll(async () => {
    arena = await openArena();
  });
  afterAll(() => arena.close());

  it('A13 exec, watch, port-forward and endless responses end within 15 s after the grant or the node is gone', async () => {
    const script = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n';
    arena.apiServer.script = (request) => (/watch=|feed/.test(request.requestLine) ? script : undefined);
    const dave = { address: '100.64.0.7', login: 'dave@example.com', groups: ['devs'] };
    const erin = { address: '100.64.0.8', login: 'erin@example.com', groups: ['devs'] };
    const rules = [
      { impersonate: { groups: ['devs'] }, recorderAddrs: [arena.recorder.address], enforceRecorder: true },
    ];
    introduce(arena.localApi, dave, rules);
    introduce(arena.localApi, erin, rules);
    const watch = `GET ${LIST}?watch=true HTTP/1.1\r\n${HOST}`;
    const forward = `${POD}/portforward?ports=80`;
    const open = await Promise.all([
      beginExec(arena, dave),
      beginExec(arena, erin),
      beginExec(arena, dave, forward),
      begin(arena, dave, watch),
      begin(arena, erin, watch),
      begin(arena, dave, `GET /apis/x.example/v1/feed HTTP/1.1\r\n${HOST}`),
    ]);
    const kept = await Promise.all([beginExec(arena, BOB), begin(arena, BOB, watch)]);
    expect(open.map(({ head }) => head.slice(9, 12))).toEqual(['101', '101', '101', '200', '200', '200']);
    const startedMs = performance.now();
    introduce(arena.localApi, dave, []);
    arena.localApi.whois.delete(erin.address);
    await Promise.all(open.map(({ reader }) => reader.untilClosed()));
    expect(performance.now() - startedMs).toBeLessThan(15_000);
    expect(open[0].reader.bytes.toString()).toContain('the grant of devs is gone');
    expect(open[1].reader.bytes.toString()).toContain('does not know the caller of this connection');
    expect(kept.map(({ reader }) => reader.closed)).toEqual([false, false]);
    for (const { end } of kept) end();
    arena.apiServer.script = undefined;
  });

  it.each([
    ['E8', 'GET', `${POD}/portforward`, 'h1 upgrade', WEBSOCKET],
    ['E8', 'POST', `${POD}/portforward`, 'h1 upgrade', SPDY],
    ['E7', 'GET', `${POD}/proxy/x`, 'h1 request', undefined],
    ['E7', 'POST', '/api/v1/namespaces/n/services/s/proxy/x', 'h2 request', undefined],
    ['E4', 'PATCH', `${POD}/ephemeralcontainers`, 'h1 request', undefined],
    ['E6', 'GET', '/api/v1/nodes/w/proxy/metrics', 'h2 request', undefined],
    ['E12', 'POST', '/api/v1/namespaces/n/serviceaccounts/s/token', 'h1 request', undefined],
    ['E12', 'POST', '/apis/certificates.k8s.io/v1/certificatesigningrequests', 'h2 request', undefined],
    [
      'E12',
      'PUT',
      '/apis/certificates.k8s.io/v1/certificatesigningrequests/c/approval',
      'h1 request',
      undefined,
    ],
    ['E12', 'POST', '/apis/rbac.authorization.k8s.io/v1/clusterrolebindings', 'h1 request', undefined],
    ['E12', 'PATCH', '/apis/rbac.authorization.k8s.io/v1/namespaces/n/roles/r', 'h2 request', undefined],
    [
      'E13',
      'DELETE',
      '/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/sessions-through-gateway',
      'h2 request',
      undefined,
    ],
  ] as const)(
    '%s %s %s is told to a recorder under enforcement, or does not happen (%s)',
    async (_id, method, target, transport, fields) => {
      const base = fields === undefined ? {} : { base: [['Host', GATEWAY_HOST], ...fields] as const };
      const before = arena.recorder.events.length;
      const ask = { caller: BOB, method, target, ...base };
      expectForwarded(await observe(arena, () => send(arena, transport, ask)), honest(transport, ask));
      await arena.recorder.until(() => arena.recorder.events.length > before);
      expect(arena.recorder.events.at(-1)).toContain(target);
      expectDenied(await observe(arena, () => send(arena, transport, { ...ask, caller: CAROL })), [403]);
    },
  );
});

describe('a policy file', () => {
  let arena: Arena;
  beforeAll(async () => {
    arena = await openArena(
      { auditExtras: 'true' },
      `
enforced:
  portForward: refuse
  podProxyRequest: refuse
  opaqueUpgrade: allow
others:
  kubeletExec: refuse
  exec: allow
portForward:
  refusePorts: [22, 10250-10259]
sessions:
  perUser: 2
`,
    );
  });
  afterAll(() => arena.close());

  it('closes what it says, with and without enforcement', async () => {
    const closed: readonly (readonly [Caller, string])[] = [
      [BOB, `${POD}/portforward`],
      [ALICE, '/api/v1/nodes/w/proxy/exec/n/p/c'],
      [ALICE, `${POD}/portforward?ports=80,10255`],
      [ALICE, `${POD}/portforward?ports=80&ports=22`],
    ];
    for (const [caller, target] of closed)
      expectDenied(await observe(arena, () => send(arena, 'h1 upgrade', { caller, target })), [403]);
    const request = { caller: BOB, target: `${POD}/proxy/x` };
    for (const transport of ['h1 request', 'h2 request'] as const)
      expectDenied(await observe(arena, () => send(arena, transport, request)), [403]);
  });

  it('opens what it says', async () => {
    const opened: readonly (readonly [Caller, string])[] = [
      [BOB, '/apis/x.example/v1/namespaces/n/machines/m/console'],
      [ALICE, `${POD}/portforward?ports=80`],
    ];
    for (const [caller, target] of opened) {
      const ask = { caller, target };
      expectForwarded(await observe(arena, () => send(arena, 'h1 upgrade', ask)), honest('h1 upgrade', ask));
    }
  });

  it.each(['spdy', 'websocket'] as const)(
    'E8 refuses a port inside a port-forward (%s)',
    async (protocol) => {
      const tunnel = 'SPDY/3.1+portforward.k8s.io';
      const fields =
        protocol === 'spdy'
          ? [...SPDY.slice(0, 2), ['X-Stream-Protocol-Version', 'portforward.k8s.io'] as const]
          : [...WEBSOCKET.slice(0, 4), ['Sec-WebSocket-Protocol', tunnel] as const];
      const lines = fields.map(([name, value]) => `${name}: ${value}\r\n`).join('');
      const wrap = (bytes: Uint8Array): Uint8Array =>
        protocol === 'spdy'
          ? bytes
          : encodeWebSocketFrame({ opcode: OPCODE.binary, fin: true, payload: bytes, mask: MASK });
      const deflater = createHeaderDeflater();
      const open = (streamId: number, port: string): Uint8Array =>
        wrap(
          encodeSpdyFrame({
            kind: 'synStream',
            streamId,
            associatedTo: 0,
            priority: 0,
            fin: false,
            unidirectional: false,
            block: deflater.encode([
              ['port', port],
              ['streamtype', 'error'],
            ]),
          }),
        );
      const socket = await connectAs(arena, ALICE, 'http/1.1');
      const reader = new ByteReader(socket);
      socket.write(`GET ${POD}/portforward HTTP/1.1\r\n${HOST}${lines}\r\n`);
      expect(await reader.takeThrough('\r\n\r\n')).toContain(' 101 ');
      const server = arena.apiServer.requests.at(-1)!;
      const allowed = open(1, '8080');
      socket.write(allowed);
      await expect.poll(() => server.tunnelled().length).toBe(allowed.length);
      socket.write(open(3, '10255'));
      await reader.untilClosed();
      expect(server.tunnelled()).toHaveLength(allowed.length);
      await expect.poll(() => arena.logged()).toMatch(/"outcome":"refused".*port 10255.*"ports":\[8080\]/);
    },
  );

  it('F11 bounds the sessions of one user, and leaves room for others', async () => {
    const count = (what: RegExp): number => arena.logged().match(what)?.length ?? 0;
    await expect.poll(() => count(/session started/g) - count(/session ended/g)).toBe(0);
    const mine = [await beginExec(arena, BOB), await beginExec(arena, BOB)];
    const third = await beginExec(arena, BOB);
    expect(third.head).toContain(' 429 ');
    expect(third.head).toMatch(/retry-after: \d/i);
    third.end();
    const other = await beginExec(arena, ALICE);
    expect(other.head).toContain(' 101 ');
    other.end();
    for (const { end } of mine) end();
    await expect
      .poll(async () => {
        const again = await beginExec(arena, BOB);
        again.end();
        return again.head.slice(9, 12);
      })
      .toBe('101');
  });

  it('names nodes and sessions to the audit log of the cluster', async () => {
    const plain = expectForwarded(
      await observe(arena, () => send(arena, 'h2 request')),
      honest('h2 request'),
    );
    // a request without an upgrade must have the same extras as all other such requests of its user, because
    // authorizers cache decisions by user and extras
    const extras = (name: string): boolean => name.startsWith('impersonate-extra-tailcast');
    expect(plain.headers.filter(([name]) => extras(name.toLowerCase()))).toEqual([
      [expect.stringMatching(/^impersonate-extra-tailcast\.dev%2fnode$/i), 'nAlice'],
    ]);
    const forged = [['X-Remote-Extra-tailcast.dev%2Fsession', 'attacker']] as const;
    const ask = { fields: forged };
    const exec = expectForwarded(
      await observe(arena, () => send(arena, 'h1 upgrade', ask)),
      honest('h1 upgrade', ask),
    );
    expect(valuesOf(exec, 'impersonate-extra-tailcast.dev%2fsession')).toEqual(valuesOf(exec, 'audit-id'));
  });
});

describe('time limits of sessions', () => {
  let arena: Arena;
  beforeAll(async () => {
    arena = await openArena({}, 'sessions: {maxMinutes: 1}');
  });
  afterAll(() => arena.close());

  it('are read from the file and do not end what is younger', async () => {
    const { reader, end } = await beginExec(arena, BOB);
    const { socket } = arena.apiServer.requests.at(-1)!;
    socket.write(serverMessage(1, utf8('alive')));
    await reader.take(serverMessage(1, utf8('alive')).length);
    end();
    await once(socket, 'close');
    expect(reader.bytes.toString()).not.toContain('limit');
  });
});
