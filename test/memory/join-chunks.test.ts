/** Bodies that consist of one-byte chunks, over real sockets. */
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { createServer as createHttp2Server } from 'node:http2';
import { connect, type Server, type Socket } from 'node:net';
import { Readable } from 'node:stream';
import fc from 'fast-check';
import { expect, it, onTestFinished } from 'vitest';
import { joinSmallChunks } from '../../src/memory/join-chunks.ts';
import { listenOn } from '../support/listen.ts';

async function dial(server: Server): Promise<Socket> {
  const socket = connect(await listenOn(server), '127.0.0.1');
  onTestFinished(() => {
    socket.destroy();
    server.close();
  });
  await once(socket, 'connect');
  return socket;
}

/** Returns the chunks that a stream delivers after it is resumed. */
async function chunksOf(stream: Readable): Promise<readonly Buffer[]> {
  const chunks: Buffer[] = [];
  stream.on('data', (chunk: Buffer) => chunks.push(chunk));
  stream.resume();
  await once(stream, 'end');
  return chunks;
}

const BYTES = 200_000;

it('an HTTP/1.1 body of chunks of one byte waits in few chunks', async () => {
  const arrived = Promise.withResolvers<IncomingMessage>();
  const server = createServer((request) => {
    joinSmallChunks(request);
    request.pause();
    arrived.resolve(request);
  });
  const socket = await dial(server);
  socket.write('POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n');
  socket.end(`${'1\r\nx\r\n'.repeat(BYTES)}0\r\n\r\n`);
  const request = await arrived.promise;
  // the parser stops reading at the high-water mark of the stream
  await expect.poll(() => request.readableLength).toBeGreaterThan(8192);
  const buffered: unknown = Reflect.get(request, '_readableState');
  const { buffer } = buffered as { readonly buffer: readonly unknown[] };
  expect(buffer.length).toBeLessThan(100);
  const chunks = await chunksOf(request);
  expect(Buffer.concat(chunks).toString()).toBe('x'.repeat(BYTES));
});

function frame(type: number, flags: number, stream: number, payload: string | Buffer): Buffer {
  const content = Buffer.from(payload);
  const head = Buffer.alloc(9);
  head.writeUIntBE(content.length, 0, 3);
  head.writeUInt8(type, 3);
  head.writeUInt8(flags, 4);
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, content]);
}

it('an HTTP/2 body of frames of one byte waits in few chunks, up to the window', async () => {
  const arrived = Promise.withResolvers<Readable>();
  const server = createHttp2Server({ settings: { initialWindowSize: 1_048_576 } });
  server.on('session', (session) => session.setLocalWindowSize(8_388_608));
  server.on('stream', (stream) => {
    stream.on('error', () => undefined);
    joinSmallChunks(stream);
    stream.pause();
    arrived.resolve(stream);
  });
  const socket = await dial(server);
  socket.write('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
  socket.write(frame(4, 0, 0, ''));
  await once(socket, 'data');
  socket.write(frame(4, 1, 0, ''));
  socket.write(frame(1, 4, 1, Buffer.from([0x83, 0x84, 0x86, 0x41, 0x01, 0x78])));
  socket.write(Buffer.concat(Array.from({ length: BYTES }, () => frame(0, 0, 1, 'x'))));
  const stream = await arrived.promise;
  await expect.poll(() => stream.readableLength, { timeout: 10_000 }).toBeGreaterThan(BYTES - 5000);
  socket.write(frame(0, 1, 1, ''));
  const chunks = await chunksOf(stream);
  expect(Buffer.concat(chunks).toString()).toBe('x'.repeat(BYTES));
  expect(chunks.length).toBeLessThan(200);
});

it('bytes stay in order, whatever their chunks, and whenever somebody pauses', async () => {
  const step = fc.oneof(
    fc.uint8Array({ minLength: 1, maxLength: 3000 }),
    fc.constantFrom('pause' as const, 'resume' as const, 'turn' as const),
  );
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 40 }), async (steps) => {
      const stream = new Readable({ read: () => undefined });
      joinSmallChunks(stream);
      const sent: Uint8Array[] = [];
      const received: Buffer[] = [];
      stream.on('data', (chunk: Buffer) => received.push(chunk));
      for (const next of steps) {
        if (next === 'pause') stream.pause();
        else if (next === 'resume') stream.resume();
        else if (next === 'turn') await new Promise(setImmediate);
        else {
          sent.push(next);
          stream.push(next);
        }
      }
      stream.push(null);
      stream.resume();
      await once(stream, 'end');
      expect(Buffer.concat(received)).toEqual(Buffer.concat(sent));
    }),
  );
});
