/** In mode `noauth` a request reaches the API server unchanged, with the exceptions in docs/threat-model.md. */
import { once } from 'node:events';
import { connect } from 'node:tls';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ByteReader } from '../support/byte-reader.ts';
import { parseCastHeader } from '../../src/wire/asciicast/header.ts';
import {
  ALICE,
  BOB,
  GATEWAY_HOST,
  openArena,
  sendHttp1,
  sendHttp2,
  type Arena,
  type Caller,
} from './arena.ts';
import type { Field } from './raw-http2.ts';
import { EXEC, LIST, WEBSOCKET } from './transports.ts';

let arena: Arena;
beforeAll(async () => {
  arena = await openArena({ mode: 'noauth' });
});
afterAll(() => arena.close());

const HOST: Field = ['Host', 'kubernetes.test'];
const bytesOf = (fields: readonly Field[], target = LIST): string =>
  `GET ${target} HTTP/1.1\r\n${[HOST, ...fields].map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`;

/** The request that the API server receives without a gateway. */
async function sendDirectly(fields: readonly Field[], target = LIST): Promise<readonly Field[]> {
  const socket = connect({ port: arena.apiServer.port, host: '127.0.0.1', rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  const reader = new ByteReader(socket);
  socket.write(bytesOf(fields, target));
  await reader.takeThrough('\r\n\r\n');
  socket.destroy();
  return arena.apiServer.requests.at(-1)?.headers ?? [];
}

const withoutHost = (fields: readonly Field[]): readonly Field[] =>
  fields.filter(([name]) => name.toLowerCase() !== 'host');

const PASSED: readonly Field[] = [
  ['User-Agent', 'kubectl/v1.36.0'],
  ['accept', 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json'],
  ['Accept-Encoding', 'gzip'],
  ['Authorization', 'Bearer client-token'],
  ['Cookie', 'a=b; c=d'],
  ['Impersonate-User', 'somebody'],
  ['Impersonate-Group', 'one'],
  ['Impersonate-Group', 'two'],
  ['Impersonate-Extra-scopes%2fx', 'y'],
  ['Audit-ID', 'of-the-client'],
  ['Traceparent', '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01'],
  ['X-Request-Id', '1'],
  ['KUBECTL-Command', 'kubectl get'],
  ['X-Odd_name.too', 'with  spaces'],
  ['Sec-WebSocket-Protocol', 'base64url.bearer.authorization.k8s.io.dG9rZW4, v5.channel.k8s.io'],
];
it('passes every field on as it came, in order and as spelled', async () => {
  const direct = await sendDirectly(PASSED);
  await sendHttp1(arena, ALICE, bytesOf(PASSED));
  expect(withoutHost(arena.apiServer.requests.at(-1)?.headers ?? [])).toEqual(withoutHost(direct));
});

it.each<Field>([
  ['X-Remote-User', 'admin'],
  ['X-Remote-Group', 'system:masters'],
  ['X-Remote-Extra-a', 'b'],
  ['Tailscale-User-Login', 'admin'],
  ['X-Forwarded-For', '10.0.0.1'],
  ['Forwarded', 'for=10.0.0.1'],
  ['X-Real-IP', '10.0.0.1'],
  ['Proxy-Authorization', 'Basic eDp5'],
  ['Keep-Alive', 'timeout=5'],
  ['TE', 'trailers'],
])('drops %s: %s', async (...field) => {
  await sendHttp1(arena, ALICE, bytesOf([field, ['X-After', 'there']]));
  expect(withoutHost(arena.apiServer.requests.at(-1)?.headers ?? [])).toEqual([['X-After', 'there']]);
});

it('drops what Connection names, and Connection', async () => {
  const fields: readonly Field[] = [
    ['Connection', 'keep-alive, X-Named'],
    ['X-Named', '1'],
    ['X-After', 'there'],
  ];
  await sendHttp1(arena, ALICE, bytesOf(fields));
  expect(withoutHost(arena.apiServer.requests.at(-1)?.headers ?? [])).toEqual([['X-After', 'there']]);
});

it.each(['X_Remote_User', 'X.Remote.User', 'Impersonate_User'])('refuses %s', async (name) => {
  const before = arena.apiServer.requests.length;
  expect(await sendHttp1(arena, ALICE, bytesOf([[name, 'admin']]))).toMatchObject({ status: 400 });
  expect(arena.apiServer.requests).toHaveLength(before);
});

it('passes the same on over HTTP/2, whose names are in lower case', async () => {
  const direct = await sendDirectly(PASSED);
  const lower = PASSED.map(([name, value]): Field => [name.toLowerCase(), value]);
  const pseudo: readonly Field[] = [
    [':method', 'GET'],
    [':scheme', 'https'],
    [':path', LIST],
    [':authority', GATEWAY_HOST],
  ];
  expect(await sendHttp2(arena, ALICE, [...pseudo, ...lower])).toMatchObject({ status: 200 });
  const inOrder = (fields: readonly Field[]): readonly Field[] =>
    withoutHost(fields).toSorted(([left], [right]) => left.localeCompare(right));
  expect(inOrder(arena.apiServer.requests.at(-1)?.headers ?? [])).toEqual(
    inOrder(direct.map(([name, value]) => [name.toLowerCase(), value])),
  );
});

describe('a session', () => {
  /** Compares an upgrade through the gateway with an upgrade without the gateway. */
  async function compare(caller: Caller, fields: readonly Field[]): Promise<readonly (readonly Field[])[]> {
    const sent = [...WEBSOCKET.slice(0, 4), ...fields];
    const direct = await sendDirectly(sent, EXEC);
    const answer = await sendHttp1(arena, caller, bytesOf(sent, EXEC), async (_socket, reader) => {
      // the command prints output, so that there is a recording
      arena.apiServer.requests.at(-1)?.socket.write(Buffer.of(0x82, 2, 1, 0x61));
      await reader.take(4);
    });
    expect(answer).toMatchObject({ status: 101 });
    const through = arena.apiServer.requests.at(-1)?.headers ?? [];
    return [direct, through].map((headers) =>
      withoutHost(headers).toSorted(([left], [right]) => left.localeCompare(right)),
    );
  }
  const withoutAuditId = (headers: readonly Field[] = []): readonly Field[] =>
    headers.filter(([name]) => name !== 'Audit-ID');
  const auditIdsOf = (headers: readonly Field[] = []): readonly string[] =>
    headers.filter(([name]) => name.toLowerCase() === 'audit-id').map(([, value]) => value);
  async function recordedHeader(): Promise<ReturnType<typeof parseCastHeader>> {
    const upload = arena.recorder.uploads.at(-1);
    await arena.recorder.until(() => (upload?.lines().length ?? 0) > 0);
    return parseCastHeader(upload?.lines()[0] ?? '');
  }
  const KEPT = PASSED.filter(([name]) => name !== 'Audit-ID');

  it('that is not recorded goes on as it came', async () => {
    const [direct, through] = await compare(ALICE, KEPT);
    expect(through).toEqual(direct);
  });

  it('that is recorded goes on as it came, with the audit id of the recording', async () => {
    const [direct, through] = await compare(BOB, KEPT);
    expect(withoutAuditId(through)).toEqual(direct);
    const { connectionID, extra } = await recordedHeader();
    expect(connectionID).toMatch(/^[0-9a-f-]{36}$/);
    expect(auditIdsOf(through)).toEqual([connectionID]);
    expect(extra.get('tailcastAuditId')).toBe(connectionID);
  });

  it('that is recorded keeps a bearer token among the protocols, and offers none that cannot be recorded', async () => {
    const token = 'base64url.bearer.authorization.k8s.io.dG9rZW4';
    const [, through = []] = await compare(BOB, [
      ['Sec-WebSocket-Protocol', `odd, ${token}`],
      ['Sec-WebSocket-Protocol', 'v5.channel.k8s.io'],
    ]);
    expect(through.filter(([name]) => name === 'Sec-WebSocket-Protocol')).toEqual([
      ['Sec-WebSocket-Protocol', `${token}, v5.channel.k8s.io`],
    ]);
  });

  it.each(['of-the-client', '', 'ABC'])(
    'that is recorded keeps the audit id %j of its client, and the recording claims none',
    async (chosen) => {
      const name = chosen === 'ABC' ? 'aUDIT-iD' : 'Audit-ID';
      const [direct, through] = await compare(BOB, [...KEPT, [name, chosen]]);
      expect(through).toEqual(direct);
      expect((await recordedHeader()).extra.get('tailcastAuditId')).toBe('');
    },
  );

  it('in auth mode has no such claim, for the user is known', async () => {
    const other = await openArena();
    try {
      const fields = [HOST, ...WEBSOCKET].map(([name, value]) => `${name}: ${value}\r\n`).join('');
      await sendHttp1(other, BOB, `GET ${EXEC} HTTP/1.1\r\n${fields}\r\n`, async (_socket, reader) => {
        other.apiServer.requests.at(-1)?.socket.write(Buffer.of(0x82, 2, 1, 0x61));
        await reader.take(4);
      });
      const upload = other.recorder.uploads.at(-1);
      await other.recorder.until(() => (upload?.lines().length ?? 0) > 0);
      expect(parseCastHeader(upload?.lines()[0] ?? '').extra.has('tailcastAuditId')).toBe(false);
    } finally {
      await other.close();
    }
  });
});

describe('a 401 of the API server', () => {
  const UNAUTHORIZED = 'HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno';
  const WARNING =
    /^warning: 299 - "the request has no Authorization header; .*use a token or an exec plugin/im;

  it.each<[string, readonly Field[], boolean]>([
    ['without Authorization', [], true],
    ['with an empty Authorization', [['Authorization', '']], true],
    ['with a token', [['Authorization', 'Bearer expired']], false],
    [
      'with a token among the protocols',
      [['Sec-WebSocket-Protocol', 'base64url.bearer.authorization.k8s.io.dG9r, v5.channel.k8s.io']],
      false,
    ],
  ])('to a request %s (Warning: %s)', async (_name, fields, warned) => {
    arena.apiServer.script = () => UNAUTHORIZED;
    try {
      const plain = await sendHttp1(arena, ALICE, bytesOf(fields));
      const upgrade = await sendHttp1(arena, ALICE, bytesOf([...WEBSOCKET.slice(0, 4), ...fields], EXEC));
      for (const outcome of [plain, upgrade]) {
        if (outcome.kind !== 'response') throw new Error('there was no response');
        expect(outcome).toMatchObject({ status: 401, body: 'no' });
        expect(WARNING.test(outcome.head)).toBe(warned);
      }
    } finally {
      arena.apiServer.script = undefined;
    }
  });

  it('has no such warning for another status', async () => {
    arena.apiServer.script = () => UNAUTHORIZED.replace('401', '403');
    const outcome = await sendHttp1(arena, ALICE, bytesOf([]));
    arena.apiServer.script = undefined;
    expect(outcome).toMatchObject({ status: 403 });
    expect(JSON.stringify(outcome)).not.toMatch(WARNING);
  });
});
