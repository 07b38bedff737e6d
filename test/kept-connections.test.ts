import { once } from 'node:events';
import { Agent, createServer, get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { STALE_MS, watchForLeft } from '../src/kept-connections.ts';

const agent = new Agent({ keepAlive: true, maxSockets: 1 });
/** Answers the first request and no other. */
const server = createServer((request, response) => {
  if (request.url === '/one') response.end();
});

beforeEach(async () => {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
});
afterEach(async () => {
  server.closeAllConnections();
  server.close();
  await once(server, 'close');
});

it.each([
  ['EPIPE', 0, true],
  ['ECONNRESET', STALE_MS, true],
  ['ECONNRESET', STALE_MS + 1, false],
  ['ETIMEDOUT', 0, false],
  [undefined, 0, false],
])('a keep-alive connection that ends with %s after %d ms has been left: %s', async (code, ms, left) => {
  let nowMs = 0;
  const { port } = server.address() as AddressInfo;
  const [first] = (await once(get({ agent, port, path: '/one' }), 'response')) as [IncomingMessage];
  await first.resume().toArray();
  const request = get({ agent, port, path: '/two' });
  const wasLeft = watchForLeft(request, () => nowMs);
  await once(server, 'request');
  nowMs += ms;
  request.destroy(Object.assign(new Error('lost'), code === undefined ? {} : { code }));
  const [error] = (await once(request, 'error')) as [Error];
  expect([request.reusedSocket, wasLeft(error)]).toEqual([true, left]);
});
