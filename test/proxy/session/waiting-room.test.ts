/**
 * `WaitingRoom` with real byte streams. The expected bytes are written by hand, or parsed with the parser below, which
 * shares no code with `WaitingRoom`.
 */
import { once } from 'node:events';
import { constants, inflateSync } from 'node:zlib';
import fc from 'fast-check';
import { afterEach, describe, expect, it } from 'vitest';
import { WaitingRoom, type WaitingRoomOptions } from '../../../src/proxy/session/waiting-room.ts';
import { SPDY_DICTIONARY } from '../../../src/wire/spdy/dictionary.ts';
import { encodeSpdyFrame } from '../../../src/wire/spdy/frame.ts';
import { encodeWebSocketFrame, OPCODE } from '../../../src/wire/websocket/frame.ts';
import { ByteReader } from '../../support/byte-reader.ts';
import { socketPair, type SocketPair } from '../../support/socket-pair.ts';
import { clientMessage, createSpdyPeer, MASK, serverMessage, utf8 } from '../../support/stream-peers.ts';

const LIMIT = 64 * 1024;
const TEXT = 'wait for bob';
const SHELL = { stdin: true, stdout: true, stderr: false, tty: true };
const PROGRAM = { stdin: true, stdout: true, stderr: true, tty: false };
const ERROR = 1;
const STDIN = 3;
const STDOUT = 5;
const RESIZE = 7;
const STREAMS = [ERROR, STDIN, STDOUT, RESIZE];
const SIZE = utf8('{"Width":80,"Height":24}');

const pairs: SocketPair[] = [];
afterEach(() => {
  for (const { near, far } of pairs.splice(0)) {
    near.destroy();
    far.destroy();
  }
});

/** Opens a `WaitingRoom`, and collects the output for its client. `hasLeft` returns true after a call of `left`. */
function openRoom(protocol: WaitingRoomOptions['protocol'], exec: WaitingRoomOptions['exec'] = SHELL) {
  let leaves = 0;
  const room = new WaitingRoom({
    protocol,
    version: 4,
    exec,
    text: TEXT,
    left: () => void (leaves += 1),
  });
  const shown = new ByteReader(room);
  const errors: Error[] = [];
  room.on('error', (error: Error) => errors.push(error));
  return { room, shown, errors, hasLeft: () => leaves > 0 };
}

/** Writes without waiting. Returns a function that returns the number of accepted chunks. */
function write({ room }: Pick<ReturnType<typeof openRoom>, 'room'>, chunks: readonly Uint8Array[]) {
  let accepted = 0;
  for (const chunk of chunks) room.write(chunk, (error) => void (accepted += error ? 0 : 1));
  return () => accepted;
}

/** Connects an API server. `far` is the server's end of the connection. */
async function enter(
  { room }: Pick<ReturnType<typeof openRoom>, 'room'>,
  head: Uint8Array = Buffer.alloc(0),
) {
  const pair = await socketPair();
  pairs.push(pair);
  const received = new ByteReader(pair.far);
  room.enter(pair.near, head);
  return { ...pair, received };
}

/** Waits until the streams have delivered all that was written. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 3; turn += 1) await new Promise((resolve) => setImmediate(resolve));
}

/** Cuts bytes into chunks at any places. */
function cutUp(bytes: Uint8Array, places: readonly number[]): Uint8Array[] {
  const ends = [...new Set([...places.map((place) => place % bytes.length), bytes.length])].sort(
    (left, right) => left - right,
  );
  return ends
    .map((end, index) => bytes.subarray(ends[index - 1] ?? 0, end))
    .filter(({ length }) => length > 0);
}
const places = fc.oneof(
  fc.array(fc.nat(100_000), { maxLength: 12 }),
  fc.constant(Array.from({ length: 2000 }, (_, place) => place)),
);

interface SpdySummary {
  /** For each control frame: its type, and the first word of its payload. */
  readonly controls: readonly string[];
  /** Payload of the DATA frames by stream. `.` stands for a FIN. */
  readonly data: Readonly<Record<number, string>>;
  readonly blocks: Buffer;
}

/**
 * Parses SPDY frames. At the end of the bytes, the payload of an incomplete DATA frame is included; an incomplete
 * control frame is ignored.
 */
function readSpdy(bytes: Buffer): SpdySummary {
  const controls: string[] = [];
  const data: Record<number, string> = {};
  const blocks: Buffer[] = [];
  for (let at = 0; at + 8 <= bytes.length;) {
    const end = at + 8 + bytes.readUIntBE(at + 5, 3);
    const first = bytes.readUInt32BE(at);
    const payload = bytes.subarray(at + 8, end);
    if (first < 0x8000_0000) {
      const fin = bytes[at + 4] === 1 && end <= bytes.length ? '.' : '';
      if (payload.length > 0 || fin !== '')
        data[first] = (data[first] ?? '') + payload.toString('latin1') + fin;
    } else if (end <= bytes.length) {
      controls.push(`${first & 0xffff}:${payload.readUInt32BE(0)}`);
      if ((first & 0xffff) === 2) blocks.push(payload.subarray(4));
    }
    at = end;
  }
  return { controls, data, blocks: Buffer.concat(blocks) };
}

const spdyClient = createSpdyPeer();
const SPDY_OPENING = Buffer.concat([
  spdyClient.open(ERROR, 'error'),
  spdyClient.open(STDIN, 'stdin'),
  spdyClient.open(STDOUT, 'stdout'),
  spdyClient.open(RESIZE, 'resize'),
]);
const SPDY_CLIENT = Buffer.concat([
  SPDY_OPENING,
  encodeSpdyFrame({ kind: 'ping', id: 1 }),
  encodeSpdyFrame({ kind: 'ping', id: 2 }),
  spdyClient.data(RESIZE, SIZE),
  spdyClient.data(STDIN, utf8('ls -l\r')),
  encodeSpdyFrame({ kind: 'ping', id: 3 }),
]);
const spdyServer = createSpdyPeer();
const SPDY_SERVER = Buffer.concat([
  spdyServer.reply(ERROR),
  spdyServer.reply(STDIN),
  spdyServer.data(STDOUT, utf8('before ')),
  spdyServer.reply(STDOUT),
  spdyServer.data(STDOUT, utf8('between ')),
  spdyServer.reply(RESIZE),
  spdyServer.data(STDOUT, utf8('x'.repeat(300))),
  spdyServer.data(STDOUT, utf8(' after'), true),
  encodeSpdyFrame({ kind: 'ping', id: 1 }),
  spdyServer.data(ERROR, utf8('{"status":"Success"}')),
  encodeSpdyFrame({ kind: 'goaway', lastStreamId: RESIZE, status: 0 }),
]);

const WEBSOCKET_CLIENT = Buffer.concat([
  clientMessage(4, SIZE),
  encodeWebSocketFrame({ opcode: OPCODE.ping, fin: true, payload: utf8('alive?'), mask: MASK }),
  clientMessage(0, utf8('ls -l\r')),
  encodeWebSocketFrame({ opcode: OPCODE.pong, fin: true, payload: utf8('unasked'), mask: MASK }),
  encodeWebSocketFrame({ opcode: OPCODE.ping, fin: true, payload: new Uint8Array(0), mask: MASK }),
  clientMessage(0, new Uint8Array(300).fill(0x61)),
]);
/** The expected text as a message on channel 1. `WEBSOCKET_SHOWN` is this message and two pongs. */
const WEBSOCKET_TEXT = Buffer.concat([Buffer.from([0x82, TEXT.length + 3, 1]), utf8(`${TEXT}\r\n`)]);
const WEBSOCKET_SHOWN = Buffer.concat([
  WEBSOCKET_TEXT,
  Buffer.from([0x8a, 6]),
  utf8('alive?'),
  Buffer.from([0x8a, 0]),
]);

describe('a waiting room over SPDY', () => {
  it('replies equally to each segmentation, and forwards all bytes of the client', async () => {
    await fc.assert(
      fc.asyncProperty(places, async (cuts) => {
        const opened = openRoom('spdy');
        write(opened, cutUp(SPDY_CLIENT, cuts));
        await settle();
        const shown = readSpdy(opened.shown.bytes);
        expect(shown.controls).toEqual([...STREAMS.map((id) => `2:${id}`), '6:1', '6:3']);
        expect(shown.data).toEqual({ [STDOUT]: `${TEXT}\r\n` });
        const blocks = inflateSync(shown.blocks, {
          dictionary: SPDY_DICTIONARY,
          finishFlush: constants.Z_SYNC_FLUSH,
        });
        expect(blocks).toEqual(Buffer.alloc(4 * STREAMS.length));
        expect([opened.hasLeft(), opened.errors]).toEqual([false, []]);
        await opened.room.ready;
        const { received } = await enter(opened);
        opened.room.end(spdyClient.data(STDIN, utf8('exit\r')));
        await received.until(() => received.ended);
        const later = Buffer.concat([SPDY_CLIENT, spdyClient.data(STDIN, utf8('exit\r'))]);
        expect(received.bytes.equals(later)).toBe(true);
      }),
      { numRuns: 60 },
    );
  });

  it('drops the stream replies of the API server, and nothing else, wherever its bytes are split', async () => {
    await fc.assert(
      fc.asyncProperty(places, fc.nat(SPDY_SERVER.length), async (cuts, headBytes) => {
        const opened = openRoom('spdy');
        write(opened, [SPDY_OPENING]);
        await settle();
        await opened.shown.take(opened.shown.size);
        const { far } = await enter(opened, SPDY_SERVER.subarray(0, headBytes));
        const rest = SPDY_SERVER.subarray(headBytes);
        for (const chunk of rest.length === 0 ? [] : cutUp(rest, cuts)) far.write(chunk);
        far.end();
        await opened.shown.until(() => opened.shown.ended);
        const { controls, data } = readSpdy(opened.shown.bytes);
        expect(controls).toEqual(['6:1', `7:${RESIZE}`]);
        expect(data).toEqual({
          [STDOUT]: `before between ${'x'.repeat(300)} after.`,
          [ERROR]: '{"status":"Success"}',
        });
      }),
      { numRuns: 60 },
    );
  });

  it('forwards the reply to a stream that the client opens later', async () => {
    const opened = openRoom('spdy', { ...PROGRAM, stdin: false, stderr: false });
    const client = createSpdyPeer();
    write(opened, [client.open(1, 'error'), client.open(3, 'stdout')]);
    await settle();
    await opened.shown.take(opened.shown.size);
    const { far } = await enter(opened);
    const server = createSpdyPeer();
    far.end(Buffer.concat([1, 3, 5].map((id) => server.reply(id))));
    await opened.shown.until(() => opened.shown.ended);
    expect(readSpdy(opened.shown.bytes).controls).toEqual(['2:5']);
  });

  it('is ready when the client has opened all streams', async () => {
    const opened = openRoom('spdy');
    let isReady = false;
    void opened.room.ready.then(() => (isReady = true));
    write(opened, [SPDY_OPENING.subarray(0, -1)]);
    await settle();
    expect(isReady).toBe(false);
    write(opened, [SPDY_OPENING.subarray(-1)]);
    await opened.room.ready;
  });

  it.each([
    ['a shell whose client opens stderr instead of stdout', SHELL, ['error', 'stdin', 'stderr', 'resize']],
    [
      'a program whose client opens resize instead of stderr',
      PROGRAM,
      ['error', 'stdin', 'stdout', 'resize'],
    ],
  ])('never becomes ready for %s', async (_, exec, roles) => {
    const opened = openRoom('spdy', exec);
    let isReady = false;
    void opened.room.ready.then(() => (isReady = true));
    const client = createSpdyPeer();
    write(opened, [Buffer.concat(roles.map((role, index) => client.open(2 * index + 1, role)))]);
    await settle();
    expect([isReady, opened.errors, readSpdy(opened.shown.bytes).data]).toEqual([false, [], {}]);
  });

  it.each([
    ['opens a role twice', ['error', 'stdin', 'stdin', 'stdout']],
    ['opens an unknown role', ['error', 'stdio']],
  ])('ends the session of a client that %s', async (_, roles) => {
    const opened = openRoom('spdy', PROGRAM);
    const client = createSpdyPeer();
    write(opened, [Buffer.concat(roles.map((role, index) => client.open(2 * index + 1, role)))]);
    await opened.shown.untilClosed();
    expect(opened.errors).toHaveLength(1);
  });
});

describe('a waiting room over WebSocket', () => {
  it('replies equally to each segmentation, and forwards all bytes of the client', async () => {
    await fc.assert(
      fc.asyncProperty(places, async (cuts) => {
        const opened = openRoom('websocket');
        write(opened, cutUp(WEBSOCKET_CLIENT, cuts));
        await settle();
        expect(opened.shown.bytes).toEqual(WEBSOCKET_SHOWN);
        expect([opened.hasLeft(), opened.errors]).toEqual([false, []]);
        const output = Buffer.concat([serverMessage(1, utf8('# ')), serverMessage(3, utf8('{}'))]);
        const { far, received } = await enter(opened, output.subarray(0, cuts[0] ?? 0));
        far.write(output.subarray(cuts[0] ?? 0));
        opened.room.end();
        await received.until(() => received.ended);
        expect(received.bytes.equals(WEBSOCKET_CLIENT)).toBe(true);
        far.end();
        await opened.shown.until(() => opened.shown.ended);
        expect(opened.shown.bytes).toEqual(Buffer.concat([WEBSOCKET_SHOWN, output]));
      }),
      { numRuns: 60 },
    );
  });

  it('shows the waiting message on stderr, and nothing if the session has no stderr', async () => {
    expect(openRoom('websocket', PROGRAM).shown.bytes).toHaveLength(0);
    const opened = openRoom('websocket', PROGRAM);
    const silent = openRoom('websocket', { ...PROGRAM, stderr: false });
    await settle();
    expect(opened.shown.bytes.subarray(0, 3)).toEqual(Buffer.from([0x82, TEXT.length + 3, 2]));
    expect(silent.shown.size).toBe(0);
  });
});

describe('the kept input', () => {
  /** Functions that build input of exactly `bytes` bytes. */
  const INPUT = {
    websocket: (bytes: number) => clientMessage(0, new Uint8Array(bytes - 9).fill(0x61)),
    spdy: (bytes: number) =>
      Buffer.concat([
        SPDY_OPENING,
        spdyClient.data(STDIN, new Uint8Array(bytes - SPDY_OPENING.length - 8).fill(0x61)),
      ]),
  };
  const MORE = { websocket: clientMessage(0, utf8('more')), spdy: spdyClient.data(STDIN, utf8('more')) };

  it.each(['spdy', 'websocket'] as const)(
    'of %s has a limit, above which the client has to wait',
    async (protocol) => {
      const full = openRoom(protocol);
      const input = INPUT[protocol](LIMIT);
      expect(input).toHaveLength(LIMIT);
      const accepted = write(full, [input, MORE[protocol], MORE[protocol]]);
      await settle();
      expect(accepted()).toBe(1);
      const over = openRoom(protocol);
      const acceptedOver = write(over, [INPUT[protocol](LIMIT + 1), MORE[protocol]]);
      await settle();
      expect(acceptedOver()).toBe(0);
      const { received } = await enter(full);
      full.room.end(MORE[protocol]);
      await received.until(() => received.ended);
      const all = Buffer.concat([input, MORE[protocol], MORE[protocol], MORE[protocol]]);
      expect(received.bytes.equals(all)).toBe(true);
      expect(accepted()).toBe(3);
    },
  );

  it("is a copy of the client's bytes", async () => {
    const opened = openRoom('websocket');
    const chunk = Buffer.from(MORE.websocket);
    await new Promise((resolve) => opened.room.write(chunk, resolve));
    chunk.fill(0);
    const { received } = await enter(opened);
    opened.room.end();
    await received.until(() => received.ended);
    expect(received.bytes).toEqual(Buffer.from(MORE.websocket));
  });
});

describe('a waiting client that gives up', () => {
  const FRAMES = {
    websocket: {
      opening: Buffer.alloc(0),
      typed: (bytes: Uint8Array) => clientMessage(0, bytes),
      resized: (bytes: Uint8Array) => clientMessage(4, bytes),
      closing: encodeWebSocketFrame({
        opcode: OPCODE.close,
        fin: true,
        payload: new Uint8Array(0),
        mask: MASK,
      }),
    },
    spdy: {
      opening: SPDY_OPENING,
      typed: (bytes: Uint8Array) => spdyClient.data(STDIN, bytes),
      resized: (bytes: Uint8Array) => spdyClient.data(RESIZE, bytes),
      closing: encodeSpdyFrame({ kind: 'goaway', lastStreamId: 0, status: 0 }),
    },
  };
  const protocols = ['spdy', 'websocket'] as const;

  it.each(protocols)(
    'is detected over %s by Ctrl-C and Ctrl-D in a terminal, wherever the bytes are split',
    (protocol) => {
      const { opening, typed } = FRAMES[protocol];
      fc.assert(
        fc.property(places, fc.constantFrom('\u0003', '\u0004'), (cuts, key) => {
          const opened = openRoom(protocol);
          write(opened, cutUp(Buffer.concat([opening, typed(utf8(`abc${key}def`))]), cuts));
          expect(opened.hasLeft()).toBe(true);
        }),
      );
    },
  );

  it.each(protocols)('is detected over %s by its close frame', (protocol) => {
    const opened = openRoom(protocol, PROGRAM);
    write(opened, [FRAMES[protocol].closing]);
    expect(opened.hasLeft()).toBe(true);
  });

  it.each(protocols)(
    'is not assumed over %s because of these bytes without a terminal, or in a terminal size',
    (protocol) => {
      const { opening, typed, resized } = FRAMES[protocol];
      const keys = Uint8Array.of(3, 4);
      const program = openRoom(protocol, PROGRAM);
      write(program, [opening, typed(keys)]);
      const shell = openRoom(protocol);
      write(shell, [opening, resized(keys), typed(utf8('abc'))]);
      expect([program.hasLeft(), shell.hasLeft()]).toEqual([false, false]);
    },
  );

  it.each(['destroy', 'end'] as const)('is not connected to the API server afterwards (%s)', async (how) => {
    const opened = openRoom('websocket');
    opened.room[how]();
    await settle();
    const { near, received } = await enter(opened);
    await received.until(() => received.ended);
    expect([near.destroyed, received.size, opened.errors]).toEqual([true, 0, []]);
  });
});

describe('an API server that disconnects', () => {
  it.each(['end', 'resetAndDestroy'] as const)('between any two bytes (%s) ends the session', async (how) => {
    for (let sent = 0; sent <= SPDY_SERVER.length; sent += how === 'end' ? 1 : 7) {
      const opened = openRoom('spdy');
      write(opened, [SPDY_OPENING]);
      await settle();
      await opened.shown.take(opened.shown.size);
      const { far, near } = await enter(opened);
      const bytes = SPDY_SERVER.subarray(0, sent);
      await new Promise((resolve) => far.write(bytes, resolve));
      far[how]();
      await opened.shown.until(() => opened.shown.ended || opened.shown.closed);
      const shown = readSpdy(opened.shown.bytes);
      const { controls, data } = readSpdy(bytes);
      if (how === 'end') expect(shown.data).toEqual(data);
      else expect(data[STDOUT] ?? '').toContain(shown.data[STDOUT] ?? '');
      const passed = controls.filter((control) => !control.startsWith('2:'));
      if (how === 'end') expect(shown.controls).toEqual(passed);
      opened.room.end();
      await opened.shown.untilClosed();
      expect(near.destroyed).toBe(true);
    }
  });

  it('releases a client that waits for it', async () => {
    const opened = openRoom('websocket');
    const chunks = Array.from({ length: 200 }, () => clientMessage(0, new Uint8Array(LIMIT)));
    const accepted = write(opened, chunks);
    const pair = await socketPair();
    pairs.push(pair);
    opened.room.enter(pair.near, Buffer.alloc(0));
    await once(pair.far, 'readable');
    expect(accepted()).toBeLessThan(chunks.length);
    pair.far.destroy();
    await opened.shown.untilClosed();
  });

  it('ends the session with bytes that it must not send', async () => {
    const opened = openRoom('spdy');
    write(opened, [SPDY_OPENING]);
    const { near } = await enter(opened, Buffer.from('HTTP/1.1 500'));
    await opened.shown.untilClosed();
    expect([opened.errors.length, near.destroyed]).toEqual([1, true]);
  });
});

describe('bytes of a hostile client', () => {
  it.each(['spdy', 'websocket'] as const)('over %s end the session or wait for more', async (protocol) => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.oneof(fc.uint8Array(), fc.constant(SPDY_CLIENT), fc.constant(WEBSOCKET_CLIENT))),
        fc.constantFrom(SHELL, PROGRAM),
        async (chunks, exec) => {
          const opened = openRoom(protocol, exec);
          write(opened, chunks);
          await settle();
          expect(opened.errors.length).toBeLessThanOrEqual(1);
          expect(opened.room.destroyed).toBe(opened.errors.length > 0);
          opened.room.destroy();
        },
      ),
    );
  });
});
