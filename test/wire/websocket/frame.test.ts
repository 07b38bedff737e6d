import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import * as ws from 'ws';
import {
  createWebSocketScanner,
  encodeWebSocketFrame,
  MAX_CONTROL_BYTES,
  MAX_FRAME_BYTES,
  MAX_MESSAGE_FRAMES,
  OPCODE,
  unmaskPiece,
  type WebSocketFrame,
  type WebSocketPiece,
  type WebSocketScannerOptions,
} from '../../../src/wire/websocket/frame.ts';
import { concat, cut, hex, list, thrownBy } from '../bytes.ts';

interface Scanned {
  readonly opcode: number;
  readonly fin: boolean;
  readonly rsv: number;
  readonly payload: readonly number[];
}

/** Returns the unmasked frames, joined from their pieces; checks the start and end marks of each piece. */
function merge(pieces: readonly WebSocketPiece[]): readonly Scanned[] {
  const frames: Scanned[] = [];
  let payload: readonly number[] = [];
  for (const piece of pieces) {
    expect(piece.first).toBe(piece.offset === 0);
    expect(piece.offset).toBe(payload.length);
    payload = [...payload, ...unmaskPiece(piece)];
    expect(piece.last).toBe(payload.length === piece.length);
    if (!piece.last) continue;
    frames.push({ opcode: piece.opcode, fin: piece.fin, rsv: piece.rsv, payload });
    payload = [];
  }
  expect(payload).toEqual([]);
  return frames;
}

function scanAll(segments: readonly Uint8Array[], options: WebSocketScannerOptions): readonly Scanned[] {
  const scanner = createWebSocketScanner(options);
  const pieces = segments.flatMap((segment) => {
    const chunk = segment.slice();
    const pushed = scanner.push(chunk).map((piece) => ({ ...piece, bytes: piece.bytes.slice() }));
    chunk.fill(0xdd); // the caller reuses its buffer, so the scanner must have copied the masks
    return pushed;
  });
  expect(scanner.atBoundary).toBe(true);
  return merge(pieces);
}

const fromServer = (...bytes: readonly string[]): readonly Scanned[] =>
  scanAll(
    bytes.map((part) => hex(part)),
    { expectMask: false },
  );
const fromClient = (...bytes: readonly string[]): readonly Scanned[] =>
  scanAll(
    bytes.map((part) => hex(part)),
    { expectMask: true },
  );

const MASK = '01020304';
const RESIZE = '047b225769647468223a31302c22686569676874223a32307d';

describe('WebSocket frames of real peers', () => {
  it.each([
    ['only the channel byte', '820101', [{ opcode: 2, fin: true, rsv: 0, payload: [1] }]],
    ['stdout 07 08', '8203010708', [{ opcode: 2, fin: true, rsv: 0, payload: [1, 7, 8] }]],
    [
      'a first fragment and an empty last one',
      '02030107088000',
      [
        { opcode: 2, fin: false, rsv: 0, payload: [1, 7, 8] },
        { opcode: 0, fin: true, rsv: 0, payload: [] },
      ],
    ],
    [
      'data and close in one write',
      '82030107088800',
      [
        { opcode: 2, fin: true, rsv: 0, payload: [1, 7, 8] },
        { opcode: 8, fin: true, rsv: 0, payload: [] },
      ],
    ],
    [
      'two data frames in one write',
      '8203010708820301090a',
      [
        { opcode: 2, fin: true, rsv: 0, payload: [1, 7, 8] },
        { opcode: 2, fin: true, rsv: 0, payload: [1, 9, 10] },
      ],
    ],
    ['a close frame', '8800', [{ opcode: 8, fin: true, rsv: 0, payload: [] }]],
    ['a close frame with a code', '880203e8', [{ opcode: 8, fin: true, rsv: 0, payload: [3, 0xe8] }]],
    ['a text frame', '810268 69', [{ opcode: 1, fin: true, rsv: 0, payload: [0x68, 0x69] }]],
    [
      'a ping between fragments',
      '020101 89020102 800102',
      [
        { opcode: 2, fin: false, rsv: 0, payload: [1] },
        { opcode: 9, fin: true, rsv: 0, payload: [1, 2] },
        { opcode: 0, fin: true, rsv: 0, payload: [2] },
      ],
    ],
  ])('reads %s', (_name, bytes, frames) => {
    expect(fromServer(bytes)).toEqual(frames);
  });

  it('reads fragments as raw payload: the channel byte is in the first one only', () => {
    const json = RESIZE.slice(2);
    const frames = fromServer(
      `0209 04 ${json.slice(0, 16)}`,
      `0008 ${json.slice(16, 32)}`,
      `8008 ${json.slice(32)}`,
    );
    expect(Buffer.from(frames.flatMap(({ payload }) => payload)).toString()).toBe(
      '\u0004{"Width":10,"height":20}',
    );
  });

  it('reads masked frames', () => {
    expect(fromClient(`8281${MASK}03`)).toEqual([{ opcode: 2, fin: true, rsv: 0, payload: [2] }]);
    expect(fromClient(`8283${MASK}00050b`)).toEqual([{ opcode: 2, fin: true, rsv: 0, payload: [1, 7, 8] }]);
    expect(fromClient(`0283${MASK}00050b`, `8083${MASK}00050b`)).toEqual([
      { opcode: 2, fin: false, rsv: 0, payload: [1, 7, 8] },
      { opcode: 0, fin: true, rsv: 0, payload: [1, 7, 8] },
    ]);
  });

  it('reads both long forms of the length', () => {
    const medium = Buffer.alloc(65_535, 7).toString('hex');
    expect(fromServer(`827effff${medium}`)[0]?.payload).toHaveLength(65_535);
    expect(fromServer(`827f0000000000010000${medium}07`)[0]?.payload).toHaveLength(65_536);
    expect(fromServer(`827e007e${'00'.repeat(126)}`)[0]?.payload).toHaveLength(126);
  });

  it('reports RSV bits and leaves the judgement to the caller', () => {
    expect(fromServer('c20101', 'f20101').map(({ rsv }) => rsv)).toEqual([4, 7]);
  });
});

const mask = fc.uint8Array({ minLength: 4, maxLength: 4 });
const payload = fc.oneof(
  fc.uint8Array({ maxLength: 40 }),
  fc.constantFrom(125, 126, 127, 300).map((length) => new Uint8Array(length).fill(length)),
);
const control = fc.record({
  opcode: fc.constantFrom(OPCODE.ping, OPCODE.pong),
  fin: fc.constant(true),
  payload: fc.uint8Array({ maxLength: 20 }),
});

/** The frames of several messages: fragments in order, control frames at any position between them. */
const messages: fc.Arbitrary<readonly WebSocketFrame[]> = fc
  .array(
    fc.record({
      opcode: fc.constantFrom(OPCODE.binary, OPCODE.text),
      parts: fc.array(fc.tuple(payload, fc.option(control, { nil: undefined })), {
        minLength: 1,
        maxLength: 4,
      }),
    }),
    { maxLength: 4 },
  )
  .map((list_) =>
    list_.flatMap(({ opcode, parts }) =>
      parts.flatMap(([bytes, between], index) => {
        const frame = {
          opcode: index === 0 ? opcode : OPCODE.continuation,
          fin: index === parts.length - 1,
          payload: bytes,
        };
        return between === undefined ? [frame] : [frame, between];
      }),
    ),
  );

describe('WebSocket scanner', () => {
  it('leaves the chunk as it is and unmasks into a copy', () => {
    const chunk = hex(`8283${MASK}00050b`);
    const before = list(chunk);
    const [piece] = createWebSocketScanner({ expectMask: true }).push(chunk);
    expect(list(unmaskPiece(piece!))).toEqual([1, 7, 8]);
    expect(list(chunk)).toEqual(before);
    expect(piece?.bytes.buffer).toBe(chunk.buffer);
    expect(list(piece!.mask!)).toEqual([1, 2, 3, 4]);
  });

  it('gives a view of what was pushed when nothing is masked', () => {
    const chunk = hex('8203010203');
    const [piece] = createWebSocketScanner({ expectMask: false }).push(chunk);
    const { buffer, byteOffset } = unmaskPiece(piece!);
    expect(buffer).toBe(chunk.buffer);
    expect(byteOffset).toBe(chunk.byteOffset + 2);
    expect([piece!.firstByte, list(piece!.bytes), list(piece!.bytesFrom(2))]).toEqual([1, [1, 2, 3], [3]]);
  });

  it('has no first byte where a piece has none', () => {
    const [empty] = createWebSocketScanner({ expectMask: false }).push(hex('8200820101'));
    expect(empty).toMatchObject({ length: 0, first: true, last: true, firstByte: undefined });
    expect(list(empty!.bytes)).toEqual([]);
  });

  it('says where a frame may be injected', () => {
    const scanner = createWebSocketScanner({ expectMask: false });
    expect(scanner.atBoundary).toBe(true);
    scanner.push(hex('82'));
    expect(scanner.atBoundary).toBe(false);
    scanner.push(hex('0301'));
    expect(scanner.atBoundary).toBe(false);
    scanner.push(hex('0708'));
    expect(scanner.atBoundary).toBe(true);
  });
});

describe('WebSocket limits', () => {
  const server = { expectMask: false };
  const failure = (bytes: string, options: WebSocketScannerOptions = server): string | undefined =>
    thrownBy(() => createWebSocketScanner(options).push(hex(bytes))).code;

  it('takes a frame of the limit and refuses one byte more before its payload', () => {
    const exact = createWebSocketScanner(server);
    expect(exact.push(hex('827f0000000002000000'))).toEqual([]);
    expect(exact.push(new Uint8Array(MAX_FRAME_BYTES))).toMatchObject([
      { length: MAX_FRAME_BYTES, last: true },
    ]);
    expect(failure('827f0000000002000001')).toBe('limit');
    expect(failure('827f7fffffffffffffff')).toBe('limit');
    expect(failure('820301', { expectMask: false, maxFrameBytes: 2 })).toBe('limit');
    expect(
      createWebSocketScanner({ expectMask: false, maxFrameBytes: 2 }).push(hex('82020102')),
    ).toHaveLength(1);
  });

  it('takes a control frame of 125 bytes', () => {
    expect(MAX_CONTROL_BYTES).toBe(125);
    expect(fromServer(`897d${'00'.repeat(125)}`)).toHaveLength(1);
  });

  it('counts the frames of a message, also empty ones, and starts again with the next message', () => {
    const options = { expectMask: false, maxMessageFrames: 3 };
    const three = '020101 0000 8000';
    expect(scanAll([hex(three, '8900', three)], options)).toHaveLength(7);
    expect(failure('020101 0000 0000 0000', options)).toBe('limit');
  });

  it('has a limit on the frames of a message by default', () => {
    const scanner = createWebSocketScanner(server);
    scanner.push(hex('0200'));
    scanner.push(new Uint8Array((MAX_MESSAGE_FRAMES - 1) * 2));
    expect(thrownBy(() => scanner.push(hex('8000'))).code).toBe('limit');
  });

  it.each([
    ['a 16-bit length that fits in 7', '827e007d'],
    ['a 64-bit length that fits in 16', '827f000000000000ffff'],
    ['a 64-bit length of 0', '827f0000000000000000'],
    ['a length of 2^63', '827f8000000000000000'],
    ['a length of 2^64-1', '827fffffffffffffffff'],
    ['a control frame of 126 bytes', '897e007e'],
    ['a control frame in fragments', '0900'],
    ['a fragmented close', '0800'],
    ['a continuation of nothing', '8000'],
    ['a continuation after a finished message', '820101 8000'],
    ['a new message inside another', '020101 820101'],
    ['the reserved opcode 3', '8300'],
    ['the reserved opcode 7', '8700'],
    ['the reserved opcode 11', '8b00'],
    ['the reserved opcode 15', '8f00'],
    ['a masked frame from a server', `8281${MASK}03`],
  ])('refuses %s', (_name, bytes) => {
    expect(failure(bytes)).toBe('malformed');
    const scanner = createWebSocketScanner(server);
    expect(thrownBy(() => cut(hex(bytes), [1, 2, 3, 4, 5, 6]).map((part) => scanner.push(part))).code).toBe(
      'malformed',
    );
  });

  it('refuses an unmasked frame from a client, at its second byte', () => {
    const scanner = createWebSocketScanner({ expectMask: true });
    expect(scanner.push(hex('82'))).toEqual([]);
    expect(thrownBy(() => scanner.push(hex('01'))).code).toBe('malformed');
  });

  it('is dead after a failure, also for frames that are fine', () => {
    const scanner = createWebSocketScanner(server);
    const first = thrownBy(() => scanner.push(hex('820101 8300')));
    expect(thrownBy(() => scanner.push(hex('820101')))).toMatchObject({ code: 'dead', cause: first });
  });
});

describe('WebSocket encoder', () => {
  it.each<WebSocketFrame>([
    { opcode: 3, fin: true, payload: hex('') },
    { opcode: -1, fin: true, payload: hex('') },
    { opcode: 1.5, fin: true, payload: hex('') },
    { opcode: 16, fin: true, payload: hex('') },
    { opcode: 9, fin: false, payload: hex('') },
    { opcode: 9, fin: true, payload: new Uint8Array(126) },
    { opcode: 2, fin: true, rsv: 8, payload: hex('') },
    { opcode: 2, fin: true, rsv: -1, payload: hex('') },
    { opcode: 2, fin: true, rsv: 0.5, payload: hex('') },
    { opcode: 2, fin: true, payload: hex(''), mask: hex('010203') },
  ])('refuses $opcode $fin $rsv', (frame) => {
    expect(thrownBy(() => encodeWebSocketFrame(frame)).code).toBe('malformed');
  });

  it('writes RSV bits and does not change the payload it is given', () => {
    const bytes = hex('0708');
    const frame = encodeWebSocketFrame({ opcode: 2, fin: true, rsv: 4, payload: bytes, mask: hex(MASK) });
    expect(list(frame)).toEqual(list(hex(`c282${MASK} 060a`)));
    expect(list(bytes)).toEqual([7, 8]);
  });
});

interface WsParts {
  readonly Receiver: new (options: object) => {
    on(event: string, listener: (...args: readonly never[]) => void): void;
    write(chunk: Uint8Array): void;
  };
  readonly Sender: {
    frame(data: Buffer, options: object): readonly Buffer[];
  };
}
const { Receiver, Sender } = ws as unknown as WsParts;

interface Verdict {
  readonly seen: readonly unknown[];
  readonly failed: boolean;
}

/** Parses frames with `ws`. @returns messages and control frames, and whether `ws` failed */
async function receive(bytes: Uint8Array, isServer: boolean): Promise<Verdict> {
  const seen: unknown[] = [];
  let failed = false;
  const receiver = new Receiver({ isServer, maxPayload: 1 << 20, skipUTF8Validation: true });
  receiver.on('message', (data: Buffer, isBinary: boolean) => void seen.push([isBinary ? 2 : 1, list(data)]));
  receiver.on('ping', (data: Buffer) => void seen.push([9, list(data)]));
  receiver.on('pong', (data: Buffer) => void seen.push([10, list(data)]));
  receiver.on('error', () => {
    failed = true;
  });
  receiver.write(Buffer.from(bytes)); // copies the bytes, because ws unmasks in place
  await new Promise(setImmediate); // a stream reports its error on the next tick
  return { seen, failed };
}

/** Parses frames with tailcast's scanner. RSV bits are an error, because no extension was negotiated. */
function scan(bytes: Uint8Array, expectMask: boolean): Verdict {
  const scanner = createWebSocketScanner({ expectMask, maxFrameBytes: 1 << 20 });
  const pieces: WebSocketPiece[] = [];
  let failed = false;
  try {
    for (const byte of bytes) pieces.push(...scanner.push(Uint8Array.of(byte)));
  } catch {
    failed = true;
  }
  const bad = pieces.findIndex(({ rsv }) => rsv !== 0);
  return { seen: join(bad === -1 ? pieces : pieces.slice(0, bad)), failed: failed || bad !== -1 };
}

/** Joins fragments to messages. Control frames may come between fragments, and unfinished messages are omitted. */
function join(pieces: readonly WebSocketPiece[]): readonly unknown[] {
  const seen: unknown[] = [];
  let opcode = 0;
  let message: number[] = [];
  let controlBytes: number[] = [];
  for (const piece of pieces) {
    if (piece.opcode >= OPCODE.close) controlBytes.push(...unmaskPiece(piece));
    else message.push(...unmaskPiece(piece));
    if (piece.opcode === OPCODE.text || piece.opcode === OPCODE.binary) opcode = piece.opcode;
    if (!piece.last) continue;
    if (piece.opcode >= OPCODE.close) {
      seen.push([piece.opcode, controlBytes]);
      controlBytes = [];
    } else if (piece.fin) {
      seen.push([opcode, message]);
      message = [];
    }
  }
  return seen;
}

describe('WebSocket scanner against ws', () => {
  it('writes the frames that ws writes', () => {
    fc.assert(
      fc.property(messages, fc.option(mask, { nil: undefined }), (frames, key) => {
        for (const frame of frames) {
          const theirs = Sender.frame(Buffer.from(frame.payload), {
            fin: frame.fin,
            opcode: frame.opcode,
            rsv1: false,
            readOnly: false,
            mask: key !== undefined,
            ...(key === undefined ? {} : { generateMask: (target: Uint8Array) => target.set(key) }),
          });
          // ws does not change the payload with an all-zero mask, and neither does tailcast
          expect(list(encodeWebSocketFrame(key === undefined ? frame : { ...frame, mask: key }))).toEqual(
            list(Buffer.concat(theirs)),
          );
        }
      }),
    );
  });

  it('refuses what ws refuses and takes what ws takes, when frame headers are damaged', async () => {
    // Changes FIN, RSV and opcode, or the mask bit, but not the length, because other lengths only produce other
    // frames.
    const damage = fc.tuple(
      fc.nat({ max: 3 }),
      fc.oneof(fc.tuple(fc.constant(0), fc.integer({ min: 1, max: 255 })), fc.constant([1, 0x80] as const)),
    );
    let refused = 0;
    await fc.assert(
      fc.asyncProperty(messages, fc.boolean(), damage, async (frames, masked, [index, [place, change]]) => {
        const parts = frames.map((frame) =>
          encodeWebSocketFrame(masked ? { ...frame, mask: hex(MASK) } : frame),
        );
        const victim = parts[index % Math.max(parts.length, 1)];
        fc.pre(victim !== undefined);
        victim[place]! ^= change;
        fc.pre((victim[0]! & 0x0f) !== OPCODE.close); // ws also validates the content of a close frame
        const bytes = concat(...parts);
        const ours = scan(bytes, masked);
        const theirs = await receive(bytes, masked);
        if (theirs.failed) refused += 1;
        expect(ours).toEqual(theirs);
      }),
      { numRuns: 2000 },
    );
    expect(refused).toBeGreaterThan(200);
  });
});
