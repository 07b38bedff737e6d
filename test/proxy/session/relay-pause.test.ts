/** A paused relay keeps output up to a limit, and delivers it in order after the pause. */
import { randomBytes } from 'node:crypto';
import { tmpdir } from 'node:os';
import { afterEach, describe, expect, it } from 'vitest';
import { createElasticBuffers } from '../../../src/proxy/session/elastic-buffers.ts';
import { createSpdyTap } from '../../../src/recording/tap-spdy.ts';
import { createWebSocketTap } from '../../../src/recording/tap-websocket.ts';
import { encodeSpdyFrame } from '../../../src/wire/spdy/frame.ts';
import { encodeWebSocketFrame, OPCODE } from '../../../src/wire/websocket/frame.ts';
import { closeRelays, relayed } from '../../support/relay-rig.ts';
import { clientMessage, createSpdyPeer, MASK, serverMessage } from '../../support/stream-peers.ts';
import { SeenSession } from '../../support/tapped-session.ts';
import { until } from '../../support/until.ts';

const KB = 1024;
const OUTPUT_LIMIT = 4 * KB * KB;
const INPUT_LIMIT = 64 * KB;
/** Maximum bytes that the tap reads in one turn. */
const TURN = 256 * KB;

afterEach(closeRelays);

/**
 * Creates, for each protocol: a session with its tap, the size of the smallest frame with output, and functions that
 * build frames of a given size.
 */
const PROTOCOLS = {
  websocket() {
    const session = new SeenSession();
    return {
      session,
      tap: createWebSocketTap(session, { version: 5, base64: false }),
      start: Buffer.alloc(0),
      small: 4,
      output: (bytes: number) => Buffer.from(serverMessage(1, randomBytes(bytes - (bytes < 126 ? 3 : 11)))),
      input: (bytes: number) => Buffer.from(clientMessage(0, randomBytes(bytes - (bytes < 126 ? 7 : 15)))),
      ping: Buffer.from(
        encodeWebSocketFrame({ opcode: OPCODE.ping, fin: true, payload: Buffer.from('p'), mask: MASK }),
      ),
      pong: Buffer.from(encodeWebSocketFrame({ opcode: OPCODE.pong, fin: true, payload: Buffer.from('p') })),
    };
  },
  spdy() {
    const session = new SeenSession();
    const peer = createSpdyPeer();
    const ping = Buffer.from(encodeSpdyFrame({ kind: 'ping', id: 1 }));
    return {
      session,
      tap: createSpdyTap(session, 4),
      start: Buffer.concat(
        ['error', 'stdin', 'stdout', 'resize'].map((role, index) => peer.open(index * 2 + 1, role)),
      ),
      small: 9,
      output: (bytes: number) => Buffer.from(peer.data(5, randomBytes(bytes - 8))),
      input: (bytes: number) => Buffer.from(peer.data(3, randomBytes(bytes - 8))),
      ping,
      pong: ping,
    };
  },
};

/** Opens a relay of a session. The result includes the number of output bytes that its tap has parsed. */
async function pausable(protocol: keyof typeof PROTOCOLS) {
  const frames = PROTOCOLS[protocol]();
  frames.session.detailed = false;
  const buffers = createElasticBuffers({
    memoryBytes: 512 * KB,
    diskBytes: 1536 * KB,
    totalMemoryBytes: 16 * KB * KB,
    totalDiskBytes: 16 * KB * KB,
    directory: tmpdir(),
  });
  const state = { parsed: 0, full: 0 };
  const { output } = frames.tap;
  const rig = await relayed({
    tap: {
      ...frames.tap,
      output: (chunk, more) => {
        state.parsed += chunk.length;
        return output(chunk, more);
      },
    },
    openBuffer: (events) => buffers.open('deep', 'alice', events),
    bufferFull: () => void (state.full += 1),
  });
  rig.client.write(frames.start);
  await rig.fromClient.take(frames.start.length);
  return { ...rig, ...frames, state, buffers };
}

/** Waits until the relay has handled everything that it has read. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 50; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

describe.each(['websocket', 'spdy'] as const)('a pause over %s', (protocol) => {
  it('parses output up to the limit, and nothing beyond it', async () => {
    const { relay, upstream, fromUpstream, state, output, small, session } = await pausable(protocol);
    relay.setPaused(true);
    const below = output(OUTPUT_LIMIT - 1);
    upstream.write(below);
    await until(() => state.parsed === below.length);
    // one byte below the limit is free, so the relay still parses the next output
    const last = output(small);
    upstream.write(last);
    await until(() => state.parsed === below.length + last.length);
    const surplus = output(small);
    upstream.write(surplus);
    const all = Buffer.concat([below, last, surplus]);
    await until(() => relay.totals.fromUpstream === all.length);
    await settle();
    expect(state.parsed).toBe(all.length - surplus.length);
    expect(fromUpstream.size).toBe(0);
    const recorded = session.outputs.stdout.length;
    relay.setPaused(false);
    expect((await fromUpstream.take(all.length)).equals(all)).toBe(true);
    expect(session.outputs.stdout.length).toBeGreaterThan(recorded);
    relay.stop();
  });

  it('makes the server wait after a flood, and delivers all output in order', async () => {
    const { relay, upstream, inner, fromUpstream, state, output, session } = await pausable(protocol);
    relay.setPaused(true);
    const flood = Buffer.concat(Array.from({ length: 16 }, () => output(KB * KB)));
    upstream.write(flood);
    await until(() => state.full === 1 && inner.upstream.isPaused());
    await settle();
    expect(state.parsed).toBeGreaterThanOrEqual(OUTPUT_LIMIT);
    expect(state.parsed).toBeLessThan(OUTPUT_LIMIT + TURN);
    expect(relay.totals.fromUpstream).toBeLessThan(OUTPUT_LIMIT + TURN + 3 * KB * KB);
    expect(fromUpstream.size).toBe(0);
    relay.setPaused(false);
    expect((await fromUpstream.take(flood.length)).equals(flood)).toBe(true);
    expect(session.outputs.stdout.length).toBeGreaterThan(15 * KB * KB);
    relay.stop();
  });

  it('keeps input up to the limit, and replies to heartbeats meanwhile', async () => {
    const { relay, client, inner, fromClient, fromUpstream, input, ping, pong, start } =
      await pausable(protocol);
    relay.setPaused(true);
    const typed = input(INPUT_LIMIT);
    client.write(typed);
    await until(() => relay.totals.fromClient === start.length + typed.length);
    client.write(ping);
    expect((await fromUpstream.take(pong.length)).equals(pong)).toBe(true);
    await settle();
    expect(inner.client.isPaused()).toBe(false);
    expect(fromClient.size).toBe(0);
    relay.setPaused(false);
    expect((await fromClient.take(typed.length)).equals(typed)).toBe(true);
    relay.stop();
  });

  it('makes the client wait above the limit, and forwards all input in order', async () => {
    const { relay, client, inner, fromClient, input, small } = await pausable(protocol);
    relay.setPaused(true);
    const typed = [input(INPUT_LIMIT), input(small + 4), input(KB * KB)];
    client.write(typed[0]!);
    await settle();
    for (const more of typed.slice(1)) client.write(more);
    await until(() => inner.client.isPaused());
    await settle();
    expect(relay.totals.fromClient).toBeLessThan(INPUT_LIMIT + 2 * TURN);
    expect(fromClient.size).toBe(0);
    relay.setPaused(false);
    const all = Buffer.concat(typed);
    expect((await fromClient.take(all.length)).equals(all)).toBe(true);
    relay.stop();
  });

  it('keeps the order if it starts and ends repeatedly while data arrives', async () => {
    const { relay, client, upstream, fromClient, fromUpstream, input, output } = await pausable(protocol);
    const sent: Buffer[] = [];
    const typed: Buffer[] = [];
    for (let round = 0; round < 40; round += 1) {
      relay.setPaused(round % 2 === 0);
      sent.push(output(20 * KB));
      typed.push(input(3 * KB));
      upstream.write(sent.at(-1)!);
      client.write(typed.at(-1)!);
      await new Promise((resolve) => setImmediate(resolve));
    }
    relay.setPaused(false);
    const [output1, input1] = [Buffer.concat(sent), Buffer.concat(typed)];
    expect((await fromUpstream.take(output1.length)).equals(output1)).toBe(true);
    expect((await fromClient.take(input1.length)).equals(input1)).toBe(true);
    relay.stop();
  });

  it('drops everything if the client disconnects', async () => {
    const { relay, client, upstream, inner, buffers, state, output } = await pausable(protocol);
    inner.client.on('error', () => {});
    relay.setPaused(true);
    upstream.write(output(KB * KB));
    await until(() => state.parsed === KB * KB);
    client.resetAndDestroy();
    upstream.end();
    expect(await relay.done).toMatchObject({ kind: 'broken', side: 'client' });
    expect([buffers.memory.bytes, buffers.disk.bytes]).toEqual([0, 0]);
  });
});
