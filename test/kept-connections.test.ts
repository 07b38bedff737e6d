import { once } from 'node:events';
import { Agent, createServer, get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { watchForLeft } from '../src/kept-connections.ts';

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
  ['EPIPE', true],
  ['ECONNRESET', true],
  ['ETIMEDOUT', false],
  [undefined, false],
])('a kept connection that ends with %s has been left: %s', async (code, left) => {
  const { port } = server.address() as AddressInfo;
  const [first] = (await once(get({ agent, port, path: '/one' }), 'response')) as [IncomingMessage];
  await first.resume().toArray();
  const request = get({ agent, port, path: '/two' });
  const wasLeft = watchForLeft(request);
  await once(server, 'request');
  request.destroy(Object.assign(new Error('lost'), code === undefined ? {} : { code }));
  const [error] = (await once(request, 'error')) as [Error];
  expect([request.reusedSocket, wasLeft(error)]).toEqual([true, left]);
});
