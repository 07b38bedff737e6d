/**
 * The gateway sends each client request only once to the program behind a proxy subresource, even if the program fails.
 */
import { afterAll, beforeAll, expect, it } from 'vitest';
import { ALICE, openArena, type Arena } from './arena.ts';
import { LIST, send } from './transports.ts';

let arena: Arena;
beforeAll(async () => {
  arena = await openArena();
});
afterAll(() => arena.close());

it.each([
  '/api/v1/namespaces/n/pods/p/proxy/trigger',
  '/api/v1/namespaces/n/services/s/proxy/trigger',
  '/api/v1/nodes/n/proxy/trigger',
  '/apis/x.example/v1/namespaces/n/machines/m/trigger',
  '/apis/x.example/v1/machines/m/proxy/trigger',
])('GET %s on a keep-alive connection is sent once', async (target) => {
  arena.apiServer.script = undefined;
  await send(arena, 'h1 request', { caller: ALICE, target: LIST });
  let count = 0;
  arena.apiServer.script = ({ requestLine }) => {
    if (!requestLine.includes('/trigger')) return undefined;
    count += 1;
    return (socket) => void socket.destroy();
  };
  const outcome = await send(arena, 'h1 request', { caller: ALICE, target });
  expect(outcome).toMatchObject({ kind: 'response', status: 502 });
  expect(count).toBe(1);
});
