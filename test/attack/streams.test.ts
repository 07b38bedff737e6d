/**
 * Attack corpus F: streams of a session with enforced recording. A protocol violation ends the session, and the
 * recording reports it.
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ByteReader } from '../support/byte-reader.ts';
import { createSpdyPeer, serverMessage, utf8, MASK, statusExit } from '../support/stream-peers.ts';
import type { DoubleUpload } from '../support/recorder-double.ts';
import { BOB, GATEWAY_HOST, openArena, sendHttp1, type Arena } from './arena.ts';
import type { EchoedRequest } from './echo-api-server.ts';
import { EXEC, SPDY, WEBSOCKET } from './transports.ts';

let arena: Arena;
beforeAll(async () => {
  arena = await openArena();
});
afterAll(() => arena.close());

interface Session {
  readonly server: EchoedRequest;
  readonly upload: DoubleUpload;
  readonly reader: ByteReader;
  /** Sends bytes as the client or as the API server. */
  say(side: 'client' | 'server', ...chunks: readonly Uint8Array[]): Promise<void>;
}

async function inSession(
  protocol: 'spdy' | 'websocket',
  act: (session: Session) => Promise<void>,
  target = EXEC,
): Promise<void> {
  const fields = protocol === 'spdy' ? SPDY : WEBSOCKET;
  const lines = fields.map(([name, value]) => `${name}: ${value}\r\n`).join('');
  const before = arena.recorder.uploads.length;
  const bytes = `GET ${target} HTTP/1.1\r\nHost: ${GATEWAY_HOST}\r\n${lines}\r\n`;
  let ran = false;
  await sendHttp1(arena, BOB, bytes, async (socket, reader) => {
    await arena.recorder.until(() => arena.recorder.uploads.length > before);
    const server = arena.apiServer.requests.at(-1)!;
    const upload = arena.recorder.uploads[before]!;
    const say: Session['say'] = async (side, ...chunks) => {
      const end = side === 'client' ? socket : server.socket;
      for (const chunk of chunks)
        await new Promise<void>((resolve) => {
          if (!end.write(chunk, () => resolve())) end.once('close', () => resolve());
        });
    };
    await act({ server, upload, reader, say });
    ran = true;
  });
  expect(ran).toBe(true);
}

const endOf = (upload: DoubleUpload): string | undefined =>
  upload.lines().find((line) => line.includes('"kind":"end"'));

/** The text of all output so far. */
const shownIn = (upload: DoubleUpload): string =>
  upload
    .lines()
    .filter((line) => line.startsWith('['))
    .map((line) => (JSON.parse(line) as string[])[2])
    .join('');

/** Checks that the session ends with a violation, and that the invalid chunk is not delivered. */
async function expectViolated({ upload, reader, server }: Session, hostile: string): Promise<void> {
  await reader.untilClosed();
  await arena.recorder.until(() => endOf(upload) !== undefined);
  expect(JSON.parse(endOf(upload) ?? '')).toMatchObject({ outcome: 'violated' });
  expect(reader.bytes.toString('latin1')).not.toContain(hostile);
  expect(server.tunnelled().toString('latin1')).not.toContain(hostile);
}

const HOSTILE = 'rm -rf';
const hostile = utf8(HOSTILE);
const concat = (...parts: readonly Uint8Array[]): Buffer => Buffer.concat(parts);

/** A WebSocket frame with arbitrary header bits. */
function frame(first: number, payload: Uint8Array, mask: boolean): Buffer {
  const bytes = mask ? payload.map((byte, index) => byte ^ (MASK[index % 4] ?? 0)) : payload;
  return concat(Buffer.of(first, payload.length | (mask ? 0x80 : 0)), mask ? MASK : Buffer.alloc(0), bytes);
}

describe('WebSocket sessions', () => {
  const channel = (id: number, data = hostile): Buffer => concat(Buffer.of(id), data);
  const CLIENT: readonly (readonly [string, Uint8Array])[] = [
    ['no mask', frame(0x82, channel(0), false)],
    ['compression', frame(0xc2, channel(0), true)],
    ['a reserved bit', frame(0xa2, channel(0), true)],
    ['another reserved bit', frame(0x92, channel(0), true)],
    ['a reserved opcode', frame(0x83, channel(0), true)],
    ['a reserved control opcode', frame(0x8b, channel(0), true)],
    ['a fragmented ping', frame(0x09, channel(0), true)],
    ['a continuation of nothing', frame(0x80, channel(0), true)],
    ['a message inside a message', concat(frame(0x02, channel(0), true), frame(0x82, channel(0), true))],
    ['a length of 2^63', concat(Buffer.from('82ffffffffffffffffff', 'hex'), MASK, hostile)],
    ['a length that is not the shortest', concat(Buffer.from('82fe0007', 'hex'), MASK, hostile)],
    ['a ping that is too long', concat(Buffer.from('89fe00ff', 'hex'), MASK, Buffer.alloc(255))],
    ['a close signal for two channels', frame(0x82, concat(Buffer.of(255, 0, 1), hostile), true)],
    ['channel 5', frame(0x82, channel(5), true)],
    ['channel 254', frame(0x82, channel(254), true)],
  ];
  it.each(CLIENT)('F4 end when the client sends %s', async (_what, bytes) => {
    await inSession('websocket', async (session) => {
      await session.say('client', bytes);
      await expectViolated(session, HOSTILE);
    });
  });

  const SERVER: readonly (readonly [string, Uint8Array])[] = [
    ['a text message', frame(0x81, channel(1), false)],
    ['a mask', frame(0x82, channel(1), true)],
    ['compression', frame(0xc2, channel(1), false)],
    ['a reserved bit', frame(0x92, channel(1), false)],
    ['a reserved opcode', frame(0x87, channel(1), false)],
    ['a continuation of nothing', frame(0x80, channel(1), false)],
    ['a message inside a message', concat(frame(0x02, channel(1), false), frame(0x82, channel(1), false))],
    ['a length of 2^63', concat(Buffer.from('827fffffffffffffffff', 'hex'), hostile)],
    ['output on the channel of the input', frame(0x82, channel(0), false)],
    ['output on the channel of the size', frame(0x82, channel(4), false)],
    ['channel 5', frame(0x82, channel(5), false)],
    ['channel 254', frame(0x82, channel(254), false)],
    [
      'output behind its close frame',
      concat(frame(0x88, Buffer.from('03e8', 'hex'), false), frame(0x82, channel(1), false)),
    ],
  ];
  it.each(SERVER)('F4 end when the API server sends %s', async (_what, bytes) => {
    await inSession('websocket', async (session) => {
      await session.say('server', bytes);
      await expectViolated(session, HOSTILE);
    });
  });

  it('F4 tell the user why they ended', async () => {
    await inSession('websocket', async (session) => {
      await session.say('server', serverMessage(1, utf8('before')));
      await session.say('client', frame(0x83, channel(0), true));
      await session.reader.untilClosed();
      expect(session.reader.bytes.toString('latin1')).toContain('its stream is invalid');
    });
  });

  it.each([1, 2, 3, 7, 1000])('F1 are recorded the same in pieces of %i bytes', async (size) => {
    await inSession('websocket', async (session) => {
      const output = Array.from({ length: 20 }, (_, n) =>
        serverMessage(n % 2 === 0 ? 1 : 2, utf8(`line ${n} €\n`)),
      );
      const bytes = concat(...output, serverMessage(3, statusExit(3)));
      for (let at = 0; at < bytes.length; at += size)
        await session.say('server', bytes.subarray(at, at + size));
      await arena.recorder.until(() => /"kind":"exit"/.test(session.upload.lines().join('\n')));
      expect(shownIn(session.upload)).toBe(Array.from({ length: 20 }, (_, n) => `line ${n} €\n`).join(''));
    });
  });
});

describe('SPDY sessions', () => {
  /** The client opens the streams error (1), stdin (3) and stdout (5), and the server accepts the streams. */
  async function opened(session: Session) {
    const client = createSpdyPeer();
    const server = createSpdyPeer();
    const roles = ['error', 'stdin', 'stdout'];
    await session.say('client', ...roles.map((role, index) => client.open(index * 2 + 1, role)));
    await expect.poll(() => session.server.tunnelled().length).toBeGreaterThan(100);
    await session.say('server', ...roles.map((_, index) => server.reply(index * 2 + 1)));
    return { client, server };
  }
  type Peers = Awaited<ReturnType<typeof opened>>;
  const raw = (text: string): Buffer => Buffer.from(text, 'hex');

  const CLIENT: readonly (readonly [string, (peers: Peers) => Uint8Array])[] = [
    ['a second stdout', ({ client }) => client.open(7, 'stdout')],
    ['a second stdin', ({ client }) => client.open(7, 'stdin')],
    ['an unknown role', ({ client }) => client.open(7, 'shell')],
    ['a stream without a role', ({ client }) => client.open(7, undefined)],
    ['a role in upper case', ({ client }) => client.open(7, 'STDERR')],
    ['an id again', ({ client }) => client.open(3, 'stderr')],
    ['an even id', ({ client }) => client.open(8, 'stderr')],
    ['an id that goes back', ({ client }) => concat(client.open(99, 'stderr'), client.open(7, 'resize'))],
    ['the id 0', () => raw('80030001000000120000000000000000000078f9e3c6a7c20200000000ffff')],
    ['an answer', ({ server }) => server.reply(5)],
    ['data on no stream', ({ client }) => client.data(77, hostile)],
    ['data on stream 0', () => concat(raw('0000000000000006'), hostile)],
    ['data on an aliased id', ({ client }) => client.data(0x85, hostile)],
    ['an unknown version', () => raw('800400010000000a0000000700000000000000000000')],
    ['an unknown control frame', () => raw('8003000f00000000')],
    ['an invalid header block', () => raw('800300010000001400000007000000000000deadbeefdeadbeefdead')],
    ['a frame with a wrong length', () => raw('8003000600000005000000010000000000')],
    ['a control frame of 16 MiB', () => raw('80030001ffffffff')],
    ['credentials', () => raw('8003000a00000004000000010000')],
  ];
  it.each(CLIENT)('F2 end when the client sends %s', async (_what, make) => {
    await inSession('spdy', async (session) => {
      const bytes = make(await opened(session));
      await session.say('client', bytes);
      await expectViolated(session, HOSTILE);
    });
  });

  const SERVER: readonly (readonly [string, (peers: Peers) => Uint8Array])[] = [
    ['data on no stream', ({ server }) => server.data(77, hostile)],
    ['data on stream 0', () => concat(raw('0000000000000006'), hostile)],
    ['data on an aliased id', ({ server }) => server.data(0x85, hostile)],
    ['data on the stream of the input', ({ server }) => server.data(3, hostile)],
    ['a stream of its own', ({ server }) => server.open(2, 'stdout')],
    ['an answer to no stream', ({ server }) => server.reply(9)],
    ['an invalid header block', () => raw('800300020000001400000005deadbeefdeadbeefdeadbeefdeadbeef')],
    ['an unknown version', () => raw('8004000200000004000000050000')],
  ];
  it.each(SERVER)('F2, F3 end when the API server sends %s', async (_what, make) => {
    await inSession('spdy', async (session) => {
      const bytes = make(await opened(session));
      await session.say('server', bytes);
      await expectViolated(session, HOSTILE);
    });
  });

  it('F3 end when the API server sends output before it has answered the stream', async () => {
    await inSession('spdy', async (session) => {
      const server = createSpdyPeer();
      await session.say('server', server.data(5, hostile));
      await expectViolated(session, HOSTILE);
    });
  });

  it.each([1, 3, 1000])('F1 are recorded the same in pieces of %i bytes', async (size) => {
    await inSession('spdy', async (session) => {
      const { server } = await opened(session);
      const bytes = concat(...Array.from({ length: 20 }, (_, n) => server.data(5, utf8(`line ${n}\n`))));
      for (let at = 0; at < bytes.length; at += size)
        await session.say('server', bytes.subarray(at, at + size));
      await arena.recorder.until(() => shownIn(session.upload).endsWith('line 19\n'));
      expect(shownIn(session.upload)).toBe(Array.from({ length: 20 }, (_, n) => `line ${n}\n`).join(''));
    });
  });
});

describe('terminals', () => {
  const resize = (text: string): Buffer => frame(0x82, concat(Buffer.of(4), utf8(text)), true);
  it.each([
    ['no size at all', undefined],
    ['a size that is no JSON', 'wide'],
    ['a size of 0x0', '{"Width":0,"Height":0}'],
    ['a size of 65535x65535', '{"Width":65535,"Height":65535}'],
    ['a size that is too large', '{"Width":65536,"Height":-1}'],
    ['members nobody knows', '{"Width":80,"Height":24,"Depth":3}'],
  ])('F6 are recorded with %s', async (_what, size) => {
    await inSession(
      'websocket',
      async (session) => {
        if (size !== undefined) await session.say('client', resize(size));
        await session.say('server', serverMessage(1, utf8('shown')));
        await arena.recorder.until(() => session.upload.lines().join('').includes('shown'));
        expect(JSON.parse(session.upload.lines()[0] ?? '')).toMatchObject({ version: 2 });
      },
      `${EXEC}&tty=true`,
    );
  });

  it('F6 survive ten thousand sizes, and what is shown between them', async () => {
    await inSession(
      'websocket',
      async (session) => {
        const flood = concat(
          ...Array.from({ length: 10_000 }, (_, n) => resize(`{"Width":${n % 500},"Height":24}`)),
        );
        await session.say('client', flood);
        await session.say('server', serverMessage(1, utf8('still there')));
        await arena.recorder.until(() => session.upload.lines().join('').includes('still there'));
        expect(endOf(session.upload)).toBeUndefined();
      },
      `${EXEC}&tty=true`,
    );
  });
});

describe('what a program shows', () => {
  const SHOWN: readonly (readonly [string, string, Uint8Array])[] = [
    ['F7', 'bytes that are not UTF-8', Buffer.from('ff00fe80c3', 'hex')],
    ['F7', 'a NUL', Buffer.from('a\0b')],
    ['F7', 'a title and a clipboard', Buffer.from('\x1b]0;root\x07\x1b]52;c;ZXZpbA==\x07')],
    ['F7', 'a hyperlink and a device string', Buffer.from('\x1b]8;;http://evil\x1b\\\x1bP1;1|evil\x1b\\')],
    ['F8', 'the end of a recording', Buffer.from('{"kind":"end","outcome":"completed"}\n')],
    ['F8', 'a line of a recording', Buffer.from('\n[0.1,"o","forged"]\n')],
    ['F8', 'a header', Buffer.from('{"version":2,"width":1,"height":1}\n')],
  ];
  it.each(SHOWN)('%s is data, exactly: %s', async (_id, _what, bytes) => {
    await inSession('websocket', async (session) => {
      await session.say('server', serverMessage(1, bytes), serverMessage(1, utf8('LAST\n')));
      await arena.recorder.until(() => session.upload.lines().join('').includes('LAST'));
      const parts: Buffer[] = [];
      let next: Buffer | undefined;
      for (const line of session.upload.lines().slice(1)) {
        const value = JSON.parse(line) as { kind?: string; base64?: string } | [number, string, string];
        if (Array.isArray(value)) {
          parts.push(next ?? Buffer.from(value[2]));
          next = undefined;
        } else if (value.kind === 'raw') next = Buffer.from(value.base64 ?? '', 'base64');
        expect(Array.isArray(value) ? 'data' : value.kind).not.toBe('end');
      }
      expect(concat(...parts).toString('hex')).toBe(concat(bytes, utf8('LAST\n')).toString('hex'));
    });
  });
});
