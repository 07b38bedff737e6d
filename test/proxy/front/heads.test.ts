/** Limits on the size and the duration of incomplete headers, and of headers that wait for admission. */
import { once } from 'node:events';
import { connect as connectTls, type TLSSocket } from 'node:tls';
import { PassThrough } from 'node:stream';
import { describe, expect, it, onTestFinished } from 'vitest';
import { collectBody } from '../../../src/proxy/front/event-body.ts';
import { createHeadRate, HEAD_CHECK_MS } from '../../../src/proxy/front/http2-heads.ts';
import { createUserLimits } from '../../../src/proxy/gate/user-limits.ts';
import {
  encodeBlock,
  encodeFrame,
  FLAG,
  FRAME,
  PREFACE,
  readFrames,
  type Field,
} from '../../attack/raw-http2.ts';
import { openRig, rawClient, type Rig, type RigOptions } from '../rig.ts';

const KIB = 1024;
/** Opens a gateway that may buffer 240 KiB of headers, and half of that for each address. */
async function rigWith(options: Partial<RigOptions> = {}, headersTimeoutMs = 30_000): Promise<Rig> {
  const users = createUserLimits({ requests: 100, connections: 100, bytes: 1e6, headBytes: 240 * KIB });
  const rig = await openRig({
    upstream: ({ socket }) =>
      socket.on('data', () => socket.write('HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok')),
    ...options,
    server: { users, limits: { headersTimeoutMs } },
  });
  onTestFinished(() => rig.close());
  return rig;
}

const HOST = 'Host: gateway.test\r\n';
const refusals = async (rig: Rig, code: string): Promise<boolean> =>
  (await rig.metrics.registry.metrics()).includes(`code="${code}"`);

async function h2Socket(rig: Rig): Promise<TLSSocket> {
  const socket = connectTls({
    port: rig.port,
    host: '127.0.0.1',
    servername: 'localhost',
    ca: rig.pki.ca,
    ALPNProtocols: ['h2'],
  });
  onTestFinished(() => void socket.destroy());
  socket.on('error', () => {});
  await once(socket, 'secureConnect');
  socket.write(Buffer.concat([PREFACE, encodeFrame(FRAME.settings, 0, 0, Buffer.alloc(0))]));
  return socket;
}

const REQUEST: readonly Field[] = [
  [':method', 'GET'],
  [':scheme', 'https'],
  [':path', '/version'],
  [':authority', 'gateway.test'],
];
const fieldsOf = (bytes: number): readonly Field[] =>
  Array.from({ length: bytes / KIB }, (_, index): Field => [`x-${index}`, 'v'.repeat(KIB)]);

describe('incomplete heads over HTTP/1.1', () => {
  it('are refused with a Status as soon as one address has sent too many bytes of them', async () => {
    const rig = await rigWith();
    const part = `GET /version HTTP/1.1\r\n${HOST}A: ${'x'.repeat(100 * KIB)}`;
    const first = await rawClient(rig);
    first.socket.write(part);
    const second = await rawClient(rig);
    second.socket.write(part);
    // waits for either response, because the gateway may refuse the first or the second request
    const text = await Promise.race(
      [first, second].map((client) => client.until((got) => got.includes('OVERLOADED'))),
    );
    expect(text).toMatch(/^HTTP\/1\.1 429 /);
    expect(await refusals(rig, 'OVERLOADED')).toBe(true);
  });

  it('do not count once they are complete, and neither do the bodies after them', async () => {
    const rig = await rigWith();
    const client = await rawClient(rig);
    for (const count of [1, 2, 3]) {
      client.socket.write(`GET /version HTTP/1.1\r\n${HOST}A: ${'x'.repeat(100 * KIB)}\r\n\r\n`);
      await client.until((got) => got.split('HTTP/1.1 200').length === count + 1);
    }
    client.socket.write(
      `POST /version HTTP/1.1\r\n${HOST}Content-Length: ${600 * KIB}\r\n\r\n${'x'.repeat(600 * KIB)}`,
    );
    expect(await client.until((got) => got.split('HTTP/1.1 200').length === 5)).not.toContain('429');
  });
});

describe('incomplete heads over HTTP/2', () => {
  it('close their connection when the time limit for a head is over', async () => {
    const rig = await rigWith({}, 2 * HEAD_CHECK_MS);
    const socket = await h2Socket(rig);
    const closed = once(socket, 'close');
    socket.resume();
    const [frame] = encodeBlock(REQUEST, FLAG.endStream);
    frame![4] = FLAG.endStream;
    socket.write(frame!);
    await closed;
    expect(await refusals(rig, 'REQUEST_TIMEOUT')).toBe(true);
  });

  it('close their connection when they have too many bytes', async () => {
    const rig = await rigWith();
    const socket = await h2Socket(rig);
    const closed = once(socket, 'close');
    socket.resume();
    const frames = encodeBlock([...REQUEST, ...fieldsOf(140 * KIB)], FLAG.endStream);
    for (const frame of frames.slice(0, -1)) socket.write(frame);
    await closed;
    expect(await refusals(rig, 'OVERLOADED')).toBe(true);
  });

  it('are distinguished from a stream that was reset', async () => {
    const rig = await rigWith({}, 2 * HEAD_CHECK_MS);
    const socket = await h2Socket(rig);
    const reset = Promise.withResolvers<void>();
    const answered = Promise.withResolvers<void>();
    let pings = 0;
    readFrames(socket, ({ type, flags, streamId, payload }) => {
      if (type === FRAME.reset) reset.resolve();
      if (type === FRAME.headers && streamId === 3) answered.resolve();
      if (type !== FRAME.ping || (flags & FLAG.ack) !== 0) return;
      pings += 1;
      socket.write(encodeFrame(FRAME.ping, FLAG.ack, 0, payload));
      // waits much longer than the time limit for a head
      setTimeout(() => socket.write(encodeBlock(REQUEST, FLAG.endStream, 3)[0]!), 6 * HEAD_CHECK_MS);
    });
    socket.write(encodeBlock([...REQUEST, ['connection', 'close']], FLAG.endStream)[0]!);
    await reset.promise;
    await answered.promise;
    expect(pings).toBe(1);
    expect(await refusals(rig, 'REQUEST_TIMEOUT')).toBe(false);
  });
});

describe('long heads of one HTTP/2 connection', () => {
  it('are refused above a rate limit; far above it, the connection is closed', () => {
    let now = 0;
    const rate = createHeadRate(() => now);
    const take = (): string | undefined => rate.take(256 * KIB)?.code;
    for (let count = 0; count < 16; count += 1) expect(take()).toBeUndefined();
    expect(take()).toBe('OVERLOADED');
    expect(rate.isExcessive).toBe(false);
    now = 1000;
    expect(take()).toBeUndefined();
    for (let count = 0; count < 32; count += 1) take();
    expect(rate.isExcessive).toBe(true);
    expect(rate.take(16 * KIB)).toBeUndefined();
  });

  it('close the connection, which is logged and counted, even if each head is small when compressed', async () => {
    const rig = await rigWith();
    const socket = await h2Socket(rig);
    const closed = once(socket, 'close');
    socket.resume();
    const [first] = encodeBlock([...REQUEST], FLAG.endStream);
    // sends a header with a value of 4,000 bytes, which enters the HPACK table, and then 60 references to this entry
    const value = Buffer.alloc(4000, 'v');
    const literal = Buffer.concat([
      Buffer.of(0x40, 3),
      Buffer.from('x-a'),
      Buffer.of(127, 0xa1, 0x1e),
      value,
    ]);
    const block = (streamId: number): Buffer =>
      encodeFrame(
        FRAME.headers,
        FLAG.endStream | FLAG.endHeaders,
        streamId,
        Buffer.concat([
          first!.subarray(9),
          streamId === 1 ? literal : Buffer.alloc(0),
          Buffer.alloc(60, 0xbe),
        ]),
      );
    for (let streamId = 1; streamId < 120; streamId += 2) socket.write(block(streamId));
    await closed;
    expect(await refusals(rig, 'OVERLOADED')).toBe(true);
  });
});

describe('the body for an event', () => {
  it('is stored in one buffer, even if its chunks are small, and counts before the buffer grows', async () => {
    const stream = new PassThrough();
    const held: number[] = [];
    const collected = collectBody(stream, 64 * KIB, (bytes) => held.push(bytes));
    for (let count = 0; count < 10_000; count += 1) stream.write('x');
    stream.end();
    const { chunks, complete } = await collected;
    expect(complete).toBe(true);
    expect(chunks).toHaveLength(1);
    expect(Buffer.concat(chunks).toString()).toBe('x'.repeat(10_000));
    expect(held).toEqual([4096, 8192, 16_384]);
  });

  it('is not read any further if the byte limit is exceeded', async () => {
    const stream = new PassThrough();
    const collected = collectBody(stream, 64 * KIB, () => {
      throw new Error('full');
    });
    stream.write('x');
    await expect(collected).rejects.toThrow('full');
    expect(stream.isPaused()).toBe(true);
  });
});
