/**
 * Attack corpus F for translated sessions: the client speaks WebSocket, and the gateway speaks SPDY to the API server.
 * If either side violates its protocol, the gateway ends the session, does not forward the invalid data, and does not
 * mark the recording as complete.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ByteReader } from '../support/byte-reader.ts';
import type { DoubleUpload } from '../support/recorder-double.ts';
import { clientMessage, createSpdyPeer, MASK, utf8 } from '../support/stream-peers.ts';
import { BOB, GATEWAY_HOST, openArena, sendHttp1, type Arena } from './arena.ts';
import type { EchoedRequest } from './echo-api-server.ts';
import { EXEC, WEBSOCKET } from './transports.ts';

let arena: Arena;
beforeAll(async () => {
  arena = await openArena({ execUpstream: 'spdy' });
});
afterAll(() => arena.close());

type SpdyPeer = ReturnType<typeof createSpdyPeer>;

interface Session {
  readonly asked: EchoedRequest;
  readonly upload: DoubleUpload;
  readonly reader: ByteReader;
  readonly server: SpdyPeer;
  say(side: 'client' | 'server', bytes: Uint8Array): void;
}

const TARGET = `${EXEC}&stderr=true`;
const STREAMS = { error: 1, stdin: 3, stdout: 5, stderr: 7 } as const;

/** Opens a session, and calls `act` when all streams are accepted and the first output was delivered. */
async function inSession(act: (session: Session) => Promise<void>): Promise<void> {
  const lines = WEBSOCKET.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  const before = arena.recorder.uploads.length;
  let ran = false;
  const request = `GET ${TARGET} HTTP/1.1\r\nHost: ${GATEWAY_HOST}\r\n${lines}\r\n`;
  await sendHttp1(arena, BOB, request, async (socket, reader) => {
    await arena.recorder.until(() => arena.recorder.uploads.length > before);
    const asked = arena.apiServer.requests.at(-1)!;
    const upload = arena.recorder.uploads[before]!;
    const server = createSpdyPeer();
    const say: Session['say'] = (side, bytes) =>
      void (side === 'client' ? socket : asked.socket).write(bytes);
    for (const id of Object.values(STREAMS)) {
      const opening = Buffer.from([0, 0, 0, id]);
      await expect.poll(() => asked.tunnelled().includes(opening)).toBe(true);
      say('server', server.reply(id));
    }
    say('server', server.data(STREAMS.stdout, utf8('first')));
    await arena.recorder.until(() => upload.lines().join('').includes('first'));
    await act({ asked, upload, reader, server, say });
    ran = true;
  });
  expect(ran).toBe(true);
}

const HOSTILE = 'rm -rf';
const hostile = utf8(HOSTILE);
const concat = (...parts: readonly Uint8Array[]): Buffer => Buffer.concat(parts);
const raw = (text: string): Buffer => Buffer.from(text, 'hex');

async function expectNotWhole({ upload, reader, asked }: Session): Promise<void> {
  await reader.untilClosed();
  const endOf = (): string | undefined => upload.lines().find((line) => line.includes('"kind":"end"'));
  await arena.recorder.until(() => endOf() !== undefined);
  expect((JSON.parse(endOf() ?? '') as { outcome: string }).outcome).not.toBe('completed');
  expect(upload.lines().join('')).not.toContain(HOSTILE);
  expect(reader.bytes.toString('latin1')).not.toContain(HOSTILE);
  expect(asked.tunnelled().toString('latin1')).not.toContain(HOSTILE);
}

/** A masked WebSocket frame with arbitrary header bits. */
function frame(first: number, payload: Uint8Array): Buffer {
  const masked = payload.map((byte, index) => byte ^ (MASK[index % 4] ?? 0));
  return concat(Buffer.of(first, payload.length | 0x80), MASK, masked);
}
const channel = (id: number): Buffer => concat(Buffer.of(id), hostile);

it('F9 is requested with the method, target and user of the client, and without WebSocket headers', async () => {
  await inSession(async ({ asked }) => {
    expect(asked.requestLine).toBe(`GET ${TARGET} HTTP/1.1`);
    const names = asked.headers.map(([name]) => name.toLowerCase());
    expect(names.filter((name) => name.startsWith('sec-'))).toEqual([]);
    const users = asked.headers.filter(([name]) => name.toLowerCase() === 'impersonate-user');
    expect(users).toEqual([['Impersonate-User', BOB.login]]);
    expect(asked.headers).toContainEqual(['X-Stream-Protocol-Version', 'v4.channel.k8s.io']);
  });
});

it('F9 carries what is in order both ways', async () => {
  await inSession(async ({ asked, upload, reader, server, say }) => {
    say('client', clientMessage(0, utf8('typed')));
    await expect.poll(() => asked.tunnelled().toString('latin1')).toContain('typed');
    say('server', server.data(STREAMS.stdout, utf8('second')));
    await arena.recorder.until(() => upload.lines().join('').includes('second'));
    await expect.poll(() => reader.bytes.toString('latin1')).toContain('second');
  });
});

describe('the client', () => {
  it.each<readonly [string, Uint8Array]>([
    ['compression', frame(0xc2, channel(0))],
    ['a reserved bit', frame(0xa2, channel(0))],
    ['a reserved opcode', frame(0x83, channel(0))],
    ['a fragmented ping', frame(0x09, channel(0))],
    ['a continuation of nothing', frame(0x80, channel(0))],
    ['a message inside a message', concat(frame(0x02, channel(0)), frame(0x82, channel(0)))],
    ['a length of 2^63', concat(raw('82ffffffffffffffffff'), MASK, hostile)],
    ['a ping that is too long', concat(raw('89fe00ff'), MASK, Buffer.alloc(255))],
    ['channel 5', frame(0x82, channel(5))],
    ['SPDY', createSpdyPeer().data(STREAMS.stdin, hostile)],
  ])('F9 ends the session with %s', async (_what, bytes) => {
    await inSession(async (session) => {
      session.say('client', bytes);
      await expectNotWhole(session);
    });
  });
});

describe('the API server', () => {
  it.each<readonly [string, (server: SpdyPeer) => Uint8Array]>([
    ['data on no stream', (server) => server.data(77, hostile)],
    ['data on stream 0', () => concat(raw('0000000000000006'), hostile)],
    ['data on the stream of the input', (server) => server.data(STREAMS.stdin, hostile)],
    ['a stream of its own', (server) => server.open(2, 'stdout')],
    ['a stream answered twice', (server) => server.reply(STREAMS.stdout)],
    ['an invalid header block', () => raw('800300020000001400000005deadbeefdeadbeefdeadbeefdeadbeef')],
    ['an unknown version', () => raw('8004000200000004000000050000')],
    ['a WebSocket', () => frame(0x82, channel(1))],
  ])('F9 ends the session with %s', async (_what, make) => {
    await inSession(async (session) => {
      session.say('server', make(session.server));
      await expectNotWhole(session);
    });
  });
});
