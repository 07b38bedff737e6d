import { duplexPair } from 'node:stream';
import { setImmediate } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { serveSpdy, type ServedStream } from '../../demo/spdy-server.ts';
import { createSpdyParser, encodeSpdyFrame, type SpdyFrame } from '../../src/wire/spdy/frame.ts';
import { createHeaderDeflater } from '../../src/wire/spdy/headers.ts';

function openPeer(maxStreams = 2): {
  readonly streams: ServedStream[];
  readonly received: string[];
  send(frame: SpdyFrame): boolean;
  sendBytes(bytes: Uint8Array): boolean;
  open(streamId: number, type: string, fin?: boolean): void;
  readonly closed: Promise<void>;
} {
  const [client, server] = duplexPair();
  const streams: ServedStream[] = [];
  const connection = serveSpdy(server, { maxStreams, onStream: (stream) => streams.push(stream) });
  const parser = createSpdyParser();
  const deflater = createHeaderDeflater();
  const received: string[] = [];
  client.on('data', (chunk: Uint8Array) => {
    for (const event of parser.push(chunk)) {
      const id = 'streamId' in event ? event.streamId : 'id' in event ? event.id : 0;
      const detail =
        event.kind === 'data'
          ? `${Buffer.from(event.payload).toString()}${event.fin ? '.' : ''}`
          : 'status' in event
            ? String(event.status)
            : '';
      received.push(`${event.kind} ${String(id)} ${detail}`.trim());
    }
  });
  client.on('end', () => client.end());
  const sendBytes = (bytes: Uint8Array): boolean => client.write(bytes);
  const send = (frame: SpdyFrame): boolean => sendBytes(encodeSpdyFrame(frame));
  return {
    streams,
    received,
    send,
    sendBytes,
    closed: connection.closed,
    open: (streamId, type, fin = false) =>
      void send({
        kind: 'synStream',
        streamId,
        associatedTo: 0,
        priority: 0,
        fin,
        unidirectional: false,
        block: deflater.encode([['streamtype', type]]),
      }),
  };
}

describe('the SPDY server', () => {
  it('accepts a stream before it sends on it, and carries both directions to their ends', async () => {
    const peer = openPeer();
    peer.open(1, 'data');
    await expect.poll(() => peer.streams.length).toBe(1);
    const [stream] = peer.streams;
    expect(stream!.headers.get('streamtype')).toBe('data');
    stream!.output.end('out');
    peer.send({ kind: 'data', streamId: 1, fin: true, payload: Buffer.from('in') });
    expect(Buffer.concat(await stream!.input.toArray()).toString()).toBe('in');
    await expect.poll(() => peer.received).toEqual(['synReply 1', 'data 1 out', 'data 1 .']);
  });

  it('echoes the pings of its client only', async () => {
    const peer = openPeer();
    peer.send({ kind: 'ping', id: 2 });
    peer.send({ kind: 'ping', id: 7 });
    await expect.poll(() => peer.received).toEqual(['ping 7']);
  });

  it('refuses stream ids that are used or not a client’s, and streams beyond its limit', async () => {
    const peer = openPeer(1);
    for (const id of [3, 3, 1, 6, 7]) peer.open(id, 'x');
    await expect
      .poll(() => peer.received)
      .toEqual(['synReply 3', 'rstStream 3 1', 'rstStream 1 1', 'rstStream 6 1', 'rstStream 7 3']);
  });

  it('makes room when a stream has ended on both sides or was reset', async () => {
    const peer = openPeer(1);
    peer.open(1, 'x', true);
    await expect.poll(() => peer.streams.length).toBe(1);
    peer.streams[0]!.input.resume();
    peer.streams[0]!.output.end();
    await expect.poll(() => peer.received.at(-1)).toBe('data 1 .');
    peer.open(3, 'x');
    await expect.poll(() => peer.received.at(-1)).toBe('synReply 3');
    peer.send({ kind: 'rstStream', streamId: 3, status: 5 });
    peer.open(5, 'x');
    await expect.poll(() => peer.received.at(-1)).toBe('synReply 5');
    expect(peer.streams[1]!.input.destroyed).toBe(true);
  });

  it('stops reading while a stream is full and loses nothing', async () => {
    const peer = openPeer();
    peer.open(1, 'data');
    await expect.poll(() => peer.streams.length).toBe(1);
    const payload = Buffer.alloc(1024 * 1024, 'x');
    let taken = true;
    for (let count = 0; count < 8; count += 1) {
      taken = peer.send({ kind: 'data', streamId: 1, fin: count === 7, payload });
    }
    expect(taken).toBe(false);
    const { input } = peer.streams[0]!;
    // Nothing here waits for another process, so after this many turns all pending work is done.
    for (let turn = 0; turn < 1_000; turn += 1) await setImmediate();
    expect(input.readableLength).toBeGreaterThan(0);
    expect(input.readableLength).toBeLessThan(4 * payload.byteLength);
    const all = Buffer.concat(await input.toArray());
    expect(all.equals(Buffer.alloc(8 * payload.byteLength, 'x'))).toBe(true);
  });

  it('says goodbye and hangs up on bytes that are no SPDY', async () => {
    const peer = openPeer();
    peer.sendBytes(Buffer.from('GET / HTTP/1.1\r\n\r\n'.replace('G', '\u00ff'), 'latin1'));
    await peer.closed;
    expect(peer.received).toEqual(['goaway 0 1']);
  });
});
