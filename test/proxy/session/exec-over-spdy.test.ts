import { duplexPair, type Duplex } from 'node:stream';
import { setImmediate as turn } from 'node:timers/promises';
import { constants, deflateRawSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import { ExecOverSpdy } from '../../../src/proxy/session/exec-over-spdy.ts';
import type { ChannelVersion } from '../../../src/wire/remotecommand/channel.ts';
import { createSpdyParser, encodeSpdyFrame } from '../../../src/wire/spdy/frame.ts';
import { createHeaderInflater } from '../../../src/wire/spdy/headers.ts';
import { encodeWebSocketFrame } from '../../../src/wire/websocket/frame.ts';
import {
  clientMessage,
  createSpdyPeer,
  MASK,
  STATUS_SUCCESS,
  text,
  utf8,
} from '../../support/stream-peers.ts';
import { createServerFrameReceiver } from '../../support/ws-receiver.ts';
import { until } from '../../support/until.ts';

interface Options {
  readonly version?: ChannelVersion;
  readonly stdin?: boolean;
  readonly stdout?: boolean;
  readonly stderr?: boolean;
  readonly tty?: boolean;
  readonly openTimeoutMs?: number;
  /** Returns true if the server replies to the SYN_STREAM of this stream. Default: always true. */
  readonly answers?: (id: number) => boolean;
}

const SESSION = {
  head: Buffer.alloc(0),
  version: 5,
  stdin: true,
  stdout: true,
  stderr: true,
  tty: false,
} as const;

/** Starts the adapter between a WebSocket receiver of another implementation (`ws`) and a scripted SPDY server. */
function start({ tty = false, answers = () => true, ...more }: Options = {}) {
  const [near, far] = duplexPair();
  const peer = createSpdyPeer();
  const parser = createSpdyParser();
  const headers = createHeaderInflater();
  /** Descriptions of the frames that the server received. */
  const received: string[] = [];
  const input = new Map<number, Buffer>();
  far.on('data', (chunk: Uint8Array) => {
    for (const event of parser.push(chunk)) {
      if (event.kind === 'synStream') {
        received.push(`open ${event.streamId} ${headers.decode(event.block).get('streamtype')}`);
        if (answers(event.streamId)) far.write(peer.reply(event.streamId));
      } else if (event.kind === 'data') {
        const { streamId, payload, fin } = event;
        input.set(streamId, Buffer.concat([input.get(streamId) ?? Buffer.alloc(0), payload]));
        if (fin) received.push(`fin ${streamId}`);
      } else if (event.kind === 'ping') received.push(`ping ${event.id}`);
      else received.push(event.kind);
    }
  });
  far.on('end', () => received.push('end'));
  far.on('error', () => {});
  const session = new ExecOverSpdy({ ...SESSION, socket: near, tty, stderr: !tty, ...more });
  const client = receive(session);
  return { session, near, far, peer, received, input, ...client };
}

/** Collects the frames of the session with the receiver of `ws`. */
function receive(session: Duplex) {
  const receiver = createServerFrameReceiver();
  const output: Buffer[][] = [[], [], [], [], []];
  const seen: string[] = [];
  const errors: Error[] = [];
  let bytes = 0;
  receiver.on('message', (data: Buffer, isBinary: boolean) => {
    seen.push(isBinary ? `message ${data[0]}` : 'text');
    output[data[0]!]!.push(data.subarray(1));
  });
  receiver.on('conclude', (code: number) => seen.push(`close ${code}`));
  receiver.on('pong', (data: Buffer) => seen.push(`pong ${data.toString()}`));
  receiver.on('error', (error: Error) => errors.push(error));
  session.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    receiver.write(chunk);
  });
  session.on('error', (error: Error) => errors.push(error));
  return {
    seen,
    errors,
    channel: (number: number) => Buffer.concat(output[number]!),
    messages: (number: number) => output[number]! as readonly Buffer[],
    get bytes() {
      return bytes;
    },
  };
}

/** Resolves also after an error, unlike `once`. */
function closed(session: Duplex): Promise<void> {
  return new Promise((resolve) => {
    session.once('close', resolve);
  });
}

async function turns(count = 8): Promise<void> {
  for (let left = count; left > 0; left -= 1) await turn();
}

const reset = (streamId: number) => encodeSpdyFrame({ kind: 'rstStream', streamId, status: 5 });
const CLOSE = encodeWebSocketFrame({
  opcode: 8,
  fin: true,
  payload: Uint8Array.of(0x03, 0xe8),
  mask: MASK,
});
const STREAMS = ['open 1 error', 'open 3 stdin', 'open 5 stdout', 'open 7 stderr'];

/** Returns a kubelet's frames at the end of a session with the streams 1, 3, 5 and 7. */
function ending(peer: ReturnType<typeof createSpdyPeer>, status: Uint8Array): readonly Uint8Array[] {
  return [
    peer.data(5, new Uint8Array(0), true),
    peer.data(7, new Uint8Array(0), true),
    peer.data(1, status),
    reset(1),
    reset(3),
    encodeSpdyFrame({ kind: 'goaway', lastStreamId: 7, status: 0 }),
  ];
}

/** Cuts bytes at the given positions. */
function cut(bytes: Uint8Array, places: readonly number[]): readonly Uint8Array[] {
  const at = [...new Set(places.map((place) => place % (bytes.length + 1)))].sort((a, b) => a - b);
  return [0, ...at].map((from, index) => bytes.subarray(from, at[index] ?? bytes.length));
}

describe('the streams of a session', () => {
  it.each<[string, Options, readonly string[]]>([
    ['stdin', {}, ['error', 'stdin', 'stdout', 'stderr']],
    ['no stdin', { stdin: false }, ['error', 'stdout', 'stderr']],
    ['no stdout', { stdout: false }, ['error', 'stdin', 'stderr']],
    ['no stderr', { stderr: false }, ['error', 'stdin', 'stdout']],
    ['stdin alone', { stdout: false, stderr: false }, ['error', 'stdin']],
    ['a terminal', { tty: true }, ['error', 'stdin', 'stdout', 'resize']],
    ['a terminal, third version', { tty: true, version: 3 }, ['error', 'stdin', 'stdout', 'resize']],
    ['a terminal, second version', { tty: true, version: 2 }, ['error', 'stdin', 'stdout']],
  ])('are those that a server expects: %s', async (_name, options, roles) => {
    const { received } = start(options);
    await until(() => received.length === roles.length);
    await turns();
    expect(received).toEqual(roles.map((role, index) => `open ${index * 2 + 1} ${role}`));
  });

  it('are opened one after another, and input of the client waits for the last one', async () => {
    const { session, far, peer, received, input } = start({ answers: () => false });
    session.write(clientMessage(0, utf8('early')));
    for (const [index, name] of STREAMS.entries()) {
      await turns();
      expect(received).toEqual(STREAMS.slice(0, index + 1));
      expect(received.at(-1)).toBe(name);
      expect(input.size).toBe(index === 3 ? 1 : 0);
      far.write(peer.reply(index * 2 + 1));
    }
    expect(text(input.get(3)!)).toBe('early');
  });

  it.each(['before', 'while'])(
    'have the terminal size before the reply to the resize stream: sent %s the stream is opened',
    async (when) => {
      const { session, far, peer, near, received, input } = start({ tty: true, answers: () => false });
      const size = clientMessage(4, utf8('{"Width":80,"Height":24}'));
      if (when === 'before') session.write(size);
      for (const id of [1, 3, 5]) {
        await until(() => received.length === (id + 1) / 2);
        far.write(peer.reply(id));
      }
      await until(() => received.length === 4);
      if (when === 'while') session.write(size);
      await until(() => input.has(7));
      expect(text(input.get(7)!)).toBe('{"Width":80,"Height":24}');
      expect(near.destroyed).toBe(false);
    },
  );

  it('must be accepted within a time limit', async () => {
    const { session, errors, seen, near } = start({ answers: (id) => id < 7, openTimeoutMs: 20 });
    await closed(session);
    expect(errors).toMatchObject([{ message: 'the streams were not answered in 20 ms' }]);
    expect(seen).toEqual(['message 1']);
    expect(near.destroyed).toBe(true);
  });

  it('may stay open without a time limit after they were accepted', async () => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const { session, errors, received } = start({ openTimeoutMs: 20 });
      await until(() => received.length === STREAMS.length);
      await turns();
      vi.advanceTimersByTime(20);
      await turns();
      expect([errors, session.destroyed]).toEqual([[], false]);
    } finally {
      vi.useRealTimers();
    }
  });
});

describe('a session', () => {
  it('sends both ends the same content, however its bytes are split', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.nat(500_000), { maxLength: 12 }),
        fc.array(fc.nat(500_000), { maxLength: 12 }),
        fc.array(fc.tuple(fc.constantFrom(5, 7), fc.uint8Array({ maxLength: 70_000, minLength: 1 })), {
          maxLength: 5,
        }),
        fc.array(fc.uint8Array({ maxLength: 70_000 }), { maxLength: 4 }),
        async (serverCuts, clientCuts, said, typed) => {
          const { session, far, peer, received, input, seen, errors, channel } = start();
          const up = Buffer.concat([
            ...typed.map((bytes) => clientMessage(0, bytes)),
            clientMessage(255, Uint8Array.of(0)),
            clientMessage(0, utf8('too late')),
          ]);
          for (const chunk of cut(up, clientCuts)) session.write(chunk);
          await until(() => received.includes('fin 3'));
          const down = Buffer.concat([
            ...said.map(([id, bytes]) => peer.data(id, bytes)),
            ...ending(peer, STATUS_SUCCESS),
          ]);
          for (const chunk of cut(down, serverCuts)) if (chunk.length > 0) far.write(chunk);
          far.end();
          await closed(session);
          expect(errors).toEqual([]);
          expect(received).toEqual([...STREAMS, 'fin 3', 'end']);
          expect(Buffer.compare(input.get(3)!, Buffer.concat(typed))).toBe(0);
          const saidOn = (id: number) =>
            Buffer.concat(said.filter(([on]) => on === id).map(([, bytes]) => bytes));
          expect(Buffer.compare(channel(1), saidOn(5))).toBe(0);
          expect(Buffer.compare(channel(2), saidOn(7))).toBe(0);
          expect(Buffer.compare(channel(3), STATUS_SUCCESS)).toBe(0);
          expect(seen.slice(-2)).toEqual(['message 3', 'close 1000']);
          expect(seen.filter((what) => what === 'message 3')).toHaveLength(1);
        },
      ),
      { numRuns: 40 },
    );
  });

  it('ends only with a complete proof of its end, wherever the bytes are split', async () => {
    const { peer } = start();
    const down = Buffer.concat([peer.data(5, utf8('out')), ...ending(peer, STATUS_SUCCESS).slice(0, 4)]);
    for (let length = 0; length <= down.length; length += 1) {
      const { session, far, received, seen, errors } = start();
      await until(() => received.length === 4);
      far.write(down.subarray(0, length));
      far.end();
      await closed(session);
      expect(errors).toEqual([]);
      const whole = length === down.length;
      expect(seen.includes('message 3')).toBe(whole);
      expect(seen.includes('close 1000')).toBe(whole);
    }
  });

  it('whose connection breaks has no proven end, and all earlier output arrives', async () => {
    const { session, near, far, peer, received, seen, errors, channel } = start();
    await until(() => received.length === 4);
    far.write(peer.data(5, utf8('out')));
    far.write(peer.data(1, STATUS_SUCCESS));
    await until(() => channel(1).length === 3);
    near.destroy(new Error('reset by peer'));
    await closed(session);
    expect(seen).toEqual(['message 1', 'message 1']);
    expect(errors).toMatchObject([{ message: 'reset by peer' }]);
  });

  it.each<[string, ChannelVersion, Uint8Array, readonly string[]]>([
    ['nothing', 3, new Uint8Array(0), ['message 1', 'close 1000']],
    ['nothing', 1, new Uint8Array(0), ['message 1', 'close 1000']],
    ['a text', 3, utf8('command failed'), ['message 1', 'message 3', 'close 1000']],
    ['nothing', 4, new Uint8Array(0), ['message 1']],
    ['no status', 5, utf8('command failed'), ['message 1']],
  ])('ends with %s in version %d', async (_name, version, status, expected) => {
    const { session, far, peer, received, seen, channel } = start({ version });
    await until(() => received.length === 4);
    for (const frame of ending(peer, status)) far.write(frame);
    far.end();
    await closed(session);
    expect(seen).toEqual(expected);
    if (expected.length === 3) expect(channel(3)).toEqual(Buffer.from(status));
  });

  it('ends without the streams that were not requested', async () => {
    const { session, far, peer, received, seen, channel } = start({ stdin: false, stderr: false });
    await until(() => received.length === 2);
    far.write(peer.data(3, utf8('out'), true));
    far.write(peer.data(1, STATUS_SUCCESS));
    far.write(reset(1));
    far.write(encodeSpdyFrame({ kind: 'goaway', lastStreamId: 3, status: 0 }));
    far.end();
    await closed(session);
    expect(text(channel(1))).toBe('out');
    expect(seen.slice(-2)).toEqual(['message 3', 'close 1000']);
  });

  it('ends with the status that the API server would send to a client of version 5', async () => {
    const { session, far, peer, received, channel } = start();
    await until(() => received.length === 4);
    const status =
      '{"metadata":{},"status":"Failure","message":"no such file","reason":"InternalError","code":500}';
    for (const frame of ending(peer, utf8(status))) far.write(frame);
    far.end();
    await closed(session);
    expect(JSON.parse(channel(3).toString())).toEqual({
      metadata: {},
      status: 'Failure',
      message: 'Internal error occurred: no such file',
      reason: 'InternalError',
      details: { causes: [{ message: 'no such file' }] },
      code: 500,
    });
  });

  it('accepts a status of 64 KiB, and no longer one', async () => {
    for (const more of [0, 1]) {
      const empty = '{"metadata":{},"status":"Success","message":""}';
      const long = empty.replace('""', `"${'x'.repeat(64 * 1024 - empty.length + more)}"`);
      const { session, far, peer, received, seen } = start();
      await until(() => received.length === 4);
      for (const frame of ending(peer, utf8(long))) far.write(frame);
      far.end();
      await closed(session);
      expect(seen.includes('close 1000')).toBe(more === 0);
    }
  });
});

describe('output that arrives in one turn of the event loop', () => {
  it('is sent together, except for the first frame, and in order', async () => {
    const { far, peer, received, seen, messages } = start();
    await until(() => received.length === 4);
    await turns();
    for (const [id, what] of [
      [5, 'a'],
      [5, 'b'],
      [5, 'c'],
      [7, 'd'],
      [5, 'e'],
      [5, 'f'],
    ] as const)
      far.write(peer.data(id, utf8(what)));
    await turns();
    expect(messages(1).map(text)).toEqual(['', 'a', 'bc', 'ef']);
    expect(messages(2).map(text)).toEqual(['d']);
    expect(seen).toEqual(['message 1', 'message 1', 'message 1', 'message 2', 'message 1']);
  });

  it('is sent immediately only if it contains data for the client', async () => {
    const { far, peer, received, messages } = start();
    await until(() => received.length === 4);
    await turns();
    const frame = peer.data(5, utf8('a'));
    far.write(frame.subarray(0, 8));
    far.write(frame.subarray(8));
    far.write(peer.data(5, utf8('b')));
    await turns();
    expect(messages(1).map(text)).toEqual(['', 'a', 'b']);
  });

  it('is collected up to a limit', async () => {
    const { far, peer, received, channel, messages } = start();
    await until(() => received.length === 4);
    await turns();
    for (let count = 0; count < 64; count += 1) far.write(peer.data(5, new Uint8Array(10_000)));
    await until(() => channel(1).length === 640_000);
    const lengths = messages(1).map(({ length }) => length);
    expect(Math.max(...lengths)).toBe(50_000);
    expect(lengths).toHaveLength(15);
  });

  it('is sent before the connection ends', async () => {
    const { session, far, peer, received, messages, seen } = start();
    await until(() => received.length === 4);
    await turns();
    for (const what of ['a', 'b', 'c']) far.write(peer.data(5, utf8(what)));
    far.end();
    await closed(session);
    expect(messages(1).map(text)).toEqual(['', 'a', 'bc']);
    expect(seen).not.toContain('close 1000');
  });

  it('is dropped when the session is destroyed', async () => {
    const { session, far, peer, received, messages, errors } = start();
    await until(() => received.length === 4);
    await turns();
    far.write(peer.data(5, utf8('a')));
    far.write(peer.data(5, utf8('b')), () => session.destroy());
    await turns();
    expect(messages(1).map(text)).toEqual(['', 'a']);
    expect(errors).toEqual([]);
  });
});

describe('input of the client', () => {
  it('reaches its streams, and nothing else does', async () => {
    const { session, received, input } = start({ tty: true });
    await until(() => received.length === 4);
    const size = utf8('{"Width":80,"Height":24}');
    for (const channel of [1, 2, 3, 77]) session.write(clientMessage(channel, utf8('?')));
    session.write(clientMessage(255, Uint8Array.of(1)));
    session.write(clientMessage(0, new Uint8Array(0)));
    session.write(clientMessage(4, size));
    session.write(clientMessage(0, utf8('key')));
    await until(() => input.has(3));
    expect([...input]).toEqual([
      [7, Buffer.from(size)],
      [3, Buffer.from('key')],
    ]);
    expect(received).toHaveLength(4);
  });

  it("is written before the client's close frame is handled", async () => {
    const { session, received, input, seen } = start();
    await until(() => received.length === 4);
    const many = Buffer.alloc(1_000_000, 7);
    session.write(Buffer.concat([clientMessage(0, many), CLOSE]));
    session.write(clientMessage(0, utf8('after')));
    await until(() => received.includes('end'));
    expect(Buffer.compare(input.get(3)!, many)).toBe(0);
    expect(seen).toEqual(['message 1', 'close 1000']);
  });

  it('is dropped when the server has closed the stream', async () => {
    const { session, far, peer, received, input, channel } = start();
    await until(() => received.length === 4);
    far.write(reset(3));
    far.write(peer.data(5, utf8('x')));
    await until(() => channel(1).length === 1);
    session.write(clientMessage(0, utf8('late')));
    session.write(clientMessage(255, Uint8Array.of(0)));
    await turns();
    expect(input.size).toBe(0);
    expect(received).toHaveLength(4);
  });

  it('has no close signal before version 5', async () => {
    const { session, received } = start({ version: 4 });
    await until(() => received.length === 4);
    session.write(clientMessage(255, Uint8Array.of(0)));
    await turns();
    expect(received).toHaveLength(4);
  });

  it('waits for a server that does not read', async () => {
    const { session, far, received, input } = start();
    await until(() => received.length === 4);
    far.pause();
    const piece = clientMessage(0, new Uint8Array(32_768));
    let done = 0;
    for (let count = 0; count < 64; count += 1) session.write(piece, () => (done += 1));
    await turns(20);
    expect(done).toBeLessThan(16);
    far.resume();
    await until(() => done === 64);
    expect(input.get(3)).toHaveLength(64 * 32_768);
  });

  it.each<[string, Uint8Array]>([
    ['a fragment', encodeWebSocketFrame({ opcode: 2, fin: false, payload: utf8('\0a'), mask: MASK })],
    ['no channel', encodeWebSocketFrame({ opcode: 2, fin: true, payload: new Uint8Array(0), mask: MASK })],
    ['no mask', encodeWebSocketFrame({ opcode: 2, fin: true, payload: utf8('\0a') })],
    [
      'a compressed frame',
      encodeWebSocketFrame({ opcode: 2, fin: true, rsv: 4, payload: utf8('\0a'), mask: MASK }),
    ],
    ['a frame of 4 GB', Uint8Array.of(0x82, 0xff, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0)],
  ])('ends the session when it is %s', async (_name, frame) => {
    const { session, near, seen, received, input, errors } = start();
    await until(() => received.length === 4);
    session.write(frame);
    await closed(session);
    expect(errors).toMatchObject([{ code: 'SESSION_VIOLATED' }]);
    expect(seen).toEqual(['message 1']);
    expect(input.size).toBe(0);
    expect(near.destroyed).toBe(true);
  });
});

describe('heartbeats', () => {
  const ping = (payload: string) =>
    encodeWebSocketFrame({ opcode: 9, fin: true, payload: utf8(payload), mask: MASK });

  it('of the client get a reply when the API server has replied', async () => {
    const { session, far, received, seen } = start();
    await until(() => received.length === 4);
    for (const byte of ping('one')) session.write(Uint8Array.of(byte));
    await until(() => received.length === 5);
    session.write(ping('two'));
    await until(() => received.length === 6);
    expect(received.slice(4)).toEqual(['ping 1', 'ping 3']);
    expect(seen).toEqual(['message 1']);
    // sends responses to the previous ping, to an unknown ping, and twice to the current ping
    for (const id of [1, 99, 3, 3]) far.write(encodeSpdyFrame({ kind: 'ping', id }));
    await until(() => seen.length === 2);
    await turns();
    expect(seen).toEqual(['message 1', 'pong two']);
  });

  it('of the server get a reply when the client has sent everything else', async () => {
    const { far, peer, received } = start();
    await until(() => received.length === 4);
    const question = (id: number) => encodeSpdyFrame({ kind: 'ping', id });
    far.write(question(2));
    await until(() => received.length === 5);
    expect(received[4]).toBe('ping 2');
    far.write(question(4));
    far.write(peer.data(5, utf8('more')));
    await turns();
    expect(received).toHaveLength(5);
  });

  it('are not sent to a server whose session has ended', async () => {
    const { session, far, peer, received, seen } = start();
    await until(() => received.length === 4);
    far.write(Buffer.concat([...ending(peer, STATUS_SUCCESS), encodeSpdyFrame({ kind: 'ping', id: 2 })]));
    await until(() => seen.includes('close 1000'));
    session.write(ping('x'));
    await turns();
    expect(received.filter((what) => what.startsWith('ping'))).toEqual([]);
  });
});

describe('a hostile API server', () => {
  const bomb = (): Uint8Array =>
    encodeSpdyFrame({
      kind: 'headers',
      streamId: 1,
      fin: false,
      block: deflateRawSync(Buffer.alloc(10_000_000), { finishFlush: constants.Z_SYNC_FLUSH }),
    });
  const withBlock = (length: number): Uint8Array => {
    // a control frame with `length` bytes of payload
    const frame = new Uint8Array(8 + length);
    const view = new DataView(frame.buffer);
    view.setUint32(0, 0x8003_0008);
    view.setUint32(4, length);
    view.setUint32(8, 1);
    return frame;
  };

  it.each<[string, (peer: ReturnType<typeof createSpdyPeer>) => Uint8Array]>([
    ['opens a stream', (peer) => peer.open(2, 'stdout')],
    ['opens a stream of ours again', (peer) => peer.open(5, 'stdout')],
    ['speaks on a stream that was never opened', (peer) => peer.data(9, utf8('x'))],
    ['speaks on stream 0', () => Uint8Array.of(0, 0, 0, 0, 0, 0, 0, 1, 0x78)],
    ['speaks on stdin', (peer) => peer.data(3, utf8('x'))],
    ['answers twice', (peer) => peer.reply(7)],
    ['answers what was never asked', (peer) => peer.reply(11)],
    ['speaks another version', () => Uint8Array.of(0x80, 2, 0, 1, 0, 0, 0, 0)],
    [
      'sends headers that are none',
      () =>
        encodeSpdyFrame({
          kind: 'headers',
          streamId: 1,
          fin: false,
          block: Uint8Array.of(1, 2, 3, 4, 5, 6, 7),
        }),
    ],
    ['sends headers that inflate to 10 MB', bomb],
    ['sends a control frame of more than 64 KiB', () => withBlock(64 * 1024 + 1)],
    ['says the end of HTTP', () => utf8('HTTP/1.1 500 Internal Server Error\r\n\r\n')],
  ])('ends its session when it %s', async (_name, frame) => {
    const { session, near, far, peer, received, seen, errors } = start();
    await until(() => received.length === 4);
    far.write(frame(peer));
    await closed(session);
    expect(errors).toHaveLength(1);
    expect(errors).toMatchObject([{ code: 'SESSION_VIOLATED' }]);
    expect(seen).toEqual(['message 1']);
    expect(near.destroyed).toBe(true);
  });

  it('is refused a large control frame by its header, and one of 64 KiB only for its content', async () => {
    const { session, far, received, errors } = start();
    await until(() => received.length === 4);
    far.write(withBlock(64 * 1024).subarray(0, 1000));
    await turns();
    expect(errors).toEqual([]);
    session.destroy();
  });

  it('gets no grace time when it refuses a stream', async () => {
    const { session, far, received, errors } = start({ answers: (id) => id < 5 });
    await until(() => received.length === 3);
    far.write(reset(5));
    await closed(session);
    expect(errors).toMatchObject([{ code: 'SESSION_VIOLATED' }]);
  });

  it('costs no memory when its client does not read', async () => {
    const [near, far] = duplexPair();
    const peer = createSpdyPeer();
    const session = new ExecOverSpdy({ ...SESSION, socket: near });
    far.resume();
    for (const id of [1, 3, 5, 7]) {
      far.write(peer.reply(id));
      await turns();
    }
    const piece = peer.data(5, new Uint8Array(32_768));
    let written = 0;
    for (let count = 0; count < 200; count += 1) far.write(piece, () => (written += 1));
    await turns(50);
    expect(session.readableLength).toBeLessThan(256 * 1024);
    expect(written).toBeLessThan(12);
    const client = receive(session);
    await until(() => written === 200);
    await until(() => client.channel(1).length === 200 * 32_768);
    session.destroy();
  });
});

it('reads the bytes that follow the response head of the API server', async () => {
  const [near, far] = duplexPair();
  const peer = createSpdyPeer();
  far.resume();
  const head = Buffer.from(peer.reply(1));
  const session = new ExecOverSpdy({ ...SESSION, socket: near, head });
  const client = receive(session);
  for (const id of [3, 5, 7]) {
    await turns();
    far.write(peer.reply(id));
  }
  await turns();
  for (const frame of ending(peer, STATUS_SUCCESS)) far.write(frame);
  await until(() => client.seen.length === 3);
  expect(client.seen).toEqual(['message 1', 'message 3', 'close 1000']);
  session.destroy();
});
