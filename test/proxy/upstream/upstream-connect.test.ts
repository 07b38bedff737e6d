import { once } from 'node:events';
import { connect, createServer as createTcpServer, type AddressInfo, type Server } from 'node:net';
import { createServer, type ConnectionOptions } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { createUpstreamConnector } from '../../../src/proxy/upstream/upstream-connect.ts';
import { issuePki } from '../rig.ts';
import { listenOn } from '../../support/listen.ts';

async function listening(server: Server): Promise<number> {
  await listenOn(server);
  onTestFinished(() => void server.close());
  return (server.address() as AddressInfo).port;
}

/**
 * A TCP relay. After the handshake, the relay holds back the server's data, such as the session ticket, until the test
 * releases the data.
 */
async function startSlowRoad(port: number) {
  const held: (() => void)[] = [];
  const ready = Promise.withResolvers<void>();
  const server = createTcpServer((near) => {
    const far = connect(port, '127.0.0.1');
    let pieces = 0;
    near.on('data', (bytes) => {
      pieces += 1;
      far.write(bytes);
    });
    far.on('data', (bytes) => {
      const pass = (): void => void near.write(bytes);
      if (pieces < 2) pass();
      else held.push(pass);
      if (pieces >= 2) ready.resolve();
    });
    for (const socket of [near, far]) {
      socket.on('error', () => {});
      onTestFinished(() => void socket.destroy());
    }
  });
  return { port: await listening(server), held, sessionIsThere: ready.promise };
}

describe('connections to the API server', () => {
  it('do not resume TLS sessions from connections with other CAs, even if the session arrives late', async () => {
    const [own, stranger] = await Promise.all([issuePki(), issuePki()]);
    const api = createServer({ key: own.key, cert: own.cert }, (socket) => void socket.on('error', () => {}));
    const road = await startSlowRoad(await listening(api));
    const endpoint = {
      host: '127.0.0.1',
      port: road.port,
      serverName: 'localhost',
      tls: { ca: own.ca } as ConnectionOptions,
    };
    const connector = createUpstreamConnector(endpoint);
    const first = await connector.connect();
    onTestFinished(() => void first.destroy());
    await road.sessionIsThere;
    endpoint.tls = { ca: stranger.ca };
    await expect(connector.connect()).rejects.toMatchObject({ code: 'UPSTREAM_UNAVAILABLE' });
    const session = once(first, 'session');
    for (const pass of road.held.splice(0)) pass();
    await session;
    await expect(connector.connect()).rejects.toMatchObject({ code: 'UPSTREAM_UNAVAILABLE' });
  });
});
