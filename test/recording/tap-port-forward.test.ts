import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { TailcastError } from '../../src/errors.ts';
import { createKeyedRate } from '../../src/keyed-rate.ts';
import { createPortForwardInput, PORT_FORWARD_RATE } from '../../src/recording/tap-port-forward.ts';
import { NO_BYTES } from '../../src/recording/tap.ts';
import { createHeaderDeflater } from '../../src/wire/spdy/headers.ts';
import { encodeSpdyFrame } from '../../src/wire/spdy/frame.ts';
import { encodeWebSocketFrame, OPCODE } from '../../src/wire/websocket/frame.ts';
import { MASK, utf8 } from '../support/stream-peers.ts';

const deflaters = () => createHeaderDeflater();

function open(
  deflater: ReturnType<typeof deflaters>,
  streamId: number,
  fields: Record<string, string>,
): Uint8Array {
  return encodeSpdyFrame({
    kind: 'synStream',
    streamId,
    associatedTo: 0,
    priority: 0,
    fin: false,
    unidirectional: false,
    block: deflater.encode(Object.entries(fields)),
  });
}

/** Returns kubectl's frames for one connection per port: an error stream and a data stream for each port. */
function conversation(...ports: readonly string[]): Buffer {
  const deflater = deflaters();
  return Buffer.concat(
    ports.flatMap((port, index) => [
      open(deflater, index * 4 + 1, { port, requestid: String(index), streamtype: 'error' }),
      open(deflater, index * 4 + 3, { port, requestid: String(index), streamtype: 'data' }),
      encodeSpdyFrame({ kind: 'data', streamId: index * 4 + 3, fin: false, payload: utf8('GET / HTTP/1.1') }),
    ]),
  );
}

const inMessages = (bytes: Uint8Array, size: number): Buffer => {
  const frames: Uint8Array[] = [];
  for (let at = 0; at < bytes.length; at += size) {
    const payload = bytes.subarray(at, at + size);
    frames.push(encodeWebSocketFrame({ opcode: OPCODE.binary, fin: true, payload, mask: MASK }));
  }
  return Buffer.concat(frames);
};

function refuse(port: number): void {
  if (port === 22) throw new TailcastError('POLICY_REFUSED', 'port 22');
}

describe('port-forward tap', () => {
  it('detects every port, in any pieces, over SPDY and inside WebSocket messages', () => {
    const bytes = conversation('8080', '443', '8080');
    fc.assert(
      fc.property(fc.integer({ min: 1, max: 60 }), fc.integer({ min: 1, max: 200 }), (piece, message) => {
        for (const transport of ['spdy', 'tunnel'] as const) {
          const tap = createPortForwardInput(transport, refuse);
          const wire = transport === 'spdy' ? bytes : inMessages(bytes, message);
          for (let at = 0; at < wire.length; at += piece) tap.input(wire.subarray(at, at + piece), NO_BYTES);
          expect(tap.ports).toEqual([443, 8080]);
        }
      }),
      { numRuns: 50 },
    );
  });

  it.each(['spdy', 'tunnel'] as const)('refuses a port on any stream (%s)', (transport) => {
    // the kubelet ignores leading zeros of a port, and uses the first of several values that NUL separates
    for (const ports of [['22'], ['80', '22'], ['022'], [`${'0'.repeat(30)}22`], ['22\0' + '80'], ['22\0']]) {
      const bytes = conversation(...ports);
      const tap = createPortForwardInput(transport, refuse);
      expect(() => tap.input(transport === 'spdy' ? bytes : inMessages(bytes, 33), NO_BYTES)).toThrow(
        /port 22/,
      );
    }
  });

  it('reports at most a hundred ports', () => {
    const tap = createPortForwardInput('spdy', refuse);
    const ports = Array.from({ length: 101 }, (_, index) => 1000 + index);
    tap.input(conversation(...ports.map(String)), NO_BYTES);
    expect(tap.ports).toEqual(ports.slice(0, 100));
  });

  it('accepts at most 64 HEADERS frames, because each needs an inflate', () => {
    const deflater = deflaters();
    const tap = createPortForwardInput('spdy', refuse);
    const headers = (): Uint8Array =>
      encodeSpdyFrame({ kind: 'headers', streamId: 1, fin: false, block: deflater.encode([]) });
    for (let count = 0; count < 64; count += 1) tap.input(headers(), NO_BYTES);
    expect(() => tap.input(headers(), NO_BYTES)).toThrow(
      expect.objectContaining({ code: 'SESSION_VIOLATED' }),
    );
  });

  it('delays a client that opens many streams, and ends the session of one that continues', () => {
    const rate = createKeyedRate({ ...PORT_FORWARD_RATE, monotonicMs: () => 0 });
    const connections = (count: number): Buffer =>
      conversation(...Array.from({ length: count }, () => '8080'));
    for (const transport of ['spdy', 'tunnel'] as const) {
      const tap = (): ReturnType<typeof createPortForwardInput> =>
        createPortForwardInput(transport, refuse, (bytes) => rate(transport, bytes));
      const wire = (bytes: Buffer): Buffer => (transport === 'spdy' ? bytes : inMessages(bytes, 1000));
      expect(tap().input(wire(connections(200)), NO_BYTES).recorded).toBeUndefined();
      expect(tap().input(wire(connections(400)), NO_BYTES).recorded).toBeInstanceOf(Promise);
      expect(() => tap().input(wire(connections(8000)), NO_BYTES)).toThrow(
        expect.objectContaining({ code: 'SESSION_LIMIT' }),
      );
    }
  });

  it('ignores values that are not port numbers', () => {
    const tap = createPortForwardInput('spdy', refuse);
    tap.input(conversation('+22', ' 22', '22x', '0x16', '', '\0' + '22'), NO_BYTES);
    expect(tap.ports).toEqual([]);
  });

  it.each([
    ['spdy', Buffer.from('8004000200000004000000050000', 'hex')],
    ['spdy', Buffer.from('800300010000001400000007000000000000deadbeefdeadbeefdead', 'hex')],
    ['tunnel', Buffer.from('c28601020304abcdef', 'hex')],
    ['tunnel', Buffer.from('8206010203040506', 'hex')],
  ] as const)('ends a session with invalid bytes (%s)', (transport, bytes) => {
    const tap = createPortForwardInput(transport, refuse);
    expect(() => tap.input(bytes, NO_BYTES)).toThrow(TailcastError);
  });
});
