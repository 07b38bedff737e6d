/** In noauth mode a request reaches the API server as on a direct connection, but for what docs/threat-model.md names. */
import { once } from 'node:events';
import { connect } from 'node:tls';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ByteReader } from '../support/byte-reader.ts';
import { ALICE, openArena, sendHttp1, type Arena } from './arena.ts';
import type { Field } from './raw-http2.ts';
import { LIST } from './transports.ts';

let arena: Arena;
beforeAll(async () => {
  arena = await openArena({ mode: 'noauth' });
});
afterAll(() => arena.close());

const HOST: Field = ['Host', 'kubernetes.test'];
const bytesOf = (fields: readonly Field[]): string =>
  `GET ${LIST} HTTP/1.1\r\n${[HOST, ...fields].map(([name, value]) => `${name}: ${value}\r\n`).join('')}\r\n`;

/** What the API server gets without a gateway. */
async function sendDirectly(fields: readonly Field[]): Promise<readonly Field[]> {
  const socket = connect({ port: arena.apiServer.port, host: '127.0.0.1', rejectUnauthorized: false });
  await once(socket, 'secureConnect');
  const reader = new ByteReader(socket);
  socket.write(bytesOf(fields));
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
