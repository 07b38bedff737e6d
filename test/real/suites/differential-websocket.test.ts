/**
 * Compares tailcast's parser of WebSocket frames and streams with the libraries of Kubernetes' server and of kubectl.
 */
import { describe, expect, it } from 'vitest';
import {
  createWebSocketScanner,
  encodeWebSocketFrame,
  OPCODE,
  unmaskPiece,
} from '../../../src/wire/websocket/frame.ts';
import { createResizeParser, encodeResize } from '../../../src/wire/remotecommand/resize.ts';
import { damage, join, segments } from '../../support/damage.ts';
import { createTally, feed, relation } from '../differential/compare.ts';
import { askOracle, base64 } from '../differential/oracle.ts';
import { createRandom, runSeed, type Random } from '../../support/random.ts';

const STREAMS = 6_000;
const DAMAGED = 24_000;
const seed = runSeed();

interface Message {
  readonly opcode: number;
  readonly data: string;
}

interface Decoded {
  readonly messages: readonly { readonly opcode: number; readonly data: string | null }[];
  readonly error?: string;
}

/**
 * Kind of reader: the server library of Kubernetes treats every frame as a message; kubectl's library follows the RFC.
 */
interface Peer {
  readonly peer: 'x-net' | 'gorilla';
  readonly server: boolean;
}

const READERS: readonly Peer[] = [
  { peer: 'x-net', server: true },
  { peer: 'gorilla', server: true },
  { peer: 'gorilla', server: false },
];

interface Frame {
  readonly opcode: number;
  readonly fin: boolean;
  readonly rsv: number;
  readonly payload: Uint8Array;
  /** False only for the last frame, if bytes of it are missing. */
  readonly whole: boolean;
}

/** Result of tailcast's parser, frame by frame. */
function scan(
  chunks: readonly Uint8Array[],
  expectMask: boolean,
): { frames: Frame[]; refused: Error | undefined; cut: boolean } {
  const scanner = createWebSocketScanner({ expectMask });
  const { pieces, refused } = feed(
    {
      push: (chunk) => scanner.push(chunk).map((piece) => ({ ...piece, bytes: unmaskPiece(piece).slice() })),
    },
    chunks,
  );
  const frames: { opcode: number; fin: boolean; rsv: number; parts: Uint8Array[]; whole: boolean }[] = [];
  for (const { opcode, fin, rsv, first, last, bytes } of pieces) {
    if (first) frames.push({ opcode, fin, rsv, parts: [], whole: false });
    const frame = frames.at(-1)!;
    frame.parts.push(bytes);
    frame.whole = last;
  }
  // After an error, the parser discards an unfinished frame, so the comparison omits it.
  if (refused !== undefined && frames.at(-1)?.whole === false) frames.pop();
  return {
    frames: frames.map(({ parts, ...frame }) => ({ ...frame, payload: join(...parts) })),
    refused,
    cut: !scanner.atBoundary,
  };
}

/**
 * Returns the messages according to the server library of Kubernetes: each data frame is a message, and a close frame
 * ends the stream.
 */
function asServerMessages(frames: readonly Frame[]): Message[] {
  const messages: Message[] = [];
  let opcode = 0;
  for (const frame of frames) {
    if (frame.opcode === OPCODE.close) break;
    if (frame.opcode >= OPCODE.close) continue;
    if (frame.opcode !== OPCODE.continuation) opcode = frame.opcode;
    messages.push({ opcode, data: base64(frame.payload) });
  }
  return messages;
}

/** Returns the messages according to the RFC: complete messages, with control frames in between. */
function asMessages(frames: readonly Frame[]): Message[] {
  const messages: Message[] = [];
  let open: Frame | undefined;
  for (const frame of frames) {
    if (!frame.whole) break;
    // Extensions were not negotiated, so these bits must be 0.
    if (frame.rsv !== 0) break;
    if (frame.opcode === OPCODE.close) {
      messages.push({ opcode: OPCODE.close, data: '' });
      break;
    }
    if (frame.opcode > OPCODE.close) {
      messages.push({ opcode: frame.opcode, data: base64(frame.payload) });
      continue;
    }
    open = open === undefined ? frame : { ...open, payload: join(open.payload, frame.payload) };
    if (!frame.fin) continue;
    messages.push({ opcode: open.opcode, data: base64(open.payload) });
    open = undefined;
  }
  return messages;
}

function theirMessages({ messages }: Decoded): Message[] {
  return messages.map(({ opcode, data }) => ({ opcode, data: data ?? '' }));
}

function payloadOf(random: Random): Uint8Array {
  return random.bytes(random.pick([0, 1, 2, 20, 125, 126, 127, 200, 1000, random.oneIn(20) ? 66_000 : 3]));
}

/** Returns a stream of valid messages, partly fragmented, with or without a final close frame. */
function randomStream(random: Random, masked: boolean, fragments: boolean): Uint8Array {
  const frames: Uint8Array[] = [];
  const add = (opcode: number, fin: boolean, payload: Uint8Array): void => {
    frames.push(encodeWebSocketFrame({ opcode, fin, payload, ...(masked ? { mask: random.bytes(4) } : {}) }));
  };
  for (let count = 1 + random.below(6); count > 0; count--) {
    const opcode = random.pick([OPCODE.binary, OPCODE.binary, OPCODE.text, OPCODE.ping, OPCODE.pong]);
    if (opcode >= OPCODE.close) {
      add(opcode, true, random.bytes(random.below(126)));
      continue;
    }
    const parts = fragments && random.oneIn(3) ? 1 + random.below(4) : 0;
    for (let part = 0; part <= parts; part++) {
      add(part === 0 ? opcode : OPCODE.continuation, part === parts, payloadOf(random));
      if (random.oneIn(8))
        add(random.pick([OPCODE.ping, OPCODE.pong]), true, random.bytes(random.below(126)));
    }
  }
  if (random.oneIn(3)) add(OPCODE.close, true, random.pick([new Uint8Array(0), Uint8Array.of(3, 0xe8)]));
  return join(...frames);
}

describe(`WebSocket (TEST_SEED=${seed})`, () => {
  it.each(READERS)('is read by $peer (server: $server) as we wrote it', async (reader) => {
    const random = createRandom(seed);
    const streams = Array.from({ length: STREAMS / 3 }, () => randomStream(random, reader.server, true));
    const answers = await askOracle<Decoded>(
      'ws-decode',
      streams.map((bytes) => ({ ...reader, bytes: base64(bytes) })),
    );
    for (const [index, bytes] of streams.entries()) {
      const { frames, refused } = scan(segments(random, bytes), reader.server);
      expect(refused).toBeUndefined();
      const ours = reader.peer === 'x-net' ? asServerMessages(frames) : asMessages(frames);
      expect(ours).toEqual(theirMessages(answers[index]!));
    }
  });

  it.each([
    { peer: 'x-net', server: true },
    { peer: 'gorilla', server: true },
    { peer: 'gorilla', server: false },
  ] as const)('is read by us as $peer (server: $server) wrote it', async (writer) => {
    const random = createRandom(seed + 1);
    const streams = Array.from({ length: STREAMS / 3 }, () =>
      random.list(6, () => ({
        opcode: random.pick([OPCODE.binary, OPCODE.text]),
        data: base64(payloadOf(random)),
      })),
    );
    const answers = await askOracle<{ bytes: string | null }>(
      'ws-encode',
      streams.map((messages) => ({ ...writer, messages, writeBuffer: random.pick([0, 16, 100, 4096]) })),
    );
    for (const [index, messages] of streams.entries()) {
      const bytes = new Uint8Array(Buffer.from(answers[index]!.bytes ?? '', 'base64'));
      const { frames, refused } = scan(segments(random, bytes), !writer.server);
      expect(refused).toBeUndefined();
      expect(asMessages(frames)).toEqual(messages);
    }
  });

  it.each(READERS)(
    'is never read differently by $peer (server: $server) when it is damaged',
    async (reader) => {
      const random = createRandom(seed + 2);
      const inputs = Array.from({ length: DAMAGED / 3 }, () =>
        damage(random, randomStream(random, reader.server, true)),
      );
      const answers = await askOracle<Decoded>(
        'ws-decode',
        inputs.map((bytes) => ({ ...reader, bytes: base64(bytes) })),
      );
      const outcomes = createTally();
      let badCloses = 0;
      const problems: object[] = [];
      for (const [index, bytes] of inputs.entries()) {
        const go = answers[index]!;
        const { frames, refused, cut } = scan(segments(random, bytes), reader.server);
        const ours = reader.peer === 'x-net' ? asServerMessages(frames) : asMessages(frames);
        const theirs = theirMessages(go);
        const outcome = relation(ours, theirs);
        const rsv = frames.some((frame) => frame.rsv !== 0);
        outcomes.add(outcome);
        // tailcast's parser does not check close frames; its caller checks the close code.
        const badClose =
          outcome === 'longer' && /bad close code|invalid utf8 payload|invalid close/.test(go.error ?? '');
        if (badClose) badCloses++;
        else if (outcome === 'longer') problems.push({ bytes: base64(bytes), ours, theirs, go: go.error });
        // If the connection ends within a frame before its content, the library treats the frame as complete.
        const cutShort = cut && theirs.length === ours.length + 1 && theirs.at(-1)?.data === '';
        const waits = outcome === 'shorter' && refused === undefined && !rsv && !cutShort;
        if (outcome === 'different' || waits)
          problems.push({ bytes: base64(bytes), refused, ours, theirs, go: go.error });
      }
      console.log('damaged WebSocket', reader, outcomes.counts);
      expect(problems.slice(0, 3)).toEqual([]);
      expect(outcomes.counts['equal']).toBeGreaterThan(DAMAGED / 30);
    },
  );
});

describe(`terminal sizes (TEST_SEED=${seed})`, () => {
  const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);

  function randomSizes(random: Random): Uint8Array {
    const size = (): number => random.pick([0, 1, 80, 24, 65_535, random.below(65_536)]);
    return join(
      ...Array.from({ length: 1 + random.below(4) }, () => {
        if (random.oneIn(2)) return encodeResize({ columns: size(), rows: size() });
        return utf8(`${oddObject(random, size)}${random.pick(['', '\n', ' ', '\r\n\t'])}`);
      }),
    );
  }

  function oddObject(random: Random, size: () => number): string {
    const names = [
      'Width',
      'Height',
      'width',
      'HEIGHT',
      'wIdth',
      'W\\u0069dth',
      'x',
      'Width ',
      'Heİght',
      'Heıght',
      '',
    ];
    const values = [
      '1e2',
      '1.0',
      '-0',
      '-1',
      '65536',
      '"80"',
      'null',
      'true',
      '[]',
      '{}',
      '[{"Width":1}]',
      '1E1',
      '0.5',
    ];
    const members = random.list(4, () => {
      const value = random.oneIn(2) ? String(size()) : random.pick(values);
      return `"${random.pick(names)}"${random.pick([':', ' : '])}${value}`;
    });
    return `{${members.join(random.pick([',', ' , ', ',', ',', ',,']))}}`;
  }

  it('are those that the kubelet reads', async () => {
    const random = createRandom(seed + 3);
    const inputs = Array.from({ length: DAMAGED }, () => {
      const bytes = randomSizes(random);
      return random.oneIn(2) ? bytes : damage(random, bytes);
    });
    const answers = await askOracle<{ sizes: readonly { columns: number; rows: number }[]; error?: string }>(
      'resize-decode',
      inputs.map((bytes) => ({ bytes: base64(bytes) })),
    );
    const outcomes = createTally();
    const problems: object[] = [];
    for (const [index, bytes] of inputs.entries()) {
      const go = answers[index]!;
      // One byte per chunk, so that no frame before the error is discarded.
      const chunks = Array.from(bytes, (byte) => Uint8Array.of(byte));
      const { pieces, refused } = feed(createResizeParser(), chunks);
      const outcome = relation(pieces, go.sizes);
      outcomes.add(outcome);
      const waits = outcome === 'shorter' && refused === undefined;
      if (outcome === 'different' || outcome === 'longer' || waits) {
        problems.push({ text: Buffer.from(bytes).toString(), ours: pieces, refused, go });
      }
    }
    console.log('terminal sizes', outcomes.counts);
    expect(problems.slice(0, 3)).toEqual([]);
  });
});
