/** Targets for parsers in `src/wire` that read a byte stream. */
import { isUtf8 } from 'node:buffer';
import { inflateRawSync, constants } from 'node:zlib';
import { createAckParser, encodeAck } from '../../src/wire/recorder-api/ack.ts';
import { FrameLines } from '../../src/wire/recorder-api/frame-lines.ts';
import {
  createRecordReader,
  encodeRecords,
  endOfRecords,
} from '../../src/wire/recorder-api/length-prefixed.ts';
import {
  FrameBatch,
  type FrameForm,
  FrameReader,
  MAX_LINE_BYTES_PER_FRAME_BYTE,
} from '../../src/wire/recorder-api/upload-frame.ts';
import { createResizeParser, encodeResize } from '../../src/wire/remotecommand/resize.ts';
import { endsWithSyncFlush } from '../../src/wire/spdy/deflate-boundary.ts';
import { SPDY_DICTIONARY } from '../../src/wire/spdy/dictionary.ts';
import {
  createSpdyParser,
  encodeSpdyFrame,
  type SpdyEvent,
  type SpdyFrame,
} from '../../src/wire/spdy/frame.ts';
import {
  createHeaderDeflater,
  createHeaderInflater,
  SPDY_HEADER_LIMITS,
} from '../../src/wire/spdy/headers.ts';
import {
  createWebSocketScanner,
  encodeWebSocketFrame,
  unmaskPiece,
  type WebSocketPiece,
} from '../../src/wire/websocket/frame.ts';
import { WireError } from '../../src/wire/wire-error.ts';
import { join } from '../../test/support/damage.ts';
import {
  attempt,
  checkStream,
  cutAtRandom,
  ensure,
  ensureEqual,
  utf8,
  type FuzzTarget,
  type StreamParser,
} from '../target.ts';

export function wireRefusal(error: unknown): string | undefined {
  return error instanceof WireError ? error.code : undefined;
}

/** Content of a frame: joined lines, or output with its time and its `FrameForm`. */
type FrameRead =
  | { readonly lines: Uint8Array; readonly whole: boolean }
  | { readonly seconds: number; readonly output: Uint8Array; readonly form: FrameForm };

/** Parses frames and their lines. */
const uploadFrame: FuzzTarget = {
  name: 'upload-frame',
  words: [
    '\x01\0\0\0',
    '\x02\0\0\0',
    '\x03\0\0\0',
    '\0\0\0\0',
    '[1,"o","a"]\n',
    '{"version":2}\n',
    '\x80',
    '\n',
  ],
  seeds: [
    utf8('\x01\0\0\0\x0e{"version":2}\n\x02\0\0\0\x09\0\0\0\0\0\0\0\x05a'),
    Uint8Array.of(2, 0, 0, 0, 11, 0, 0, 0, 1, 0, 0, 0, 7, 0xc3, 0xff, 0x0a),
    Uint8Array.of(2, 0, 0, 0, 9, 0, 4, 0, 0, 0, 0, 0, 0, 0x61),
    Uint8Array.of(3, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 9, 0xff, 0x61),
    utf8('\x01\0\0\0\x01x'),
  ],
  run(input, random) {
    const { merged, refused } = checkStream<FrameRead>(input, random, {
      create: () => createFrameList(),
      refusal: wireRefusal,
      afterRefusal: dead,
      merge: mergeFrames,
    });
    const reader = new FrameLines({ lines: 0, frames: 0 }, isUtf8);
    const whole = attempt(
      () => [...cutAtRandom(input, random)].map((piece) => reader.push(piece).length),
      wireRefusal,
    );
    ensure(
      whole.refused === refused,
      'the lines are refused and the frames are not, or the other way around',
    );
    if (whole.refused !== undefined) return `${refused} ${merged.length}`;
    const made = whole.value.reduce((sum, length) => sum + length, 0);
    ensure(
      made <= MAX_LINE_BYTES_PER_FRAME_BYTE * input.length,
      'frames stand for more lines than is promised',
    );
    const place = reader.reached(made);
    ensure(place.frames <= input.length && place.lines <= made, 'a place is beyond what came');
    if (reader.isAtBoundary && input.length > 0)
      ensureEqual(place, { frames: input.length, lines: made }, 'the end');
    const batch = new FrameBatch();
    for (const read of merged as readonly FrameRead[]) {
      if ('output' in read) batch.output(read.seconds, read.output, read.form);
      else if (read.whole && isUtf8(read.lines)) batch.text(Buffer.from(read.lines).toString());
    }
    const again = new FrameLines({ lines: 0, frames: 0 }, isUtf8);
    ensure(again.push(batch.take()).length <= made, 'frames do not survive being written');
    return `${refused} ${merged.length}`;
  },
};

function createFrameList(): StreamParser<FrameRead> {
  const reader = new FrameReader();
  return {
    push(chunk) {
      const found: FrameRead[] = [];
      reader.push(chunk, {
        lines: (part) => void found.push({ lines: part.slice(), whole: false }),
        output: (seconds, bytes, form) => void found.push({ seconds, output: new Uint8Array(bytes), form }),
        whole() {
          const last = found.at(-1);
          if (last !== undefined && 'lines' in last) found.splice(-1, 1, { ...last, whole: true });
        },
      });
      return found;
    },
  };
}

function mergeFrames(reads: readonly FrameRead[]): readonly FrameRead[] {
  const merged: FrameRead[] = [];
  for (const read of reads) {
    const last = merged.at(-1);
    const goesOn = last !== undefined && 'lines' in last && !last.whole && 'lines' in read;
    if (goesOn) merged.splice(-1, 1, { ...read, lines: new Uint8Array(join(last.lines, read.lines)) });
    else merged.push(read);
  }
  return merged;
}

const dead = (): string => 'dead';
const EMPTY = new Uint8Array(0);
const LIMITS = { maxControlFrameBytes: 4096, maxDataFrameBytes: 16_384 };

/** A frame in the form that `encodeSpdyFrame` needs. `whole` is false if the end of the frame is missing. */
type MergedFrame = SpdyFrame & { readonly whole?: boolean };

function mergeSpdy(events: readonly SpdyEvent[]): readonly MergedFrame[] {
  const merged: MergedFrame[] = [];
  let parts: Uint8Array[] = [];
  for (const event of events) {
    if (event.kind !== 'data') {
      merged.push(event);
      continue;
    }
    if (!event.first) merged.pop();
    else parts = [];
    parts.push(event.payload.slice());
    const { kind, streamId, fin } = event;
    merged.push({
      kind,
      streamId,
      fin,
      payload: new Uint8Array(join(...parts)),
      ...(event.last ? {} : { whole: false }),
    });
  }
  return merged;
}

const spdyFrame: FuzzTarget = {
  name: 'spdy-frame',
  words: ['\0\0\0\x01', '\0\0\0\0'],
  seeds: [
    join(
      encodeSpdyFrame({
        kind: 'synStream',
        streamId: 1,
        associatedTo: 0,
        priority: 0,
        fin: false,
        unidirectional: false,
        block: utf8('abc'),
      }),
      encodeSpdyFrame({ kind: 'data', streamId: 1, fin: false, payload: utf8('hello') }),
      encodeSpdyFrame({ kind: 'data', streamId: 1, fin: true, payload: EMPTY }),
    ),
    join(
      encodeSpdyFrame({ kind: 'synReply', streamId: 3, fin: false, block: utf8('x') }),
      encodeSpdyFrame({ kind: 'headers', streamId: 3, fin: true, block: utf8('x') }),
      encodeSpdyFrame({ kind: 'ping', id: 2 }),
    ),
    join(
      encodeSpdyFrame({ kind: 'settings', entries: [{ id: 4, flags: 1, value: 100 }] }),
      encodeSpdyFrame({ kind: 'windowUpdate', streamId: 0, delta: 5 }),
      encodeSpdyFrame({ kind: 'rstStream', streamId: 1, status: 5 }),
      encodeSpdyFrame({ kind: 'goaway', lastStreamId: 1, status: 0 }),
    ),
  ],
  run(input, random) {
    const { merged, refused } = checkStream(input, random, {
      create: () => createSpdyParser(LIMITS),
      refusal: wireRefusal,
      afterRefusal: dead,
      merge: mergeSpdy,
    });
    for (const frame of mergedFrames(merged)) {
      if (frame.whole === false) continue;
      const again = mergeSpdy(createSpdyParser(LIMITS).push(encodeSpdyFrame(frame)));
      ensureEqual(again, [frame], 'a frame does not survive being written');
    }
    return `${refused} ${mergedFrames(merged)
      .map(({ kind }) => kind)
      .join(' ')
      .slice(0, 80)}`;
  },
};

function mergedFrames(merged: readonly unknown[]): readonly MergedFrame[] {
  return merged as readonly MergedFrame[];
}

/** Splits the input into blocks: one byte with the length of the block, followed by that many bytes. */
function blocksOf(input: Uint8Array): readonly Uint8Array[] {
  const blocks: Uint8Array[] = [];
  for (let at = 0; at < input.length;) {
    const length = input[at] ?? 0;
    blocks.push(input.slice(at + 1, at + 1 + length));
    at += 1 + length;
  }
  return blocks;
}

function asInput(blocks: readonly Uint8Array[]): Uint8Array {
  return join(...blocks.flatMap((block) => [Uint8Array.of(block.length), block]));
}

function headerSeed(...texts: readonly (readonly (readonly [string, string])[])[]): Uint8Array {
  const deflater = createHeaderDeflater();
  return asInput(texts.map((text) => deflater.encode(text)));
}

const goBlock = Uint8Array.from(
  Buffer.from('78f9e3c6a7c2626060600012b39e4a45a94cb8694c29c9cccb4700040000ffff', 'hex'),
);

const spdyHeaders: FuzzTarget = {
  name: 'spdy-headers',
  words: ['\0\0\0\x0a', 'streamtype', 'stdout', '\0\0'],
  seeds: [
    headerSeed([['streamtype', 'error']], [['streamtype', 'stdin']], []),
    headerSeed([
      ['port', '80'],
      ['requestid', '0'],
      ['streamtype', 'data'],
    ]),
    asInput([goBlock]),
  ],
  run(input) {
    const inflater = createHeaderInflater();
    const again = createHeaderDeflater();
    const reader = createHeaderInflater();
    let count = 0;
    for (const block of blocksOf(input)) {
      const { value: headers, refused } = attempt(() => inflater.decode(block), wireRefusal);
      if (refused !== undefined) {
        ensure(
          attempt(() => inflater.decode(block), wireRefusal).refused === 'dead',
          'a refusal was not final',
        );
        return `${refused} after ${count}`;
      }
      const bytes = [...headers].reduce((sum, [name, value]) => sum + name.length + value.length, 0);
      ensure(bytes <= SPDY_HEADER_LIMITS.maxInflatedBytes, 'more text than the limit');
      ensureEqual(
        [...reader.decode(again.encode(headers))],
        [...headers],
        'headers do not survive being written',
      );
      count++;
    }
    return `read ${count}`;
  },
};

const EMPTY_STORED = Uint8Array.of(0, 0, 0, 0xff, 0xff);
const LETTER = Uint8Array.of(0, 1, 0, 0xfe, 0xff, 0x41);

const deflateBoundary: FuzzTarget = {
  name: 'deflate-boundary',
  words: ['\0\0\0'],
  seeds: [
    EMPTY_STORED,
    join(LETTER, EMPTY_STORED),
    goBlock.slice(6),
    Uint8Array.from(Buffer.from('4a4c4a4e494d4bcfc8cccacec9cdcb2f282c2a060000ffff', 'hex')),
  ],
  run(input) {
    if (!endsWithSyncFlush(input)) return 'no';
    const inflate = (bytes: Uint8Array): Buffer =>
      inflateRawSync(bytes, {
        dictionary: SPDY_DICTIONARY,
        finishFlush: constants.Z_SYNC_FLUSH,
        maxOutputLength: 1 << 20,
      });
    const { value: text } = attempt(
      () => inflate(input),
      (error) => (error instanceof Error ? 'zlib' : undefined),
    );
    if (text === undefined) return 'zlib refuses';
    // If tailcast reports that the input ends at a block boundary, zlib must read the next block correctly.
    const longer = inflate(join(input, LETTER, EMPTY_STORED));
    ensureEqual(longer.toString('latin1'), `${text.toString('latin1')}A`, 'not a boundary');
    return `yes ${Math.min(text.length, 20)}`;
  },
};

interface MergedWebSocketFrame {
  readonly opcode: number;
  readonly fin: boolean;
  readonly rsv: number;
  readonly mask: Uint8Array | undefined;
  readonly payload: Uint8Array;
  readonly whole: boolean;
}

function mergeWebSocket(pieces: readonly WebSocketPiece[]): readonly MergedWebSocketFrame[] {
  const merged: MergedWebSocketFrame[] = [];
  let parts: Uint8Array[] = [];
  for (const piece of pieces) {
    if (!piece.first) merged.pop();
    else parts = [];
    parts.push(Uint8Array.from(unmaskPiece(piece)));
    const { opcode, fin, rsv, mask, last } = piece;
    merged.push({ opcode, fin, rsv, mask, payload: new Uint8Array(join(...parts)), whole: last });
  }
  return merged;
}

function webSocket(name: string, expectMask: boolean): FuzzTarget {
  const mask = expectMask ? { mask: Uint8Array.of(1, 2, 3, 4) } : {};
  return {
    name,
    words: ['\x82\x05', '\x88\x02', '\x89\0'],
    seeds: [
      encodeWebSocketFrame({ opcode: 2, fin: true, payload: utf8('\x01hello'), ...mask }),
      join(
        encodeWebSocketFrame({ opcode: 2, fin: false, payload: utf8('\x01a'), ...mask }),
        encodeWebSocketFrame({ opcode: 9, fin: true, payload: utf8('x'), ...mask }),
        encodeWebSocketFrame({ opcode: 0, fin: true, payload: utf8('b'), ...mask }),
      ),
      encodeWebSocketFrame({ opcode: 1, fin: true, payload: new Uint8Array(200), ...mask }),
      encodeWebSocketFrame({ opcode: 8, fin: true, payload: Uint8Array.of(3, 0xe8), ...mask }),
    ],
    run(input, random) {
      const options = { expectMask, maxFrameBytes: 16_384, maxMessageFrames: 8 };
      const { merged, refused } = checkStream(input, random, {
        create: () => createWebSocketScanner(options),
        refusal: wireRefusal,
        afterRefusal: dead,
        merge: mergeWebSocket,
      });
      const frames = merged as readonly MergedWebSocketFrame[];
      const scanner = createWebSocketScanner(options);
      for (const frame of frames.filter(({ whole }) => whole)) {
        const { mask: used, ...rest } = frame;
        const bytes = encodeWebSocketFrame(used === undefined ? rest : { ...rest, mask: used });
        ensureEqual(mergeWebSocket(scanner.push(bytes)), [frame], 'a frame does not survive being written');
      }
      return `${refused} ${frames
        .map(({ opcode, fin }) => `${opcode}${fin}`)
        .join(' ')
        .slice(0, 60)}`;
    },
  };
}

const resize: FuzzTarget = {
  name: 'resize',
  words: ['"Width"', '"Height":', '{', '}', ',', '65535', 'null', '1e2', '\\u0057'],
  seeds: [
    encodeResize({ columns: 80, rows: 24 }),
    utf8('{"width":1}{"HEIGHT":2,"x":[{"Width":3}]}'),
    utf8(' {}\n'),
  ],
  run(input, random) {
    const { merged, refused } = checkStream(input, random, {
      create: () => createResizeParser(256),
      refusal: wireRefusal,
      afterRefusal: dead,
      merge: (sizes) => sizes,
    });
    for (const size of merged as readonly { columns: number; rows: number }[]) {
      ensure(size.columns <= 0xffff && size.rows <= 0xffff, 'a size of more than 16 bits');
      ensureEqual(
        createResizeParser().push(encodeResize(size)),
        [size],
        'a size does not survive being written',
      );
    }
    return `${refused} ${merged.length}`;
  },
};

const ack: FuzzTarget = {
  name: 'ack',
  words: ['{"ack":', '"error":"', '}', '9007199254740991', '\\u0000', '\n'],
  seeds: [utf8('{"ack":5}\n{"ack":9,"error":"x"}\n'), utf8('{}{}'), utf8('{"ack":1,"error":"\\"}{"}')],
  run(input, random) {
    const { merged, refused } = checkStream(input, random, {
      create: () => createAckParser(256),
      refusal: wireRefusal,
      afterRefusal: dead,
      merge: (acks) => acks,
    });
    for (const frame of merged as readonly { ack: number; error?: string }[]) {
      const again = createAckParser().push(utf8(encodeAck(frame)));
      ensureEqual(again, [frame], 'an ack does not survive being written');
    }
    return `${refused} ${merged.length}`;
  },
};

const MAX_RECORD_BYTES = 300;
const END = 'end';

/** Parses the records of an upgraded upload. */
const uploadRecord: FuzzTarget = {
  name: 'upload-record',
  words: ['\0\0\0\0', '\0\0\0\x01', '\0\0\x01\x2c', '\0\0\x01\x2d', '\xff'],
  seeds: [
    join(...encodeRecords([utf8('{"version":2}\n')], 5), endOfRecords()),
    join(...encodeRecords([utf8('{}\n'), utf8('{"ack":9}\n')], MAX_RECORD_BYTES)),
    join(endOfRecords(), endOfRecords()),
    Uint8Array.of(0, 0, 1, 45, 1),
  ],
  run(input, random) {
    const { merged, refused } = checkStream<Uint8Array | typeof END>(input, random, {
      create: createRecordList,
      refusal: wireRefusal,
      afterRefusal: dead,
      merge: (parts) => {
        const content = parts.filter((part) => part !== END);
        return [...join(...content), ...(content.length < parts.length ? [END] : [])];
      },
    });
    const content = Uint8Array.from(merged.filter((part) => typeof part === 'number'));
    ensure(content.length <= input.length, 'more content than bytes');
    const ended = merged.includes(END);
    const again = createRecordList();
    const written = join(
      ...encodeRecords([content], 1 + random.below(MAX_RECORD_BYTES)),
      ...(ended ? [endOfRecords()] : []),
    );
    const reread = again.push(written);
    ensureEqual([...join(...reread.filter((part) => part !== END))], [...content], 'what was written');
    ensure(reread.includes(END) === ended, 'the end does not survive being written');
    return `${refused} ${ended} ${Math.min(content.length, 3)}`;
  },
};

function createRecordList(): StreamParser<Uint8Array | typeof END> {
  let found: (Uint8Array | typeof END)[] = [];
  const reader = createRecordReader(MAX_RECORD_BYTES, (piece) => void found.push(piece.slice()));
  return {
    push(chunk) {
      found = [];
      const endedBefore = reader.ended;
      reader.push(chunk);
      return reader.ended && !endedBefore ? [...found, END] : found;
    },
  };
}

export const WIRE_STREAM_TARGETS: readonly FuzzTarget[] = [
  spdyFrame,
  spdyHeaders,
  deflateBoundary,
  webSocket('websocket-client', true),
  webSocket('websocket-server', false),
  resize,
  ack,
  uploadFrame,
  uploadRecord,
];
