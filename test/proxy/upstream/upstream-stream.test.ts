import { createHash, randomBytes } from 'node:crypto';
import { once } from 'node:events';
import type { AddressInfo, Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { createServer, type TLSSocket } from 'node:tls';
import { describe, expect, it, onTestFinished } from 'vitest';
import { give, isPooled } from '../../../src/memory/read-buffers.ts';
import { createUpstreamConnector } from '../../../src/proxy/upstream/upstream-connect.ts';
import type { UpstreamStream } from '../../../src/proxy/upstream/upstream-stream.ts';
import { issuePki } from '../rig.ts';
import { listenOn } from '../../support/listen.ts';

const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
const sha256 = (pieces: Iterable<Uint8Array>): string => {
  const hash = createHash('sha256');
  for (const piece of pieces) hash.update(piece);
  return hash.digest('hex');
};

/** Opens a connection. @returns `stream` at the gateway, and `server`, its other end at the API server */
async function connect(): Promise<{
  readonly stream: UpstreamStream;
  readonly server: TLSSocket;
  readonly raw: Socket;
}> {
  const pki = await issuePki();
  const listener = createServer({ cert: pki.cert, key: pki.key, allowHalfOpen: true });
  await listenOn(listener);
  onTestFinished(() => void listener.close());
  const { port } = listener.address() as AddressInfo;
  const accepted = once(listener, 'secureConnection') as Promise<[TLSSocket]>;
  const connected = once(listener, 'connection') as Promise<[Socket]>;
  const connector = createUpstreamConnector({
    host: '127.0.0.1',
    port,
    serverName: 'localhost',
    tls: { ca: pki.ca },
  });
  const stream = await connector.connectStream();
  const [server] = await accepted;
  const [raw] = await connected;
  server.on('error', () => {});
  onTestFinished(() => {
    stream.destroy();
    server.destroy();
  });
  return { stream, server, raw };
}

describe('a connection to the API server as a stream', () => {
  it('delivers every byte, and does not overwrite memory that was not returned', async () => {
    const { stream, server } = await connect();
    const sent = randomBytes(6_000_000);
    for (let at = 0, size = 1; at < sent.length; at += size, size = (size * 7 + 13) % 60_000) {
      size = Math.max(1, size);
      server.write(sent.subarray(at, at + size));
    }
    server.end();
    const hash = createHash('sha256');
    const kept: Uint8Array[] = [];
    const copies: Uint8Array[] = [];
    let pieces = 0;
    stream.on('data', (piece: Uint8Array) => {
      hash.update(piece);
      pieces += 1;
      if (pieces % 3 === 0) {
        kept.push(piece);
        copies.push(Uint8Array.from(piece));
      } else give(piece);
      if (pieces % 50 !== 0) return;
      stream.pause();
      setImmediate(() => stream.resume());
    });
    await once(stream, 'close');
    expect(hash.digest('hex')).toBe(sha256([sent]));
    expect(kept.some(isPooled)).toBe(true);
    expect(sha256(kept)).toBe(sha256(copies));
  });

  it('reuses memory that was returned', async () => {
    const { stream, server } = await connect();
    const memories = new Set<ArrayBufferLike>();
    let pieces = 0;
    stream.on('data', (piece: Uint8Array) => {
      pieces += 1;
      if (isPooled(piece)) memories.add(piece.buffer);
      give(piece);
    });
    server.end(randomBytes(4_000_000));
    await once(stream, 'close');
    expect(pieces).toBeGreaterThan(200);
    expect(memories.size).toBe(1);
  });

  it('reads a limited amount while nobody consumes the data', async () => {
    const { stream, server } = await connect();
    const sent = randomBytes(30_000_000);
    server.write(sent);
    server.end();
    await once(stream, 'readable');
    // waits until both ends have been idle for many turns of the event loop
    for (let before = -1, same = 0; same < 200; same += 1, await turn()) {
      if (stream.readableLength + server.bytesWritten !== before) same = 0;
      before = stream.readableLength + server.bytesWritten;
    }
    expect(stream.readableLength).toBeLessThan(200_000);
    const hash = createHash('sha256');
    for await (const piece of stream) hash.update(piece as Uint8Array);
    expect(hash.digest('hex')).toBe(sha256([sent]));
  });

  it('delivers the data before an unexpected end, and then ends', async () => {
    const { stream, server } = await connect();
    server.end('said');
    server.resume();
    await once(server, 'finish');
    for (let turns = 0; turns < 50; turns += 1) await turn();
    expect([stream.destroyed, stream.writable]).toEqual([false, true]);
    expect(await text(stream)).toBe('said');
    await once(server, 'close');
  });

  it('sends all written data before it ends', async () => {
    const { stream, server } = await connect();
    const sent = randomBytes(3_000_000);
    stream.cork();
    stream.write(sent.subarray(0, 10));
    stream.write(sent.subarray(10, 2_000_000));
    stream.uncork();
    stream.write(sent.subarray(2_000_000));
    stream.end();
    const pieces: Uint8Array[] = [];
    server.on('data', (piece: Uint8Array) => pieces.push(piece));
    await once(server, 'end');
    expect(sha256(pieces)).toBe(sha256([sent]));
    expect(stream.destroyed).toBe(false);
    server.end('bye');
    expect(await text(stream)).toBe('bye');
  });

  it('breaks when its connection breaks', async () => {
    const { stream, raw } = await connect();
    stream.resume();
    const error = once(stream, 'error');
    raw.resetAndDestroy();
    expect(String(await error)).toContain('ECONNRESET');
  });

  it('closes its connection when it is destroyed', async () => {
    const { stream, server } = await connect();
    server.resume();
    const ended = once(server, 'end');
    stream.destroy();
    await expect(ended).resolves.toEqual([]);
  });
});
