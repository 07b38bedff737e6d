import { isUtf8 } from 'node:buffer';
import { constants, deflateRawSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RecordingSession } from '../../src/recording/session.ts';
import { createSpdyTap } from '../../src/recording/tap-spdy.ts';
import { createUnrecordedSessionTap } from '../../src/recording/tap-unrecorded.ts';
import { FrameLines } from '../../src/wire/recorder-api/frame-lines.ts';
import { SPDY_DICTIONARY } from '../../src/wire/spdy/dictionary.ts';
import { createSpdyParser, encodeSpdyFrame } from '../../src/wire/spdy/frame.ts';
import { deliverInSteps, deliveries } from '../support/delivered-places.ts';
import { bytesWritten } from '../support/session-sink.ts';
import { createSpdyPeer, statusExit, STATUS_SUCCESS, text, utf8 } from '../support/stream-peers.ts';
import { openTap, sidesOf } from '../support/tap-sides.ts';
import { hex, SeenSession } from '../support/tapped-session.ts';
import { EventBatch } from '../../src/recording/event-batch.ts';

/** Header blocks with one shared context, in the order of a real client: error 1, stdin 3, stdout 5, resize 7. */
const GOLDEN_TTY = [
  '80030001000000280000000100000000000078f9e3c6a7c202a62346703a2b294a4dcc851625aca9a08006000000ffff',
  '800300010000001700000003000000000000c22e555c02cc2e00000000ffff',
  '800300010000001900000005000000000000c22a054ce729f9a52500000000ffff',
  '800300010000001700000007000000000000c22e072c7e80f10d000000ffff',
].map(hex);

function taps(version: 1 | 2 | 3 | 4 | 5 = 4) {
  return openTap((session) => createSpdyTap(session, version));
}

/** Opens a session with these stream ids: error 1, stdin 3, stdout 5, stderr 7, resize 9. */
function opened(version?: 1 | 2 | 3 | 4 | 5) {
  const client = createSpdyPeer();
  const server = createSpdyPeer();
  const pair = taps(version);
  ['error', 'stdin', 'stdout', 'stderr', 'resize'].forEach((role, index) => {
    pair.up(client.open(index * 2 + 1, role));
    pair.down(server.reply(index * 2 + 1));
  });
  return { ...pair, client, server };
}

describe('SPDY tap, heartbeats', () => {
  it.each([
    ['recorded', () => createSpdyTap(new SeenSession(), 4)],
    ['unrecorded', () => createUnrecordedSessionTap('spdy', 'v4.channel.k8s.io')!],
  ])("reports for each chunk whether it may wait, and the server's reply to it, %s", (_, createTap) => {
    const client = createSpdyPeer();
    const { client: clientSide } = sidesOf(createTap());
    const look = (chunk: Uint8Array): string => clientSide.fateOf(chunk);
    const ping = hex('800300060000000400000001');
    const answer = '800300060000000400000001';
    expect(look(client.open(1, 'error'))).toBe('goes');
    expect(look(ping)).toBe(answer);
    expect(look(client.open(3, 'stdin'))).toBe('goes');
    expect(look(client.open(5, 'resize'))).toBe('goes');
    expect(look(ping)).toBe(answer);
    expect(look(Buffer.concat([ping, client.data(3, utf8('x'))]))).toBe('goes');
    expect(look(Buffer.concat([client.data(3, utf8('x')), ping]))).toBe('goes');
    for (let at = 1; at < ping.length; at++) {
      expect(look(ping.subarray(0, at))).toBe(`kept ${at}`);
      expect(look(ping.subarray(at))).toBe(answer);
    }
    // kubectl writes a ping in these pieces
    for (const [piece, begun] of [
      ['8003', 2],
      ['0006', 4],
      ['00000004', 8],
    ] as const)
      expect(look(hex(piece))).toBe(`kept ${begun}`);
    expect(look(hex('00000001'))).toBe(answer);
    expect(look(Buffer.concat([client.data(3, utf8('x')), ping.subarray(0, 5)]))).toBe('kept 5');
    expect(look(ping.subarray(5))).toBe(answer);
    expect(look(Buffer.concat([ping, ping.subarray(0, 7)]))).toBe('kept 19');
    expect(look(ping.subarray(7))).toBe(answer + answer);
    // The first bytes of a data frame and of a ping may be equal.
    const key = client.data(3, utf8('x'));
    expect(look(key.subarray(0, 3))).toBe('goes');
    expect(look(key.subarray(3))).toBe('goes');
    expect(look(hex('800300'))).toBe('kept 3');
    expect(look(hex('03000000080000000300000005'))).toBe('goes');
    expect(look(Buffer.concat([ping, ping]))).toBe(answer + answer);
    expect(look(client.data(5, utf8('{"Width":1,"Height":2}')))).toBe('waits');
    expect(look(Buffer.concat([ping, client.data(5, utf8('{}'))]))).toBe('waits');
    // pushes a resize message in two pieces, cut anywhere after its type, and then in the three pieces that kubectl
    // sends
    const size = client.data(5, utf8('{"Width":80,"Height":24}\n'));
    for (let at = 4; at < size.length; at++) {
      expect(look(size.subarray(0, at))).toBe(`kept ${at}`);
      expect(look(size.subarray(at))).toBe('waits');
    }
    expect(look(size.subarray(0, 4))).toBe('kept 4');
    expect(look(size.subarray(4, 8))).toBe('kept 8');
    expect(look(size.subarray(8))).toBe('waits');
    expect(look(Buffer.concat([ping, size.subarray(0, 6)]))).toBe('kept 18');
    expect(look(size.subarray(6))).toBe('waits');
    expect(look(Buffer.concat([size.subarray(0, 6)]))).toBe('kept 6');
    expect(look(Buffer.concat([size.subarray(6), key]))).toBe('goes');
    const long = client.data(5, utf8('{"Width":1,"Height":2}'.padEnd(200)));
    expect(look(long.subarray(0, 135))).toBe('kept 135');
    expect(look(long.subarray(135))).toBe('waits');
    expect(look(long.subarray(0, 136))).toBe('goes');
    expect(look(long.subarray(136))).toBe('goes');
    // the first frame is the client's response to a ping of the server
    expect(look(hex('800300060000000400000002'))).toBe('waits');
    expect(look(hex('80030009000000080000000300000001'))).toBe('waits');
    expect(look(client.data(3, utf8('x'), true))).toBe('goes');
    expect(look(hex('80030003000000080000000300000005'))).toBe('goes');
  });
});

describe('SPDY tap, the end', () => {
  const reset = (id: number): Uint8Array => encodeSpdyFrame({ kind: 'rstStream', streamId: id, status: 5 });
  const ends = ['the API server closed the connection before it said how the command ended', undefined];

  it('is proven by a status and by an end of each output stream', () => {
    const { serverToClient, incompleteReason, down, server } = opened();
    expect(incompleteReason(false)).toBe(ends[0]);
    down(server.data(5, utf8('out')), server.data(1, STATUS_SUCCESS));
    expect(incompleteReason(false)).toBe(ends[0]);
    down(reset(1));
    expect(incompleteReason(false)).toContain('before the output had ended');
    down(reset(5), server.data(7, utf8(''), true));
    expect(incompleteReason(false)).toBeUndefined();
    expect(serverToClient.heldBytes).toBe(0);
  });

  it('is not required of a server whose client has left', () => {
    const { incompleteReason, up } = opened();
    up(encodeSpdyFrame({ kind: 'goaway', lastStreamId: 0, status: 0 }));
    expect(incompleteReason(false)).toBeUndefined();
  });

  it('keeps back a part of a frame, and a status until it is proven, in any segmentation', () => {
    fc.assert(
      fc.property(fc.array(fc.nat(200), { maxLength: 6 }), (cuts) => {
        const { serverToClient, session, server } = opened();
        const output = Buffer.concat([server.data(5, Buffer.alloc(40, 1)), server.data(7, utf8('e'))]);
        const conclusion = Buffer.concat([server.data(1, STATUS_SUCCESS), reset(1), reset(5)]);
        const proof = reset(7);
        const all = Buffer.concat([output, conclusion, proof]);
        let at = 0;
        for (const cut of [...cuts.toSorted((a, b) => a - b), all.length]) {
          const end = Math.min(cut, all.length);
          if (end <= at) continue;
          void serverToClient.push(all.subarray(at, end));
          at = end;
          const delivered = at - serverToClient.heldBytes;
          serverToClient.delivered(serverToClient.heldBytes);
          expect(serverToClient.betweenFrames).toBe(true);
          if (at === all.length) expect(delivered).toBe(all.length);
          else if (at >= output.length) expect(delivered).toBeLessThanOrEqual(output.length);
          else expect([0, 48]).toContain(delivered);
        }
        expect(session.seen.at(-1)).toContain('exit');
      }),
    );
  });

  it('reports a failure to the client if the status is not proven', () => {
    const { serverToClient, farewell, server } = opened();
    void serverToClient.push(Buffer.concat([server.data(1, STATUS_SUCCESS), reset(1), reset(5)]));
    serverToClient.delivered(serverToClient.heldBytes);
    const events = createSpdyParser().push(farewell('cut', 502)!);
    expect(events.map(({ kind }) => kind)).toEqual(['data', 'data', 'data', 'data', 'data', 'goaway']);
    expect(text(farewell('cut', 502)!)).toContain('Failure');
  });
});

describe('SPDY tap, server to client', () => {
  it('records stdout and stderr of any size and skips empty frames', () => {
    const { session, down } = opened();
    down(hex('0000000500000000'));
    expect(session.seen).toEqual([]);
    down(hex('00000005000000050102030405'));
    down(hex('00000007000000050102030405'));
    expect(session.seen).toEqual(['stdout 0102030405', 'stderr 0102030405']);
  });

  it('records all of many frames in one chunk immediately', () => {
    const { session, down, server } = opened();
    down(
      Buffer.concat([server.data(5, utf8('A')), server.data(5, utf8('B')), server.data(5, utf8(''), true)]),
    );
    expect(session.seen).toEqual(['stdout 4142']);
  });

  it('records a frame that is split over chunks after a control frame', () => {
    const { session, down } = opened();
    down(hex('8003000600000004000000020000'), hex('00050000'), hex('00050102030405'));
    expect(session.seen).toEqual(['stdout 0102030405']);
  });

  it('records stdout on a stream with a large id', () => {
    const client = createSpdyPeer();
    const server = createSpdyPeer();
    const { session, up, down } = taps();
    up(client.open(0x8_0001, 'stdout'));
    down(server.reply(0x8_0001), server.data(0x8_0001, utf8('x')));
    expect(session.seen).toEqual(['stdout 78']);
  });

  it('records a frame of 2^24-1 bytes without holding it back', () => {
    const { session, down } = opened();
    session.detailed = false;
    down(hex('0000000500ffffff'));
    const chunk = new Uint8Array(64 * 1024 - 1).fill(0x61);
    let left = 0xff_ffff;
    while (left > 0) {
      const part = chunk.subarray(0, Math.min(left, chunk.length));
      down(part);
      left -= part.length;
    }
    expect(session.outputs.stdout.length).toBe(0xff_ffff);
  });

  it('delivers the data before a violation immediately, because its memory may be reused', async () => {
    const written: Buffer[] = [];
    const session = new RecordingSession(
      {
        createBatch: () => new EventBatch({ frames: true, annotations: true }),
        policy: 'bestEffort',
        write: (lines) => void written.push(bytesWritten(lines)),
        whenShown: () => undefined,
        end: async () => 'confirmed',
        leave: () => undefined,
      },
      {
        tty: false,
        enforce: true,
        header: () => '{"version":2,"width":0,"height":0}\n',
        about: { kind: 'session', id: 's', tty: false, stdin: false, protocol: 'spdy', path: '/x' },
        nowMs: () => 0,
      },
    );
    const { client: clientToServer, server: serverToClient } = sidesOf(createSpdyTap(session, 4));
    const client = createSpdyPeer();
    const server = createSpdyPeer();
    clientToServer.push(client.open(1, 'error'));
    clientToServer.push(client.open(5, 'stdout'));
    const output = utf8('x'.repeat(5000));
    const chunk = Buffer.concat([server.data(5, output), server.data(9, utf8('nobody opened that'))]);
    expect(() => serverToClient.push(chunk)).toThrow(expect.objectContaining({ code: 'SESSION_VIOLATED' }));
    chunk.fill(0);
    await session.end('violated');
    const lines = new FrameLines({ lines: 0, frames: 0 }, isUtf8).push(Buffer.concat(written));
    expect(Buffer.from(lines).toString()).toContain(`[0,"o","${'x'.repeat(5000)}"]`);
  });

  it('reads the exit code when the error stream ends', () => {
    const { session, down, server } = opened();
    down(server.data(1, statusExit(7).subarray(0, 20)), server.data(1, statusExit(7).subarray(20)));
    expect(session.seen).toEqual([]);
    down(server.data(1, new Uint8Array(0), true));
    expect(session.seen).toEqual(['exit 7']);
  });

  it('reads success from a status, and from an empty error stream before v4', () => {
    const four = opened(4);
    four.down(four.server.data(1, STATUS_SUCCESS, true));
    expect(four.session.seen).toEqual(['exit success']);
    const one = opened(1);
    one.down(one.server.data(1, new Uint8Array(0), true));
    expect(one.session.seen).toEqual(['exit success']);
  });

  it('reads the exit code if the error stream is reset, as by a server that closes the connection', () => {
    const { session, down, server } = opened();
    down(server.data(1, statusExit(7)));
    const reset = (streamId: number): Uint8Array =>
      encodeSpdyFrame({ kind: 'rstStream', streamId, status: 5 });
    down(reset(5), reset(1), reset(1));
    expect(session.seen).toEqual(['exit 7']);
    const silent = opened();
    silent.down(reset(1));
    expect(silent.session.seen).toEqual([]);
  });

  it('does not end a session because of an unreadable exit status', () => {
    const { session, down, server } = opened();
    down(server.data(1, utf8('not json'), true));
    expect(session.seen).toEqual([]);
  });
});

describe('SPDY tap, client to server', () => {
  it('learns the streams from the frames of a real client, in any segmentation', () => {
    const bytes = Buffer.concat(GOLDEN_TTY);
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 }), (sizes) => {
        const { session, up, down } = taps();
        for (const part of split(bytes, sizes)) up(part);
        down(hex('0000000500000001ff'));
        up(hex(`0000000700000018${Buffer.from('{"width":10,"height":20}').toString('hex')}`));
        expect(session.seen).toEqual(['stdout ff', 'resize 10x20']);
      }),
    );
  });

  it('reads resizes that are split over frames and chunks, in capitals, with newlines', () => {
    const { session, up, client } = opened();
    up(client.data(9, utf8('{"Width":100,"Hei')), client.data(9, utf8('ght":30}\n{"width":1,"height":2}')));
    expect(session.seen).toEqual(['resize 100x30', 'resize 1x2']);
  });

  it('continues recording if resizes cannot be read', () => {
    const { session, up, down, client, server } = opened();
    up(client.data(9, utf8('no json at all')), client.data(9, utf8('{"Width":1,"Height":2}')));
    down(server.data(5, utf8('x')));
    expect(session.seen).toEqual(['stdout 78']);
  });

  it('counts stdin and forwards its end, with and without a terminal', () => {
    const { session, up, client } = opened();
    up(client.data(3, utf8('hello')), client.data(3, new Uint8Array(0), true));
    expect(session.inputBytes).toBe(5);
    expect(session.seen).toEqual([]);
  });

  it('keeps its header context over several HEADERS frames', () => {
    const compress = createCompressor();
    const { session, up, down } = taps();
    const frame = (kind: 'synStream' | 'headers', streamId: number, name: string, value: string) => {
      const block = compress(name, value);
      return kind === 'headers'
        ? encodeSpdyFrame({ kind, streamId, fin: false, block })
        : encodeSpdyFrame({
            kind,
            streamId,
            associatedTo: 0,
            priority: 0,
            fin: false,
            unidirectional: false,
            block,
          });
    };
    up(
      frame('synStream', 1, 'streamtype', 'error'),
      frame('headers', 1, 'x-note', 'streamtype stdin stderr'.repeat(20)),
      frame('synStream', 3, 'streamtype', 'stdout'),
    );
    down(createSpdyPeer().data(3, utf8('x')));
    expect(session.seen).toEqual(['stdout 78']);
  });

  it('ends the session after 64 header blocks of a direction, because each needs an inflate', () => {
    const { up, down } = opened();
    for (const send of [up, down]) {
      const compress = createCompressor();
      const headers = (): Uint8Array =>
        encodeSpdyFrame({ kind: 'headers', streamId: 1, fin: false, block: compress('a', 'b') });
      expect(() => {
        for (let count = 0; count < 65; count += 1) send(headers());
      }).toThrow(expect.objectContaining({ code: 'SESSION_VIOLATED' }));
    }
  });

  it('waits while the session waits', async () => {
    const { session } = taps();
    const room = Promise.withResolvers<void>();
    session.room = room.promise;
    const wait = createSpdyTap(session, 4).output(hex('8003000600000004'));
    expect(wait).toBeInstanceOf(Promise);
    room.resolve();
    await wait;
  });
});

describe('SPDY final message', () => {
  it('writes the reason to the error stream, ends the streams and sends GOAWAY', () => {
    const { farewell } = opened();
    const events = createSpdyParser().push(farewell('the recorder was lost', 503)!);
    expect(events.map((event) => event.kind)).toEqual(['data', 'data', 'data', 'data', 'data', 'goaway']);
    const status = events.find((event) => event.kind === 'data' && event.streamId === 1);
    expect(status).toMatchObject({ fin: true });
    expect(JSON.parse(text((status as { payload: Uint8Array }).payload))).toMatchObject({
      status: 'Failure',
      message: 'the recorder was lost',
      code: 503,
    });
  });

  it('is plain text before v4', () => {
    const { farewell } = opened(3);
    expect(text(farewell('the recorder was lost', 503)!)).toContain('the recorder was lost');
    expect(text(farewell('the recorder was lost', 503)!)).not.toContain('Failure');
  });

  it('is impossible inside a frame and after a GOAWAY, and possible again at the boundary', () => {
    const { farewell, down, server } = opened();
    const frame = server.data(5, utf8('hello'));
    down(frame.subarray(0, 10));
    expect(farewell('x', 503)).toBeUndefined();
    down(frame.subarray(10));
    expect(farewell('x', 503)).toBeDefined();
    down(hex('80030007000000080000000000000000'));
    expect(farewell('x', 503)).toBeUndefined();
  });

  it('follows the delivered output, not the refused output', () => {
    const { farewell, down, server } = opened();
    const whole = Buffer.concat([server.data(5, utf8('ok')), hex('0000000b00000001ff')]);
    down(server.data(5, utf8('one')));
    expect(() => down(whole)).toThrow(/never opened/);
    expect(farewell('x', 400)).toBeDefined();
    const inside = opened();
    inside.down(inside.server.data(5, utf8('one')).subarray(0, 9));
    expect(() => inside.down(hex('6e65 0000000b00000001ff'))).toThrow(/never opened/);
    expect(inside.farewell('x', 400)).toBeUndefined();
  });

  it('follows the delivered output, even if the tap has parsed more', () => {
    const server = createSpdyPeer();
    const close = Uint8Array.of(0x80, 3, 0, 7, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0);
    const end = new Uint8Array(0);
    for (const before of [[], [server.data(7, end, true)]]) {
      const all = Buffer.concat([
        server.data(5, utf8('hello')),
        server.data(7, utf8('there')),
        ...before,
        server.data(5, end, true),
        server.data(1, statusExit(3)),
        server.data(1, end, true),
        close,
      ]);
      fc.assert(
        fc.property(deliveries(all.length), (delivery) => {
          const { ahead, exact } = deliverInSteps(all, delivery, () => opened().tap);
          expect(ahead).toEqual(exact);
        }),
        { numRuns: 500 },
      );
    }
  });

  it('does not use streams that the server has not accepted or has ended', () => {
    const client = createSpdyPeer();
    const server = createSpdyPeer();
    const { up, down, farewell } = taps();
    up(client.open(1, 'error'), client.open(3, 'stdout'));
    expect(
      createSpdyParser()
        .push(farewell('x', 503)!)
        .map(({ kind }) => kind),
    ).toEqual(['goaway']);
    down(server.reply(1), server.reply(3), server.data(3, new Uint8Array(0), true));
    expect(createSpdyParser().push(farewell('x', 503)!)).toMatchObject([
      { kind: 'data', streamId: 1 },
      { kind: 'goaway', lastStreamId: 3 },
    ]);
  });
});

/** Header blocks of one direction as zlib creates them: each refers to the content of earlier blocks. */
function createCompressor(): (name: string, value: string) => Uint8Array {
  let history = Buffer.from(SPDY_DICTIONARY);
  let first = true;
  return (name, value) => {
    const size = (length: number) => {
      const bytes = Buffer.alloc(4);
      bytes.writeUInt32BE(length);
      return bytes;
    };
    const plain = Buffer.concat([
      size(1),
      size(name.length),
      Buffer.from(name),
      size(value.length),
      Buffer.from(value),
    ]);
    const block = deflateRawSync(plain, {
      dictionary: history,
      level: 9,
      finishFlush: constants.Z_SYNC_FLUSH,
    });
    history = Buffer.concat([history, plain]).subarray(-32_768);
    const preamble = first ? hex('78f9e3c6a7c2') : Buffer.alloc(0);
    first = false;
    return Buffer.concat([preamble, block]);
  };
}

/** Cuts `bytes` into parts of the given sizes. After the last size, the first size is used again. */
function split(bytes: Buffer, sizes: readonly number[]): Buffer[] {
  const parts: Buffer[] = [];
  for (let offset = 0, turn = 0; offset < bytes.length; turn += 1) {
    const size = sizes[turn % sizes.length]!;
    parts.push(bytes.subarray(offset, offset + size));
    offset += size;
  }
  return parts;
}
