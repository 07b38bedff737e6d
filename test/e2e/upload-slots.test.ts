/**
 * Runs an exec with enforced recording while another uploader opens thousands of silent uploads. Recorder and gateway
 * are real processes.
 */
import { once } from 'node:events';
import { connect, type ClientHttp2Session } from 'node:http2';
import { connect as connectTcp } from 'node:net';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { startLocalApiDouble, taggedNode, type LocalApiDouble } from '../support/local-api-double.ts';
import type { RoleProcess } from '../support/role-process.ts';
import { eventually } from '../support/until.ts';
import { recordings, startSite, type Site } from './site.ts';

const HOSTILE_ADDRESS = '127.0.0.2';
const CONNECTIONS = 45;
const STREAMS = 100;

const stack = new AsyncDisposableStack();
let site: Site;
let recorder: RoleProcess;

beforeAll(async () => {
  const localApi: LocalApiDouble = await startLocalApiDouble();
  stack.defer(() => localApi.close());
  const hostile = { ...taggedNode(), Node: { ...(taggedNode()['Node'] as object), StableID: 'nHostile' } };
  localApi.whois.get = (address) => (address.startsWith(HOSTILE_ADDRESS) ? hostile : taggedNode(['tag:k8s']));
  site = await startSite();
  stack.defer(() => site.close());
  recorder = await site.startRecorder('only', { identity: 'tailscale', socket: localApi.socketPath });
});

afterAll(() => stack.disposeAsync());

it('works for a gateway while 45 silent connections of another node ask for 4,500 upload slots', async () => {
  const statuses: number[] = [];
  const sessions: ClientHttp2Session[] = [];
  for (let count = 0; count < CONNECTIONS; count += 1) {
    const socket = connectTcp({ host: '127.0.0.1', port: recorder.port, localAddress: HOSTILE_ADDRESS });
    await once(socket, 'connect');
    const session = connect(`http://127.0.0.1:${recorder.port}`, { createConnection: () => socket });
    session.on('error', () => undefined);
    sessions.push(session);
    for (let number = 0; number < STREAMS; number += 1) {
      const stream = session.request({ ':method': 'POST', ':path': '/v2/record' });
      stream
        .on('error', () => undefined)
        .on('response', (headers) => statuses.push(Number(headers[':status'])));
    }
  }
  await eventually('all are answered', async () =>
    statuses.length === CONNECTIONS * STREAMS ? true : undefined,
  );
  expect(new Set(statuses)).toEqual(new Set([200, 503]));
  const gateway = await site.startGateway([recorder]);
  const client = await site.exec(gateway, ['echo', 'recorded']);
  await client.over;
  expect(client.status).toMatchObject({ status: 'Success' });
  await eventually('the recording is in the store', async () =>
    (await recordings(recorder)).find(({ state }) => state === 'completed'),
  );
  for (const session of sessions) session.destroy();
});
