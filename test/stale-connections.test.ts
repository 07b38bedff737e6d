import { once } from 'node:events';
import { Agent, createServer, get, request, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { limitBody, STALE_MS, watchForStale } from '../src/stale-connections.ts';
import { listenOn } from './support/listen.ts';

const agent = new Agent({ keepAlive: true, maxSockets: 1 });
/** Responds to the path `/one`, and leaves all other requests without a response. */
const server = createServer((request, response) => {
  if (request.url === '/one') response.end();
});

beforeEach(async () => {
  await listenOn(server);
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
  const second = get({ agent, port, path: '/two' });
  const isStale = watchForStale(second, () => nowMs);
  await once(server, 'request');
  nowMs += ms;
  second.destroy(Object.assign(new Error('lost'), code === undefined ? {} : { code }));
  const [error] = (await once(second, 'error')) as [Error];
  expect([second.reusedSocket, isStale(error)]).toEqual([true, left]);
});

it('limits each body of a connection without leaving listeners on its socket', async () => {
  const counts: number[] = [];
  const limiting = createServer((incoming, response) => {
    limitBody(incoming, 60_000)
      .resume()
      .once('end', () => {
        counts.push(incoming.socket.listenerCount('close'));
        response.end();
      });
  });
  const port = await listenOn(limiting);
  for (let index = 0; index < 5; index += 1) {
    const posted = request({ agent, port, method: 'POST' }).end('body');
    const [response] = (await once(posted, 'response')) as [IncomingMessage];
    await response.resume().toArray();
  }
  expect(new Set(counts).size).toBe(1);
  limiting.close();
  limiting.closeAllConnections();
  await once(limiting, 'close');
});
