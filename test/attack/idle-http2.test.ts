/** HTTP/2 connections that occupy a connection slot of the gateway although no request is in progress. */
import { once } from 'node:events';
import { connect as connectTls } from 'node:tls';
import { expect, it, onTestFinished } from 'vitest';
import { TailcastError } from '../../src/errors.ts';
import { http2Client, rigWith, type Rig, type RigOptions } from '../proxy/rig.ts';
import { encodeFrame, FRAME, PREFACE } from './raw-http2.ts';

const IDLE_MS = 300;
const LIMITS = { server: { limits: { keepAliveMs: IDLE_MS } } };

async function clientOf(rig: Rig, settings = {}) {
  const session = http2Client(rig);
  session.on('error', () => {});
  onTestFinished(() => session.destroy());
  session.settings(settings);
  await once(session, 'remoteSettings');
  return session;
}

it('closes a session without a request, although the client sends pings', async () => {
  const session = await clientOf(await rigWith(() => {}, LIMITS));
  const timer = setInterval(() => session.ping(() => {}), 50);
  onTestFinished(() => clearInterval(timer));
  await once(session, 'close');
  expect(session.destroyed).toBe(true);
});

it('closes an idle connection whose client never closes its side', async () => {
  const rig = await rigWith(() => {}, LIMITS);
  const open = async (): Promise<unknown> => (await rig.metrics.connections.get()).values[0]?.value;
  const options = {
    host: '127.0.0.1',
    port: rig.port,
    servername: 'localhost',
    ca: rig.pki.ca,
    ALPNProtocols: ['h2'],
    allowHalfOpen: true,
  };
  const socket = connectTls(options);
  socket.on('error', () => {});
  onTestFinished(() => void socket.destroy());
  await once(socket, 'secureConnect');
  socket.write(Buffer.concat([PREFACE, encodeFrame(FRAME.settings, 0, 0, new Uint8Array(0))]));
  await expect.poll(open).toBe(1);
  await expect.poll(open, { timeout: 5000 }).toBe(0);
});

it('keeps a session with a quiet watch, and closes the session after the end of the watch', async () => {
  const upstream: RigOptions['upstream'] = ({ socket }) => {
    socket.once('data', () => socket.write('HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n'));
  };
  const rig = await rigWith(upstream, LIMITS);
  const session = await clientOf(rig);
  const stream = session.request({ ':path': '/api/v1/pods?watch=true' });
  await once(stream, 'response');
  await new Promise((resolve) => setTimeout(resolve, 4 * IDLE_MS));
  expect(session.closed).toBe(false);
  stream.resume();
  rig.upstreams[0]!.socket.write('0\r\n\r\n');
  await once(session, 'close');
  expect(session.destroyed).toBe(true);
});

it('closes a session whose client does not read the error response', { timeout: 30_000 }, async () => {
  const rig = await rigWith(() => {}, {
    ...LIMITS,
    identities: { whois: () => Promise.reject(new TailcastError('IDENTITY_UNKNOWN')) },
  });
  const session = await clientOf(rig, { initialWindowSize: 0 });
  const stream = session.request({ ':path': '/api' });
  stream.on('error', () => {});
  stream.pause();
  await once(session, 'close');
  expect(session.destroyed).toBe(true);
});
