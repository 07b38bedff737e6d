import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { createUnrecordedSessionTap } from '../../src/recording/tap-unrecorded.ts';
import { createWebSocketTap } from '../../src/recording/tap-websocket.ts';
import { parseSubprotocol } from '../../src/wire/remotecommand/channel.ts';
import { createWebSocketScanner, encodeWebSocketFrame, OPCODE } from '../../src/wire/websocket/frame.ts';
import {
  clientMessage,
  MASK,
  serverMessage,
  statusExit,
  STATUS_SUCCESS,
  text,
  utf8,
} from '../support/stream-peers.ts';
import { deliverInSteps, deliveries } from '../support/delivered-places.ts';
import { openTap, sidesOf } from '../support/tap-sides.ts';
import { hex, SeenSession } from '../support/tapped-session.ts';

const SIZE = utf8('{"width":10,"height":20}');

function taps(subprotocol = 'v5.channel.k8s.io') {
  return openTap((session) => createWebSocketTap(session, parseSubprotocol(subprotocol)!));
}

const VIOLATED = expect.objectContaining({ code: 'SESSION_VIOLATED' });

describe('WebSocket tap, heartbeats', () => {
  it.each([
    ['recorded', () => createWebSocketTap(new SeenSession(), parseSubprotocol('v5.channel.k8s.io')!)],
    ['unrecorded', () => createUnrecordedSessionTap('websocket', 'v5.channel.k8s.io')!],
  ])("reports for each chunk whether it may wait, and the server's reply to it, %s", (_, createTap) => {
    const { client: clientSide } = sidesOf(createTap());
    const look = (chunk: Uint8Array): string => clientSide.fateOf(chunk);
    const ping = hex('898001020304');
    const pong = '8a00';
    const key = clientMessage(0, utf8('x'));
    expect(look(ping)).toBe(pong);
    expect(look(key)).toBe('goes');
    expect(look(Buffer.concat([ping, key]))).toBe('goes');
    expect(look(Buffer.concat([key, ping]))).toBe('goes');
    for (let at = 1; at < ping.length; at++) {
      expect(look(ping.subarray(0, at))).toBe(`kept ${at}`);
      expect(look(ping.subarray(at))).toBe(pong);
    }
    // Pieces of a resize message are kept until it is complete. Pieces of stdin are kept only until their channel byte
    // arrives.
    const size = clientMessage(4, utf8('{"Width":80,"Height":24}'));
    for (let at = 1; at < size.length; at++) {
      expect(look(size.subarray(0, at))).toBe(`kept ${at}`);
      expect(look(size.subarray(at))).toBe('waits');
      const resize = clientMessage(0, utf8('{"Width":80,"Height":24}'));
      expect(look(resize.subarray(0, at))).toBe(at > 6 ? 'goes' : `kept ${at}`);
      expect(look(resize.subarray(at))).toBe('goes');
    }
    expect(look(key.subarray(0, 3))).toBe('kept 3');
    expect(look(key.subarray(3))).toBe('goes');
    expect(look(clientMessage(255, Uint8Array.of(0)))).toBe('goes');
    expect(look(clientMessage(4, SIZE))).toBe('waits');
    expect(look(Buffer.concat([ping, clientMessage(4, SIZE)]))).toBe('waits');
    // this frame is the client's response to a ping of the server
    expect(look(hex('8a8001020304'))).toBe('waits');
    const named = encodeWebSocketFrame({
      opcode: OPCODE.ping,
      fin: true,
      payload: utf8('now'),
      mask: MASK,
    });
    expect(look(Buffer.concat([named, ping]))).toBe(`8a03${Buffer.from('now').toString('hex')}${pong}`);
    expect(look(hex('888001020304'))).toBe('goes');
  });
});

describe('WebSocket tap, the end', () => {
  const output = serverMessage(1, Buffer.alloc(300, 1));
  const status = serverMessage(3, STATUS_SUCCESS);
  const close = hex('880203e8');

  it('is proven by a status and a close frame, if the server never had to wait', () => {
    const { incompleteReason, down } = taps();
    down(output);
    expect(incompleteReason(false)).toContain('before it said how the command ended');
    down(status);
    expect(incompleteReason(false)).toContain('before the output had ended');
    down(close);
    expect(incompleteReason(false)).toBeUndefined();
    expect(incompleteReason(true)).toContain('may have thrown output away');
  });

  it('is not required of a server whose client has left, and with old protocols needs only the close frame', () => {
    const left = taps();
    left.up(hex('888001020304'));
    expect(left.incompleteReason(true)).toBeUndefined();
    const old = taps('channel.k8s.io');
    expect(old.incompleteReason(false)).toContain('before the output had ended');
    old.down(close);
    expect(old.incompleteReason(false)).toBeUndefined();
  });

  it('keeps back a part of a frame, and a status until its close frame arrives, in any segmentation', () => {
    const all = Buffer.concat([output, status, close]);
    fc.assert(
      fc.property(fc.array(fc.nat(all.length), { maxLength: 6 }), (cuts) => {
        const { serverToClient } = taps();
        let at = 0;
        for (const end of [...cuts.toSorted((a, b) => a - b), all.length]) {
          if (end <= at) continue;
          void serverToClient.push(all.subarray(at, end));
          at = end;
          const unsent = serverToClient.heldBytes;
          serverToClient.delivered(unsent);
          expect(serverToClient.betweenFrames).toBe(at < all.length);
          if (at === all.length) expect(unsent).toBe(0);
          else expect(at - unsent).toBe(at < output.length ? 0 : output.length);
        }
      }),
    );
  });

  it('allows a final message before a frame that is incomplete', () => {
    const { serverToClient, farewell } = taps();
    void serverToClient.push(output.subarray(0, 100));
    serverToClient.delivered(serverToClient.heldBytes);
    expect(text(farewell('cut', 502)!)).toContain('Failure');
    serverToClient.delivered(0);
    expect(farewell('cut', 502)).toBeUndefined();
  });

  it('sends the final message after the delivered output, even if the tap has parsed more', () => {
    // splits a message into two frames
    const cut = Buffer.from(output);
    cut[0] = 0x02;
    const rest = Uint8Array.of(0x80, 2, 0x6f, 0x6b);
    const all = Buffer.concat([output, cut, rest, output, status, close]);
    fc.assert(
      fc.property(deliveries(all.length), (delivery) => {
        const { ahead, exact } = deliverInSteps(all, delivery, () => taps().tap);
        expect(ahead).toEqual(exact);
      }),
      { numRuns: 500 },
    );
  });

  it('has an end that can be replaced until it is delivered', () => {
    const { serverToClient, farewell } = taps();
    void serverToClient.push(Buffer.concat([output, status, close]));
    expect(serverToClient.mark().heldBytesBackpressured).toBe(status.length + close.length);
    serverToClient.delivered(serverToClient.mark().heldBytesBackpressured);
    expect(text(farewell('cut', 502)!)).toContain('Failure');
    serverToClient.delivered(0);
    expect(serverToClient.mark().heldBytesBackpressured).toBe(0);
    expect(farewell('cut', 502)).toBeUndefined();
  });
});

describe('WebSocket tap, client to server', () => {
  it('reads resizes: one, two in two chunks, two in one chunk, one after a close frame', () => {
    const message = clientMessage(4, SIZE);
    const one = taps();
    one.up(message);
    expect(one.session.seen).toEqual(['resize 10x20']);
    const two = taps();
    two.up(message, message);
    expect(two.session.seen).toEqual(['resize 10x20', 'resize 10x20']);
    const joined = taps();
    joined.up(Buffer.concat([message, message]));
    expect(joined.session.seen).toEqual(['resize 10x20', 'resize 10x20']);
    const behind = taps();
    behind.up(Buffer.concat([hex('888001020304'), message]));
    expect(behind.session.seen).toEqual(['resize 10x20']);
  });

  it('ignores control frames', () => {
    const { session, up } = taps();
    up(hex('888001020304'), hex('898001020304'), hex('8a8001020304'));
    expect(session.seen).toEqual([]);
  });

  it('refuses fragmented messages, because the API server treats every frame as a message', () => {
    const start = taps();
    const first = encodeWebSocketFrame({
      opcode: OPCODE.binary,
      fin: false,
      payload: hex('0441'),
      mask: MASK,
    });
    expect(() => start.up(first)).toThrow(/fragmented/);
    const alone = taps();
    const rest = encodeWebSocketFrame({
      opcode: OPCODE.continuation,
      fin: true,
      payload: hex('41'),
      mask: MASK,
    });
    expect(() => alone.up(rest)).toThrow(VIOLATED);
  });

  it('counts stdin without the channel byte', () => {
    const { session, up } = taps();
    const message = clientMessage(0, utf8('hello'));
    up(message.subarray(0, 8), message.subarray(8), clientMessage(0, utf8('')));
    expect(session.inputBytes).toBe(5);
    expect(session.seen).toEqual([]);
  });

  it('treats text as binary and binary as text, like the API server: some clients write everything as text', () => {
    const raw = taps('v4.channel.k8s.io');
    const write = (opcode: number, payload: Uint8Array): Uint8Array =>
      encodeWebSocketFrame({ opcode, fin: true, payload, mask: MASK });
    raw.up(write(OPCODE.text, utf8('\0ls')), write(OPCODE.text, Buffer.concat([Uint8Array.of(4), SIZE])));
    expect([raw.session.inputBytes, raw.session.seen]).toEqual([2, ['resize 10x20']]);
    const encoded = taps('v4.base64.channel.k8s.io');
    encoded.up(write(OPCODE.binary, utf8(`4${Buffer.from(SIZE).toString('base64')}`)));
    expect(encoded.session.seen).toEqual(['resize 10x20']);
  });

  it('detects the close signal of v5, and of no other version', () => {
    const five = taps();
    five.up(clientMessage(255, Uint8Array.of(0)));
    expect(() => five.up(clientMessage(255, Uint8Array.of(0, 1)))).toThrow(/one channel/);
    const four = taps('v4.channel.k8s.io');
    expect(() => four.up(clientMessage(255, Uint8Array.of(0)))).toThrow(/unknown channel/);
  });
});

describe('WebSocket tap, server to client', () => {
  it('records stdout and stderr messages, also several in a chunk and after or before control frames', () => {
    const { session, down } = taps();
    down(hex('8203010708'), hex('8203020708'), hex('8203010708 8203 01090a'));
    down(hex('8900 8203010b0c'), hex('8203010d0e 8800'));
    expect(session.seen).toEqual(['stdout 0708', 'stderr 0708', 'stdout 0708090a0b0c0d0e']);
  });

  it('reads the channel byte only from the first fragment', () => {
    const { session, down } = taps();
    down(hex('0203010708'), hex('8006010102030405'));
    expect(session.seen).toEqual(['stdout 0708010102030405']);
    const empty = taps();
    empty.down(hex('02030107088000'));
    expect(empty.session.seen).toEqual(['stdout 0708']);
    const pings = taps();
    pings.down(hex('0203010708'), hex('8900'), hex('00020101'), hex('8001ff'));
    expect(pings.session.seen).toEqual(['stdout 07080101ff']);
  });

  it('reads the channel byte from the first fragment that is not empty', () => {
    const { session, down } = taps();
    down(hex('0200'), hex('80020141'));
    expect(session.seen).toEqual(['stdout 41']);
  });

  it('records a piece before the frame is complete', () => {
    const { session, down } = taps();
    down(hex('8206010102'));
    expect(session.seen).toEqual(['stdout 0102']);
    down(hex('030405'));
    expect(session.seen).toEqual(['stdout 0102030405']);
  });

  it('forwards the first, empty message of the server', () => {
    const { session, down } = taps();
    down(hex('820101'));
    expect(session.seen).toEqual([]);
  });

  it('reads frames with long lengths', () => {
    const medium = randomBytes(300);
    const long = randomBytes(70_000);
    const { session, down } = taps();
    down(serverMessage(1, medium), serverMessage(1, long));
    expect(session.outputs.stdout.equals(Buffer.concat([medium, long]))).toBe(true);
  });

  it('reads the exit status', () => {
    const seven = taps();
    seven.down(serverMessage(3, statusExit(7)));
    expect(seven.session.seen).toEqual(['exit 7']);
    const success = taps();
    success.down(serverMessage(3, new Uint8Array(0)), serverMessage(3, STATUS_SUCCESS));
    expect(success.session.seen).toEqual(['exit success']);
  });
});

describe('WebSocket tap of the base64 protocols', () => {
  const message = (payload: string, mask?: Uint8Array) =>
    encodeWebSocketFrame({
      opcode: OPCODE.text,
      fin: true,
      payload: utf8(payload),
      ...(mask === undefined ? {} : { mask }),
    });
  const base64 = (plain: string) => Buffer.from(plain).toString('base64');

  it('records text messages, in any segmentation', () => {
    const bytes = Buffer.concat([
      message(`1${base64('one')}`),
      message(`2${base64('four')}`),
      message(`1${base64('fives')}`),
      message('1'),
      message(`3${Buffer.from(statusExit(2)).toString('base64')}`),
    ]);
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1 }), (sizes) => {
        const { session, down } = taps('v4.base64.channel.k8s.io');
        for (const part of split(bytes, sizes)) down(part);
        expect(session.outputs.stdout.toString()).toBe('onefives');
        expect(session.outputs.stderr.toString()).toBe('four');
        expect(session.seen.at(-1)).toBe('exit 2');
      }),
    );
  });

  it('reads resizes of the client', () => {
    const { session, up } = taps('base64.channel.k8s.io');
    up(message(`4${Buffer.from(SIZE).toString('base64')}`, MASK));
    expect(session.seen).toEqual(['resize 10x20']);
  });

  it('ends the session on binary messages, invalid base64 and data after the padding', () => {
    const cases = [
      serverMessage(1, utf8('x')),
      message('1!!!!'),
      message('1QQ'),
      message('1QQ==QQ=='),
      message('x'),
    ];
    for (const bytes of cases) {
      const { down } = taps('base64.channel.k8s.io');
      expect(() => down(bytes)).toThrow(VIOLATED);
      const pieces = taps('base64.channel.k8s.io');
      expect(() => split(Buffer.from(bytes), [1]).forEach((piece) => pieces.down(piece))).toThrow(VIOLATED);
    }
  });

  it('ends the session on text from a server whose protocol is binary', () => {
    const bytes = encodeWebSocketFrame({ opcode: OPCODE.text, fin: true, payload: utf8('\x01x') });
    expect(() => taps().down(bytes)).toThrow(/wrong type/);
  });

  it('encodes the final message in its own encoding', () => {
    const { farewell } = taps('v4.base64.channel.k8s.io');
    const [status, close] = createWebSocketScanner({ expectMask: false }).push(farewell('over', 503)!);
    expect(status?.opcode).toBe(OPCODE.text);
    expect(Buffer.from(text(status!.bytes).slice(1), 'base64').toString()).toContain('over');
    expect(text(status!.bytes)[0]).toBe('3');
    expect(close?.opcode).toBe(OPCODE.close);
  });
});

describe('WebSocket final message', () => {
  it('sends the reason on the error channel, and closes normally', () => {
    const { farewell } = taps();
    const [status, close] = createWebSocketScanner({ expectMask: false }).push(farewell('over', 503)!);
    expect(status?.bytes[0]).toBe(3);
    expect(JSON.parse(text(status!.bytes.subarray(1)))).toMatchObject({ message: 'over', code: 503 });
    expect(Buffer.from(close!.bytes).toString('hex')).toBe('03e8');
  });

  it('is impossible inside a frame, between fragments and after the close frame', () => {
    const { farewell, down } = taps();
    down(hex('8203'));
    expect(farewell('x', 503)).toBeUndefined();
    down(hex('010708'));
    expect(farewell('x', 503)).toBeDefined();
    down(hex('0203010708'));
    expect(farewell('x', 503)).toBeUndefined();
    down(hex('8000'));
    expect(farewell('x', 503)).toBeDefined();
    down(hex('8800'));
    expect(farewell('x', 503)).toBeUndefined();
  });

  it('does not contradict a status that was already delivered', () => {
    const { farewell, down } = taps();
    down(serverMessage(3, STATUS_SUCCESS));
    const pieces = createWebSocketScanner({ expectMask: false }).push(farewell('x', 503)!);
    expect(pieces.map(({ opcode }) => opcode)).toEqual([OPCODE.close]);
  });
});

describe('WebSocket segmentation', () => {
  it('gives the same result if the first bytes of a frame are split into two and three pieces, everywhere', () => {
    for (const [direction, bytes, first] of [
      ['up', clientMessage(0, new Uint8Array(300).fill(0xab)), 18],
      ['down', serverMessage(1, new Uint8Array(300).fill(0xab)), 14],
    ] as const) {
      for (let left = 1; left < first; left += 1) {
        for (let right = left; right < first; right += 1) {
          const cut = taps();
          cut[direction](bytes.subarray(0, left), bytes.subarray(left, right), bytes.subarray(right));
          expect(cut.session.inputBytes + cut.session.outputs.stdout.length).toBe(300);
        }
      }
    }
  });
});

function split(bytes: Buffer, sizes: readonly number[]): Buffer[] {
  const parts: Buffer[] = [];
  for (let offset = 0, turn = 0; offset < bytes.length; turn += 1) {
    const size = sizes[turn % sizes.length]!;
    parts.push(bytes.subarray(offset, offset + size));
    offset += size;
  }
  return parts;
}
