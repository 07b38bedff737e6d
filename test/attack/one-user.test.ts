/** A user who uses every slot is refused at the limit per user, while another user is served. */
import { once } from 'node:events';
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

const GREEDY: Caller = { address: '100.64.0.21', login: 'greedy@example.com', groups: ['devs'] };
/** Another node of the same user. */
const GREEDY_TOO: Caller = { ...GREEDY, address: '100.64.0.22' };
const LIMIT = 40;
const BYTES = 256 * 1024;
const WATCH = '/api/v1/pods?watch=true';
const BULK = '/api/v1/pods?bulk=true';
const HOST = `Host: ${GATEWAY_HOST}\r\n`;

let arena: Arena;
beforeAll(async () => {
  arena = await openArena({ requestsPerUser: LIMIT, accessLog: false }, undefined, {
    connections: LIMIT + 10,
    bytes: BYTES,
  });
  for (const caller of [GREEDY, GREEDY_TOO])
    introduce(arena.localApi, caller, [{ impersonate: { groups: caller.groups } }]);
  const head = 'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n';
  arena.apiServer.script = ({ requestLine }) => {
    if (requestLine.includes(WATCH)) return head;
    if (!requestLine.includes(BULK)) return undefined;
    return (socket) => {
      socket.write(head);
      const chunk = `10000\r\n${'x'.repeat(0x10000)}\r\n`;
      const pour = (): void => {
        while (!socket.destroyed && socket.write(chunk, 'latin1'));
      };
      socket.on('drain', pour);
      pour();
    };
  };
});
afterAll(() => arena.close());

const get = (target: string): string => `GET ${target} HTTP/1.1\r\n${HOST}\r\n`;
const LIST = '/api/v1/namespaces/default/pods';
const ask = (caller: Caller): ReturnType<typeof sendHttp1> => sendHttp1(arena, caller, get(LIST));

/** A port-forward over SPDY. */
const forward = (more = ''): string =>
  `POST ${LIST}/p/portforward HTTP/1.1\r\n${HOST}Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n` +
  `X-Stream-Protocol-Version: portforward.k8s.io\r\nContent-Length: 0\r\n${more}\r\n`;
const SWITCHED =
  'HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: SPDY/3.1\r\n' +
  'X-Stream-Protocol-Version: portforward.k8s.io\r\n\r\n';

/** Opens a watch, and returns its connection when the response headers have arrived. */
async function watch(caller: Caller): Promise<TLSSocket> {
  const socket = await connectAs(arena, caller, 'http/1.1');
  const reader = new ByteReader(socket);
  socket.write(get(WATCH));
  expect(await reader.takeThrough('\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 /);
  return socket;
}

async function expectRefused(caller: Caller, why: RegExp): Promise<void> {
  const refused = await ask(caller);
  expect(refused).toMatchObject({ kind: 'response', status: 429 });
  if (refused.kind !== 'response') throw new Error('unreachable');
  expect(refused.head).toMatch(/\r\nRetry-After: \d+\r\n/);
  expect(JSON.parse(refused.body)).toMatchObject({ kind: 'Status', reason: 'TooManyRequests' });
  expect(refused.body).toMatch(why);
}

describe('a user who takes', () => {
  it('more watches than one may have is refused, from each node; others are served', async () => {
    const watches: TLSSocket[] = [];
    for (let index = 0; index < LIMIT; index++)
      watches.push(await watch(index % 2 === 0 ? GREEDY : GREEDY_TOO));
    await expectRefused(GREEDY, /40 requests in flight/);
    await expectRefused(GREEDY_TOO, /40 requests in flight/);
    expect(await ask(ALICE)).toMatchObject({ status: 200 });
    // a released slot can be used again
    watches[0]?.destroy();
    await expect.poll(() => ask(GREEDY)).toMatchObject({ status: 200 });
    for (const socket of watches) socket.destroy();
    await expect.poll(() => ask(GREEDY)).toMatchObject({ status: 200 });
  });

  it('more connections than one may have is refused on the next, idle or not; others are served', async () => {
    const idle = await Promise.all(
      Array.from({ length: LIMIT + 10 }, () => connectAs(arena, GREEDY, 'http/1.1')),
    );
    await expectRefused(GREEDY, /too many requests/);
    expect(await ask(ALICE)).toMatchObject({ status: 200 });
    for (const socket of idle) socket.destroy();
    await expect.poll(() => ask(GREEDY)).toMatchObject({ status: 200 });
  });

  it('more connections from many nodes is refused by name', async () => {
    const used: TLSSocket[] = [];
    for (let index = 0; index < LIMIT + 10; index++) {
      const socket = await connectAs(arena, index % 2 === 0 ? GREEDY : GREEDY_TOO, 'http/1.1');
      const reader = new ByteReader(socket);
      socket.write(get(LIST));
      expect(await reader.takeThrough('\r\n\r\n')).toMatch(/^HTTP\/1\.1 200 /);
      used.push(socket);
    }
    await expectRefused(GREEDY, /50 connections open/);
    expect(await ask(ALICE)).toMatchObject({ status: 200 });
    for (const socket of used) socket.destroy();
    await expect.poll(() => ask(GREEDY)).toMatchObject({ status: 200 });
  });

  it('answers that are not read is refused when enough of them waits; others are served', async () => {
    const readers: TLSSocket[] = [];
    const full = async (): Promise<boolean> => {
      const refused = await ask(GREEDY);
      return refused.kind === 'response' && refused.status === 429;
    };
    for (let index = 0; index < 20 && !(await full()); index++) {
      const socket = await connectAs(arena, GREEDY, 'http/1.1');
      socket.write(get(BULK));
      await once(socket, 'readable');
      readers.push(socket);
    }
    await expect.poll(full).toBe(true);
    await expectRefused(GREEDY, /too much memory/);
    expect(await ask(ALICE)).toMatchObject({ status: 200 });
    for (const socket of readers) socket.destroy();
    await expect.poll(() => ask(GREEDY)).toMatchObject({ status: 200 });
  });

  it('upgrades that wait for the API server is refused at the limit for requests, and not once they run', async () => {
    const waiting = new Set<Socket>();
    arena.apiServer.script = ({ requestLine }) =>
      requestLine.includes('/portforward') ? (socket) => void waiting.add(socket) : undefined;
    const clients = await Promise.all(
      Array.from({ length: LIMIT }, () => connectAs(arena, GREEDY, 'http/1.1')),
    );
    for (const client of clients) client.write(forward());
    await expect.poll(() => waiting.size).toBe(LIMIT);
    await expectRefused(GREEDY, /40 requests in flight/);
    expect(await ask(ALICE)).toMatchObject({ status: 200 });
    for (const socket of waiting) socket.write(SWITCHED);
    await Promise.all(clients.map((client) => new ByteReader(client).takeThrough('\r\n\r\n')));
    expect(await ask(GREEDY)).toMatchObject({ status: 200 });
    for (const client of clients) client.destroy();
  });

  it('sessions with long heads is refused when enough bytes of them are in memory', async () => {
    arena.apiServer.script = ({ requestLine }) =>
      requestLine.includes('/portforward') ? SWITCHED : undefined;
    const clients: TLSSocket[] = [];
    for (let bytes = 0; bytes <= BYTES; bytes += 100_000) {
      const client = await connectAs(arena, GREEDY, 'http/1.1');
      client.write(forward(`X-Long: ${'x'.repeat(100_000)}\r\n`));
      expect(await new ByteReader(client).takeThrough('\r\n\r\n')).toMatch(/^HTTP\/1\.1 101 /);
      clients.push(client);
    }
    await expectRefused(GREEDY, /too much memory/);
    expect(await ask(ALICE)).toMatchObject({ status: 200 });
    for (const client of clients) client.destroy();
    await expect.poll(() => ask(GREEDY)).toMatchObject({ status: 200 });
  });
});
