/**
 * Clients that send one byte at a time, in each phase of a connection. Each listener must close such connections after
 * a time limit.
 */
import { once } from 'node:events';
import type { IncomingHttpHeaders } from 'node:http2';
import { connect, type Socket } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { http2Client, openRig, rawClient, type Rig, type RigOptions } from '../proxy/rig.ts';
import { createRig } from '../tsrecorder/recorder-rig.ts';
import { encodeFrame, FRAME, PREFACE } from './raw-http2.ts';

/**
 * Maximum number of bytes. Sending this many bytes takes longer than the time limits of these tests, but less time than
 * the limits of production.
 */
const MAX_BYTES = 400;
const EVERY_MS = 10;

/** Sends single bytes until the peer closes the connection. @returns the response */
async function trickle(
  socket: Socket,
  begin: Uint8Array | string,
  next: () => Uint8Array | string,
): Promise<string> {
  let received = '';
  const closed = Promise.withResolvers<void>();
  socket.on('error', () => undefined);
  socket.on('data', (chunk: Buffer) => (received += chunk.toString('latin1')));
  socket.on('end', () => closed.resolve());
  socket.on('close', () => closed.resolve());
  socket.write(begin);
  let sent = 0;
  const timer = setInterval(() => {
    sent += 1;
    if (sent > MAX_BYTES) socket.destroy(new Error('it was never ended'));
    else if (socket.writable) socket.write(next());
  }, EVERY_MS);
  await closed.promise;
  clearInterval(timer);
  socket.destroy();
  expect(sent).toBeLessThan(MAX_BYTES);
  return received;
}

async function gateway(
  options: Partial<RigOptions> = {},
): Promise<{ readonly rig: Rig; dial(): Promise<Socket> }> {
  const rig = await openRig({
    // the API server never responds
    upstream: () => undefined,
    bodyStallMs: 300,
    server: { limits: { headersTimeoutMs: 300 } },
    ...options,
  });
  onTestFinished(() => rig.close());
  return { rig, dial: async () => (await rawClient(rig)).socket };
}

const POST = 'POST /api/v1/pods HTTP/1.1\r\nHost: a\r\n';
const CHUNKED = `${POST}Transfer-Encoding: chunked\r\n\r\n`;

it.each([
  ['a header', 'GET /api HTTP/1.1\r\nHost: a\r\nX-Slow: '],
  ['the request line', 'GET /api'],
  ['a trailer', `${CHUNKED}1\r\nx\r\n0\r\nX-Slow: `],
  ['the trailers of an empty body', `${CHUNKED}0\r\nX-Slow: `],
  ['a chunk extension', `${CHUNKED}1;a=`],
])('the gateway answers 408 to a client that is slow in %s', async (_place, begin) => {
  const { dial } = await gateway();
  expect(await trickle(await dial(), begin, () => 'a')).toMatch(/^HTTP\/1\.1 408 /);
});

it('the gateway answers 408 to a client whose body stalls', async () => {
  const { rig, dial } = await gateway();
  const received = await trickle(await dial(), `${POST}Content-Length: 100\r\n\r\nabc`, () => '');
  expect(received).toMatch(/^HTTP\/1\.1 408 [\s\S]*REQUEST_TIMEOUT/);
  await expect.poll(() => rig.proxy.inFlight).toBe(0);
});

it('the gateway waits for a client whose body is slow and does not stall', async () => {
  const { rig, dial } = await gateway({ bodyStallMs: 500 });
  const socket = await dial();
  socket.on('error', () => undefined);
  socket.write(`${POST}Content-Length: 100\r\n\r\n`);
  for (let sent = 0; sent < 100; sent += 1) {
    socket.write('x');
    await new Promise((resolve) => setTimeout(resolve, EVERY_MS));
  }
  await expect.poll(() => rig.upstreams[0]?.received()).toMatch(/x{100}$/);
});

const SETTINGS = encodeFrame(FRAME.settings, 0, 0, Buffer.alloc(0));

it('the gateway resets an HTTP/2 stream whose body stalls', async () => {
  const { rig } = await gateway();
  const session = http2Client(rig);
  onTestFinished(() => session.destroy());
  const stream = session.request({ ':method': 'POST', ':path': '/api/v1/pods' });
  stream.on('error', () => undefined);
  stream.write('abc');
  const [headers] = (await once(stream, 'response')) as [
    IncomingHttpHeaders & { readonly ':status': number },
  ];
  expect(headers[':status']).toBe(408);
  await expect.poll(() => rig.proxy.inFlight).toBe(0);
});

it.each([
  ['HEADERS without an end', encodeFrame(FRAME.headers, 0, 1, Buffer.from([0x83]))],
  ['a frame header', Buffer.alloc(0)],
])('the recorder ends an HTTP/2 client that is slow in %s', async (_place, begin) => {
  await using rig = await createRig({ timing: { headTimeoutMs: 300, idleTimeoutMs: 300 } });
  const { host, port } = rig.recorder.address;
  const socket = connect(port, host);
  const bytes = Buffer.concat([PREFACE, SETTINGS, begin]);
  const next =
    begin.length === 0 ? Buffer.from([0]) : encodeFrame(FRAME.continuation, 0, 1, Buffer.from([0x84]));
  let sent = 0;
  // a frame header has nine bytes
  const received = await trickle(socket, bytes, () => (begin.length === 0 && (sent += 1) > 8 ? '' : next));
  // the recorder has sent its SETTINGS, which are longer than a frame header
  expect(received.length).toBeGreaterThan(9);
});

it.each([
  ['the first bytes', 'P'],
  ['a header', 'GET /api/v1/recordings HTTP/1.1\r\nHost: localhost\r\nX-Slow: '],
  [
    'the body of a request that needs none',
    'GET /api/v1/recordings HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n',
  ],
  [
    'its trailers',
    'GET /healthz HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Slow: ',
  ],
])('the recorder ends a client that is slow in %s', async (_place, begin) => {
  await using rig = await createRig({ timing: { headTimeoutMs: 300, idleTimeoutMs: 300 } });
  const { host, port } = rig.recorder.address;
  const received = await trickle(connect(port, host), begin, () => (begin === 'P' ? '' : 'a'));
  expect(received).toMatch(/^(?:HTTP\/1\.1 |$)/);
});

it('the portal ends a client that is slow in the body of a request that needs none', async () => {
  const { dial } = await gateway({
    server: {
      limits: { headersTimeoutMs: 300 },
      own: [
        {
          prefix: '/-/recordings/',
          request: (_request, response) => void response.end('page'),
          upgrade: (_request, socket) => void socket.destroy(),
        },
      ],
    },
  });
  const begin = 'GET /-/recordings/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX-Slow: ';
  expect(await trickle(await dial(), begin, () => 'a')).toMatch(/^HTTP\/1\.1 200 /);
});
