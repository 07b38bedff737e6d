import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { afterEach, describe, expect, it } from 'vitest';
import { createSilentLogger } from '../../src/observe/logger.ts';
import type { Peer } from '../../src/tailnet/identity.ts';
import { createReception } from '../../src/tailnet/reception.ts';
import { listenOn } from '../support/listen.ts';

const HEADER = 'PROXY TCP4 100.64.0.3 100.64.0.2 33664 443\r\n';

let server: Server;
const sockets: Socket[] = [];

afterEach(async () => {
  for (const socket of sockets.splice(0)) socket.destroy();
  server.close();
  await once(server, 'close');
});

/** Simulates a connection from `remoteAddress`. Resolves with the peer, or `closed`. */
async function arrive(
  remoteAddress: string,
  options: { readonly proxyProtocol: 'off' | 'require' },
): Promise<Peer | 'closed'> {
  const outcome = Promise.withResolvers<Peer | 'closed'>();
  const reception = createReception({
    certificates: undefined,
    log: createSilentLogger(),
    headerTimeoutMs: 10_000,
    handshakeTimeoutMs: 10_000,
    maxHalfOpen: 10,
    handOver: (_socket, _alpn, peer) => outcome.resolve(peer),
    ...options,
  });
  server = createServer((raw) => {
    sockets.push(raw);
    Object.defineProperty(raw, 'remoteAddress', { value: remoteAddress });
    reception.receive(raw);
  });
  const client = connect(await listenOn(server), '127.0.0.1');
  sockets.push(client);
  client.on('error', () => undefined).resume();
  client.on('close', () => outcome.resolve('closed'));
  client.write(HEADER);
  return await outcome.promise;
}

describe('receiving a connection', () => {
  it.each(['127.0.0.1', '127.8.9.1', '::1', '::ffff:127.0.0.1'])(
    'believes a PROXY header from %s',
    async (address) => {
      expect(await arrive(address, { proxyProtocol: 'require' })).toMatchObject({ address: '100.64.0.3' });
    },
  );

  it.each(['100.64.0.9', '192.168.1.1', 'fd7a::9', '::ffff:100.64.0.9'])(
    'turns away %s, who could claim to be anybody',
    async (address) => {
      expect(await arrive(address, { proxyProtocol: 'require' })).toBe('closed');
    },
  );

  it('names an IPv4 client of a dual-stack listener by its IPv4 address', async () => {
    expect(await arrive('::ffff:100.64.0.9', { proxyProtocol: 'off' })).toMatchObject({
      address: '100.64.0.9',
      source: 'socket',
    });
  });
});
