import { createHash, randomBytes, type Hash } from 'node:crypto';
import type { Duplex } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { encodeWebSocketFrame } from '../../src/wire/websocket/frame.ts';
import { openRecorded } from '../support/recorded-rig.ts';
import type { RecorderDouble } from '../support/recorder-double.ts';
import {
  clientMessage,
  createSpdyPeer,
  MASK,
  serverEnd,
  serverMessage,
  STATUS_SUCCESS,
  utf8,
} from '../support/stream-peers.ts';
import { hex } from '../support/tapped-session.ts';
import { askUpgrade, EXEC_TTY, SPDY_V4, switching, WEBSOCKET_V5 } from '../support/upgrade-rig.ts';

const MIB = 1024 * 1024;

/** Reproducible random numbers, so that a failing segmentation can be repeated. */
function createRandom(seed: number): (below: number) => number {
  let state = seed + 0x9e37_79b9;
  return (below) => {
    state = Math.imul(state ^ (state >>> 15), 0x2c1b_3c6d) + 0x6d2b_79f5;
    state ^= state >>> 13;
    return (state >>> 0) % below;
  };
}

/** Writes `bytes` in segments of random size, with waits for `drain`. */
async function writeSegments(socket: Duplex, bytes: Buffer, maxSegment: number, seed: number): Promise<void> {
  const random = createRandom(seed);
  for (let offset = 0; offset < bytes.length;) {
    const end = Math.min(bytes.length, offset + 1 + random(maxSegment));
    if (!socket.write(bytes.subarray(offset, end))) {
      await new Promise<void>((resolve) => socket.once('drain', resolve));
    }
    offset = end;
  }
}

function sha256(): Hash {
  return createHash('sha256');
}

/** Returns the output of the process according to a recording, byte for byte. */
function recordedBytes(recorder: RecorderDouble): Buffer {
  const parts: Buffer[] = [];
  let raw: string | undefined;
  for (const line of recorder.uploads[0]!.lines().slice(1)) {
    const parsed = JSON.parse(line) as { kind?: string; base64?: string } | [number, string, string];
    if (Array.isArray(parsed)) {
      if (parsed[1] !== 'o') continue;
      parts.push(raw === undefined ? Buffer.from(parsed[2]) : Buffer.from(raw, 'base64'));
      raw = undefined;
    } else if (parsed.kind === 'raw') raw = parsed.base64;
  }
  return Buffer.concat(parts);
}

/** Returns SPDY bytes without the pings that the gateway sends in sessions with a terminal. */
function withoutPings(bytes: Buffer): Buffer {
  const frames: Uint8Array[] = [];
  for (let at = 0; at < bytes.length;) {
    const end = at + 8 + bytes.readUIntBE(at + 5, 3);
    if (bytes.readUInt32BE(at) !== 0x8003_0006) frames.push(bytes.subarray(at, end));
    at = end;
  }
  return Buffer.concat(frames);
}

describe('large transfers through a recorded session', () => {
  it.each([
    [4 * 1024, 1460, 0],
    [4 * 1024, 16 * 1024, 1],
    [32 * 1024, 1460, 2],
    [32 * 1024, 16 * 1024, 3],
  ])(
    '8 MiB of stdin in frames of %i bytes and segments up to %i bytes arrive unchanged',
    async (frame, segment, seed) => {
      const arrived = sha256();
      const finished = Promise.withResolvers<void>();
      let size = 0;
      const data = randomBytes(8 * MIB);
      const frames: Uint8Array[] = [];
      for (let offset = 0; offset < data.length; offset += frame) {
        frames.push(clientMessage(0, data.subarray(offset, offset + frame)));
        if (frames.length % 100 === 0) {
          frames.push(encodeWebSocketFrame({ opcode: 9, fin: true, payload: hex('0102'), mask: MASK }));
        }
      }
      frames.push(clientMessage(255, Uint8Array.of(0)));
      frames.push(encodeWebSocketFrame({ opcode: 8, fin: true, payload: hex('03e8'), mask: MASK }));
      const wire = Buffer.concat(frames);
      const { rig } = await openRecorded((request, socket, head) => {
        socket.write(switching(request, 'v5.channel.k8s.io'));
        const take = (chunk: Buffer): void => {
          arrived.update(chunk);
          size += chunk.length;
          if (size === wire.length) finished.resolve();
        };
        take(head);
        socket.on('data', take);
        socket.once('end', () => socket.end());
      });
      const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
      await writeSegments(client.socket, wire, segment, seed);
      await finished.promise;
      expect(arrived.digest('hex')).toBe(sha256().update(wire).digest('hex'));
      client.socket.end();
      expect(await rig.until('sessionEnded')).toMatchObject({
        outcome: 'client-disconnected',
        inputBytes: 8 * MIB,
      });
    },
  );

  it('8 MiB of output arrive unchanged and are recorded byte for byte, binary and text, over WebSocket', async () => {
    const plain = Buffer.concat([randomBytes(4 * MIB), Buffer.from('grüße €😀\r\n'.repeat((4 * MIB) / 20))]);
    const frames: Uint8Array[] = [];
    const random = createRandom(7);
    for (let offset = 0; offset < plain.length;) {
      const end = Math.min(plain.length, offset + 1 + random(40_000));
      frames.push(serverMessage(1, plain.subarray(offset, end)));
      offset = end;
    }
    frames.push(serverEnd(STATUS_SUCCESS));
    const wire = Buffer.concat(frames);
    const { rig, recorder } = await openRecorded((request, socket) => {
      socket.write(switching(request, 'v5.channel.k8s.io'));
      socket.resume();
      void writeSegments(socket, wire, 20_000, 5).then(() => socket.end());
    });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    await client.reader.untilClosed();
    expect(client.reader.bytes.equals(wire)).toBe(true);
    expect(await rig.until('sessionEnded')).toMatchObject({
      outcome: 'completed',
      exitCode: 0,
      outputBytes: plain.length,
    });
    expect(recordedBytes(recorder).equals(plain)).toBe(true);
  });

  it('8 MiB both ways at once over SPDY arrive unchanged and are recorded byte for byte', async () => {
    const output = randomBytes(8 * MIB);
    const input = randomBytes(8 * MIB);
    const client = createSpdyPeer();
    const server = createSpdyPeer();
    const upward = Buffer.concat([
      ...['error', 'stdin', 'stdout', 'resize'].map((role, index) => client.open(index * 2 + 1, role)),
      client.data(7, utf8('{"Width":80,"Height":24}\n')),
      ...slices(input, 32_768).map((slice) => client.data(3, slice)),
      client.data(3, new Uint8Array(0), true),
    ]);
    const downward = Buffer.concat([
      ...[1, 3, 5, 7].map((id) => server.reply(id)),
      ...slices(output, 32_768).map((slice) => server.data(5, slice)),
      server.data(5, new Uint8Array(0), true),
      server.data(1, STATUS_SUCCESS, true),
    ]);
    const arrived = sha256();
    let size = 0;
    const all = Promise.withResolvers<void>();
    const { rig, recorder } = await openRecorded((request, socket) => {
      socket.write(switching(request, 'v4.channel.k8s.io'));
      socket.once('data', () => {
        void writeSegments(socket, downward, 9_000, 11).then(async () => {
          await all.promise;
          socket.end();
        });
      });
      socket.on('data', (chunk: Buffer) => {
        arrived.update(chunk);
        size += chunk.length;
        if (size === upward.length) all.resolve();
      });
    });
    const peer = await askUpgrade(rig.port, { method: 'POST', target: EXEC_TTY, headers: SPDY_V4 });
    await writeSegments(peer.socket, upward, 7_000, 13);
    await peer.reader.untilClosed();
    expect(withoutPings(peer.reader.bytes).equals(downward)).toBe(true);
    expect(arrived.digest('hex')).toBe(sha256().update(upward).digest('hex'));
    expect(await rig.until('sessionEnded')).toMatchObject({ outcome: 'completed', exitCode: 0 });
    expect(recordedBytes(recorder).equals(output)).toBe(true);
  });

  it('a recorder without acknowledgements pauses the session, memory is limited, and nothing is lost', async () => {
    const limit = 256 * 1024;
    const total = 24 * MIB;
    const frame = serverMessage(1, new Uint8Array(32 * 1024).fill(0x61));
    let written = 0;
    let server: Duplex | undefined;
    const { rig, recorder } = await openRecorded(
      (request, socket) => {
        server = socket;
        socket.on('error', () => {});
        socket.write(switching(request, 'v5.channel.k8s.io'));
        socket.resume();
        void (async () => {
          for (let sent = 0; sent < total; sent += 32 * 1024) {
            const room = socket.write(frame);
            written += 32 * 1024;
            if (!room) await new Promise<void>((resolve) => socket.once('drain', resolve));
          }
          socket.end(serverEnd(STATUS_SUCCESS));
        })();
      },
      { recorderLimits: { maxPendingBytes: limit } },
    );
    recorder.set({ acks: 'alive' });
    const client = await askUpgrade(rig.port, { headers: WEBSOCKET_V5 });
    // Waits until the transfer is blocked: the gateway has accepted at most the limit and one chunk, and the kernel
    // buffers on both sides are full.
    let last = -1;
    while (written !== last || client.reader.size === 0) {
      last = written;
      await delay(150);
    }
    expect(recorder.uploads[0]!.body.length).toBeLessThan(limit + 256 * 1024);
    expect(client.reader.size).toBeLessThan(limit + 256 * 1024);
    expect(written).toBeLessThan(total / 2);
    expect(server?.writableLength).toBeGreaterThan(0);
    const acking = setInterval(() => recorder.uploads[0]!.ack(recorder.uploads[0]!.body.length), 1);
    await client.reader.untilClosed();
    const ended = await rig.until('sessionEnded');
    clearInterval(acking);
    expect(ended).toMatchObject({ outcome: 'completed', outputBytes: total });
    expect(recordedBytes(recorder).length).toBe(total);
  });
});

function slices(bytes: Buffer, size: number): Buffer[] {
  const parts: Buffer[] = [];
  for (let offset = 0; offset < bytes.length; offset += size)
    parts.push(bytes.subarray(offset, offset + size));
  return parts;
}
