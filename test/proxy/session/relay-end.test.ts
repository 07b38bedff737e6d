/**
 * The end of a session while the gateway's event loop is blocked: the server writes all output and closes, and the
 * client sends heartbeats. No byte may be missing.
 */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { Worker } from 'node:worker_threads';
import { describe, expect, it, onTestFinished } from 'vitest';
import { openTestBuffers } from '../../support/elastic-buffers.ts';
import type { Tap } from '../../../src/recording/tap.ts';
import { startRelay } from '../../../src/proxy/session/relay.ts';
import { createUnrecordedSessionTap } from '../../../src/recording/tap-unrecorded.ts';
import { createSpdyParser, encodeSpdyFrame } from '../../../src/wire/spdy/frame.ts';
import { createWebSocketScanner, OPCODE } from '../../../src/wire/websocket/frame.ts';
import type { FarNews, FarOrder, FarPeers } from '../../support/far-peers.ts';
import { createTestAuthority } from '../../support/issued-certificates.ts';
import { createSpdyPeer, serverEnd, serverMessage, STATUS_SUCCESS } from '../../support/stream-peers.ts';
import { hex } from '../../support/tapped-session.ts';

const BLOCK_MS = 2_000;
const OUTPUT_BYTES = 1_200_000;
const FRAME_BYTES = 32 * 1024;

interface Conversation {
  readonly protocol: 'spdy' | 'websocket';
  readonly chosen: string;
  /** First bytes of the client and of the server, before any output. */
  readonly opening: readonly [Uint8Array, Uint8Array];
  /** All later bytes of the server, including the end of the session. */
  readonly script: Uint8Array;
  readonly beat: Uint8Array;
  /** Parses the bytes that the client received. `ended` is true if they contain the end of the session. */
  read(received: Uint8Array): { readonly output: Buffer; readonly ended: boolean };
}

const output = Buffer.from(Array.from({ length: OUTPUT_BYTES }, (_, index) => (index * 7919) % 251));
const frames = Array.from({ length: Math.ceil(OUTPUT_BYTES / FRAME_BYTES) }, (_, index) =>
  output.subarray(index * FRAME_BYTES, (index + 1) * FRAME_BYTES),
);

function spdy(): Conversation {
  const client = createSpdyPeer();
  const server = createSpdyPeer();
  const roles = ['error', 'stdout', 'stderr'];
  const ids = roles.map((_, index) => index * 2 + 1);
  const resets = ids.map((streamId) => encodeSpdyFrame({ kind: 'rstStream', streamId, status: 5 }));
  return {
    protocol: 'spdy',
    chosen: 'v4.channel.k8s.io',
    opening: [
      Buffer.concat(roles.map((role, index) => client.open(index * 2 + 1, role))),
      Buffer.concat(ids.map((id) => server.reply(id))),
    ],
    script: Buffer.concat([
      ...frames.map((frame) => server.data(3, frame)),
      server.data(1, STATUS_SUCCESS),
      ...resets,
    ]),
    beat: encodeSpdyFrame({ kind: 'ping', id: 1 }),
    read(received) {
      const events = createSpdyParser().push(received);
      const data = events.flatMap((event) =>
        event.kind === 'data' && event.streamId === 3 ? [event.payload] : [],
      );
      const ended = events.filter(({ kind }) => kind === 'rstStream').length === 3;
      return { output: Buffer.concat(data), ended };
    },
  };
}

function webSocket(): Conversation {
  return {
    protocol: 'websocket',
    chosen: 'v5.channel.k8s.io',
    opening: [new Uint8Array(0), new Uint8Array(0)],
    script: Buffer.concat([...frames.map((frame) => serverMessage(1, frame)), serverEnd(STATUS_SUCCESS)]),
    beat: hex('898001020304'),
    read(received) {
      const pieces = createWebSocketScanner({ expectMask: false }).push(received);
      let channel = 0;
      const data: Uint8Array[] = [];
      for (const { opcode, first, bytes } of pieces) {
        if (opcode !== OPCODE.binary) continue;
        if (first) channel = bytes[0] ?? 0;
        if (channel === 1) data.push(first ? bytes.subarray(1) : bytes);
      }
      return { output: Buffer.concat(data), ended: pieces.at(-1)?.opcode === OPCODE.close };
    },
  };
}

async function startPeers(conversation: Conversation, tls: boolean) {
  const authority = tls ? await createTestAuthority() : undefined;
  const issued = await authority?.issue(['127.0.0.1']);
  const peers: FarPeers = {
    script: conversation.script,
    beat: conversation.beat,
    ...(issued === undefined ? {} : { tls: { key: issued.keyPem, cert: issued.certificatePem } }),
  };
  const worker = new Worker(new URL('../../support/far-peers.ts', import.meta.url), { workerData: peers });
  onTestFinished(async () => void (await worker.terminate()));
  const news: FarNews[] = [];
  worker.on('message', (message: FarNews) => news.push(message));
  const nextNews = async <K extends FarNews['kind']>(kind: K): Promise<Extract<FarNews, { kind: K }>> => {
    for (;;) {
      const found = news.find((one) => one.kind === kind);
      if (found !== undefined) return found as Extract<FarNews, { kind: K }>;
      await once(worker, 'message');
    }
  };
  const { serverPort, clientPort } = await nextNews('ready');
  const client = connect(clientPort, '127.0.0.1');
  const upstream: Socket =
    authority === undefined
      ? connect(serverPort, '127.0.0.1')
      : connectTls({ port: serverPort, host: '127.0.0.1', ca: authority.caPem, servername: '' });
  await Promise.all([
    once(client, 'connect'),
    once(upstream, authority === undefined ? 'connect' : 'secureConnect'),
  ]);
  client.setNoDelay(true);
  upstream.setNoDelay(true);
  upstream.on('error', () => {});
  onTestFinished(() => void client.destroy());
  onTestFinished(() => void upstream.destroy());
  return { client, upstream, nextNews, tell: (order: FarOrder) => worker.postMessage(order) };
}

function block(): void {
  const startMs = performance.now();
  while (performance.now() - startMs < BLOCK_MS);
}

interface Moment {
  readonly name: string;
  /** Number of output bytes after which the event loop is blocked. */
  readonly afterBytes: number;
  /** True if the tap delays the following output for 50 ms. */
  readonly held?: boolean;
}

const MOMENTS: readonly Moment[] = [
  { name: 'before the first byte', afterBytes: 0 },
  { name: 'in the middle of the output', afterBytes: OUTPUT_BYTES / 2 },
  {
    name: 'in the middle of the output, while the recorder is waited for',
    afterBytes: OUTPUT_BYTES / 2,
    held: true,
  },
  { name: 'before the last bytes', afterBytes: OUTPUT_BYTES - FRAME_BYTES },
  { name: 'when all is said', afterBytes: OUTPUT_BYTES + 200 },
];

describe.each([
  { name: 'SPDY', make: spdy, tls: false },
  { name: 'WebSocket', make: webSocket, tls: true },
])('a server that has finished, a heartbeat, and a blocked gateway, $name', ({ make, tls }) => {
  it.each(MOMENTS)('$name', async ({ afterBytes, held }) => {
    const conversation = make();
    const { client, upstream, nextNews, tell } = await startPeers(conversation, tls);
    const session = createUnrecordedSessionTap(conversation.protocol, conversation.chosen)!;
    const [asked, answered] = conversation.opening;
    session.input(asked, new Uint8Array(0));
    void session.output(answered);
    session.mark().delivered(0);
    let seen = 0;
    let blocked = false;
    const late = (): void => {
      blocked = true;
      tell('beat');
      block();
    };
    const tap: Tap = {
      ...session,
      output(chunk) {
        void session.output(chunk);
        seen += chunk.length;
        if (blocked || afterBytes === 0 || seen < afterBytes) return undefined;
        late();
        return held === true ? new Promise<void>((resolve) => setTimeout(resolve, 50)) : undefined;
      },
    };
    const buffers = openTestBuffers();
    const relay = startRelay({
      client,
      upstream,
      clientHead: new Uint8Array(0),
      upstreamHead: new Uint8Array(0),
      tap,
      openBuffer: (events) => buffers.open('deep', 'alice', events),
      lastWords: (backpressured) => {
        const reason = session.incompleteReason(backpressured);
        return reason === undefined ? undefined : session.farewell(reason, 502);
      },
      lingerMs: 500,
      signal: new AbortController().signal,
    });
    tell('finish');
    if (afterBytes === 0) late();
    // sends heartbeats until the client's connection is closed
    const beats = setInterval(() => tell('beat'), 5);
    const { received } = await nextNews('closed');
    clearInterval(beats);
    await relay.done;
    const got = conversation.read(received);
    expect(got.output.length).toBe(OUTPUT_BYTES);
    expect(got.output.equals(output)).toBe(true);
    expect(got.ended).toBe(true);
    expect(session.incompleteReason(relay.backpressured)).toBeUndefined();
    expect(buffers.memory.bytes).toBe(0);
  });
});
