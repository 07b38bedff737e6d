/** Clients of `tailcast ingress` that do not read error responses, and clients that use all slots of their address. */
import { once } from 'node:events';
import { request } from 'node:http';
import { connect as connectHttp2, constants, type ClientHttp2Stream } from 'node:http2';
import { connect } from 'node:net';
import { afterEach, expect, it } from 'vitest';
import type { Identity } from '../../src/tailnet/identity.ts';
import { ALICE, HONEST, openIngressRig, type IngressRig } from './ingress-rig.ts';
import { encodeFrame, FRAME, PREFACE } from './raw-http2.ts';

let rig: IngressRig;
const ends: (() => void)[] = [];
afterEach(async () => {
  for (const end of ends.splice(0)) end();
  await rig.close();
});

/** Opens streams for a path without a route, and does not read the responses. */
async function openUnread(count: number): Promise<ClientHttp2Stream[]> {
  const socket = await rig.connect('h2');
  const session = connectHttp2(`http://${HONEST}`, {
    createConnection: () => socket,
    settings: { initialWindowSize: 0 },
  });
  ends.push(() => session.destroy());
  session.on('error', () => {});
  await once(session, 'localSettings');
  return Array.from({ length: count }, () => {
    const stream = session.request({ ':path': '/', ':authority': 'unknown.example.org' });
    stream.on('error', () => {});
    return stream.pause();
  });
}

/** Sends a request from another address. */
function askFrom(localAddress: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const asking = request(
      { host: '127.0.0.1', port: rig.port, localAddress, headers: { host: HONEST }, agent: false },
      (response) => {
        response.resume();
        resolve(response.statusCode ?? 0);
      },
    );
    asking.on('error', reject);
    asking.end();
  });
}

it('leaves slots for other addresses', async () => {
  rig = await openIngressRig({ maxRequests: 100 });
  await openUnread(100);
  await expect.poll(() => rig.server.inFlight).toBe(50);
  expect(await askFrom('127.0.0.2')).toBe(200);
});

it('frees the slots of error responses that nobody reads', async () => {
  rig = await openIngressRig({ maxRequests: 100, refusalMs: 300 });
  const streams = await openUnread(60);
  await expect.poll(() => rig.server.inFlight).toBe(50);
  await expect.poll(() => rig.server.inFlight).toBe(0);
  // the server also closes the 10 streams without a slot
  await expect.poll(() => streams.filter(({ closed }) => closed).length).toBe(60);
});

it('frees the slot of a rejected upgrade on a half-closed connection', async () => {
  rig = await openIngressRig({ refusalMs: 300 });
  const socket = await rig.connect('h1');
  socket.write(
    'GET / HTTP/1.1\r\nHost: unknown.example.org\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n',
  );
  socket.pause();
  ends.push(() => socket.destroy());
  await expect.poll(() => rig.ended).toEqual(['refused']);
  expect(rig.server.inFlight).toBe(1);
  await expect.poll(() => rig.server.inFlight).toBe(0);
});

it('frees the slot of a caller who leaves while whois runs', async () => {
  rig = await openIngressRig({ maxPerCaller: 1 });
  const identity = Promise.withResolvers<Identity>();
  rig.identity = () => identity.promise;
  const socket = await rig.connect('h2');
  const session = connectHttp2(`http://${HONEST}`, { createConnection: () => socket });
  ends.push(() => session.destroy());
  const stream = session.request({ ':path': '/', ':authority': HONEST });
  stream.on('error', () => {});
  await expect.poll(() => rig.server.inFlight).toBe(1);
  stream.close(constants.NGHTTP2_CANCEL);
  await expect.poll(() => rig.server.inFlight).toBe(0);
  identity.resolve(ALICE);
  expect(await askFrom('127.0.0.2')).toBe(200);
});

it('leaves connections for other addresses', async () => {
  rig = await openIngressRig({ maxConnections: 8 });
  const closed: boolean[] = [];
  for (let at = 0; at < 8; at++) {
    const socket = connect(rig.port, '127.0.0.1');
    ends.push(() => socket.destroy());
    socket.on('error', () => {}).once('close', () => closed.push(true));
    socket.resume();
    await once(socket, 'connect');
  }
  await expect.poll(() => closed.length).toBe(4);
  expect(await askFrom('127.0.0.2')).toBe(200);
});

it('closes an idle HTTP/2 connection whose client sends pings and never closes its side', async () => {
  rig = await openIngressRig({ sessionIdleMs: 300 });
  const socket = await rig.connect('h2');
  socket.allowHalfOpen = true;
  socket.resume();
  socket.write(Buffer.concat([PREFACE, encodeFrame(FRAME.settings, 0, 0, new Uint8Array(0))]));
  const timer = setInterval(() => socket.write(encodeFrame(FRAME.ping, 0, 0, new Uint8Array(8))), 50);
  ends.push(() => clearInterval(timer));
  // waits without `once`, which would reject if writing a ping fails first
  await new Promise((resolve) => socket.once('close', resolve));
  expect(socket.destroyed).toBe(true);
});
