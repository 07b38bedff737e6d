import { describe, expect, it } from 'vitest';
import {
  createSpdyParser,
  encodeSpdyFrame,
  SPDY_LIMITS,
  type SpdyEvent,
  type SpdyFrame,
} from '../../../src/wire/spdy/frame.ts';
import { concat, cut, hex, list, thrownBy } from '../bytes.ts';

/** Joins the pieces of each DATA frame, and checks that each piece has the correct marks for start and end. */
function merge(events: readonly SpdyEvent[]): readonly unknown[] {
  const merged: unknown[] = [];
  let open: { payload: Uint8Array; length: number } | undefined;
  for (const event of events) {
    if (event.kind !== 'data') {
      expect(open).toBeUndefined();
      merged.push('block' in event ? { ...event, block: list(event.block) } : event);
      continue;
    }
    expect(event.first).toBe(open === undefined);
    const payload = concat(open?.payload ?? new Uint8Array(0), event.payload);
    expect(event.last).toBe(payload.length === event.length);
    if (!event.last) expect(event.fin).toBe(false);
    open = event.last ? undefined : { payload, length: event.length };
    if (event.last) {
      merged.push({ kind: 'data', streamId: event.streamId, fin: event.fin, payload: list(payload) });
    }
  }
  return merged;
}

/**
 * Copies the payloads, as a caller that stores events must, because the memory of each segment is overwritten later.
 */
function parseAll(segments: readonly Uint8Array[], limits = {}): readonly unknown[] {
  const parser = createSpdyParser(limits);
  const events = segments.flatMap((segment) => {
    const chunk = segment.slice();
    const pushed = parser
      .push(chunk)
      .map((event) => (event.kind === 'data' ? { ...event, payload: event.payload.slice() } : event));
    chunk.fill(0xdd); // the caller reuses its buffer
    return pushed;
  });
  expect(parser.atBoundary).toBe(true);
  return merge(events);
}

const parse = (...parts: readonly string[]): readonly unknown[] => parseAll([hex(...parts)]);

describe('SPDY frames of real peers', () => {
  it('reads a data frame', () => {
    expect(parse('00000001 00000005 0102030405')).toEqual([
      { kind: 'data', streamId: 1, fin: false, payload: [1, 2, 3, 4, 5] },
    ]);
  });

  it('reads an empty data frame and an empty one that ends the stream', () => {
    expect(parse('00000005 00000000', '00000003 01000000')).toEqual([
      { kind: 'data', streamId: 5, fin: false, payload: [] },
      { kind: 'data', streamId: 3, fin: true, payload: [] },
    ]);
  });

  it('reads every frame of one chunk: two of output and the end of the stream', () => {
    expect(parse('00000005 00000001 41', '00000005 00000001 42', '00000005 01000000')).toEqual([
      { kind: 'data', streamId: 5, fin: false, payload: [0x41] },
      { kind: 'data', streamId: 5, fin: false, payload: [0x42] },
      { kind: 'data', streamId: 5, fin: true, payload: [] },
    ]);
  });

  it('takes stream ids in full width', () => {
    const ids = ['00000080', '00000085', '00000101', '00080001', '01000000', '7fffffff'];
    expect(ids.flatMap((id) => parse(id, '00000001 41'))).toEqual(
      ids.map((id) => ({ kind: 'data', streamId: Number.parseInt(id, 16), fin: false, payload: [0x41] })),
    );
  });

  it('reads the SYN_STREAM frames that kubectl opens its streams with', () => {
    const frames = [
      ['01', '28', '78f9e3c6a7c202a62346703a2b294a4dcc851625aca9a08006000000ffff'],
      ['03', '29', '78f9e3c6a7c202a62346703a2b294a4dcc851625acc525c03c01000000ffff'],
      ['09', '2a', '78f9e3c6a7c202a62346703a2b294a4dcc8516256cc0c202183b00000000ffff'],
    ] as const;
    for (const [id, length, deflated] of frames) {
      expect(parse(`80030001 000000${length} 000000${id} 00000000 0000`, deflated)).toEqual([
        {
          kind: 'synStream',
          streamId: Number.parseInt(id, 16),
          associatedTo: 0,
          priority: 0,
          fin: false,
          unidirectional: false,
          block: list(hex(deflated)),
        },
      ]);
    }
  });

  it('reads SYN_REPLY and HEADERS without a block', () => {
    expect(parse('80030002 00000004 00000001', '80030008 01000004 00000003')).toEqual([
      { kind: 'synReply', streamId: 1, fin: false, block: [] },
      { kind: 'headers', streamId: 3, fin: true, block: [] },
    ]);
  });

  it('reads how kubectl closes: RST_STREAM 5 for its streams, then GOAWAY', () => {
    expect(parse('80030003 00000008 00000007 00000005', '80030007 00000008 00000000 00000000')).toEqual([
      { kind: 'rstStream', streamId: 7, status: 5 },
      { kind: 'goaway', lastStreamId: 0, status: 0 },
    ]);
  });

  it('reads PING, SETTINGS and WINDOW_UPDATE', () => {
    expect(
      parse(
        '80030006 00000004 00000001',
        '80030004 01000014 00000002 01000004 00000064 00000007 00010000',
        '80030009 00000008 00000005 00010000',
      ),
    ).toEqual([
      { kind: 'ping', id: 1 },
      {
        kind: 'settings',
        entries: [
          { id: 4, flags: 1, value: 100 },
          { id: 7, flags: 0, value: 0x1_0000 },
        ],
      },
      { kind: 'windowUpdate', streamId: 5, delta: 0x1_0000 },
    ]);
  });

  it('reads priority and the unidirectional flag', () => {
    expect(parse('80030001 0300000a 00000002 00000001 e0 07')).toEqual([
      {
        kind: 'synStream',
        streamId: 2,
        associatedTo: 1,
        priority: 7,
        fin: true,
        unidirectional: true,
        block: [],
      },
    ]);
  });
});

describe('SPDY parser', () => {
  it('waits for the rest of a header and of a payload', () => {
    const parser = createSpdyParser();
    expect(parser.atBoundary).toBe(true);
    expect(parser.push(hex('00000000000000'))).toEqual([]);
    expect(parser.atBoundary).toBe(false);
    const second = createSpdyParser();
    expect(second.push(hex('0000000500000002'))).toEqual([]);
    expect(second.atBoundary).toBe(false);
    expect(second.push(hex('41'))).toMatchObject([{ first: true, last: false, length: 2 }]);
    expect(second.push(hex('42'))).toMatchObject([{ first: false, last: true, length: 2 }]);
    expect(second.atBoundary).toBe(true);
    expect(second.push(hex('800300060000000400'))).toEqual([]);
    expect(second.atBoundary).toBe(false);
  });

  it('keeps leftover bytes for the next chunk', () => {
    expect(parseAll([hex('80030006'), hex('00000004 00000001 8003'), hex('0006 00000004 00000003')])).toEqual(
      [
        { kind: 'ping', id: 1 },
        { kind: 'ping', id: 3 },
      ],
    );
  });

  it('hands out data as views of the chunk and control blocks as copies', () => {
    const chunk = hex('00000001 00000002 4142', '80030002 00000006 00000001 aabb');
    const [data, reply] = createSpdyParser().push(chunk);
    chunk.fill(0);
    expect(data).toMatchObject({ payload: new Uint8Array([0, 0]) });
    expect(reply).toMatchObject({ block: new Uint8Array([0xaa, 0xbb]) });
  });

  it('gives the same events for every cut in two', () => {
    const bytes = hex(
      '80030001 0000000c 00000001 00000000 0000 aabb',
      '00000001 01000003 414243',
      '80030004 0000000c 00000001 00000001 00000002',
    );
    const whole = parseAll([bytes]);
    expect(whole).toHaveLength(3);
    for (let place = 0; place <= bytes.length; place += 1)
      expect(parseAll(cut(bytes, [place]))).toEqual(whole);
  });

  it('takes a data frame of 2^24-1 bytes without buffering it', () => {
    const parser = createSpdyParser();
    parser.push(hex('00000001 01ffffff'));
    const chunk = new Uint8Array(0xff_fffe);
    expect(parser.push(chunk)).toMatchObject([{ length: 0xff_ffff, first: true, last: false, fin: false }]);
    expect(parser.push(new Uint8Array(1))).toMatchObject([{ last: true, fin: true }]);
  });
});

describe('SPDY limits', () => {
  const synReply = (length: number): Uint8Array =>
    hex(`80030002 00${length.toString(16).padStart(6, '0')} 00000001`, '00'.repeat(length - 4));

  it('takes a control frame of the limit and refuses one byte more', () => {
    const { maxControlFrameBytes } = SPDY_LIMITS;
    expect(parseAll([synReply(maxControlFrameBytes)])).toHaveLength(1);
    const header = synReply(maxControlFrameBytes + 1).subarray(0, 8);
    expect(thrownBy(() => createSpdyParser().push(header)).code).toBe('limit');
    expect(thrownBy(() => parseAll([synReply(21)], { maxControlFrameBytes: 20 })).code).toBe('limit');
    expect(parseAll([synReply(20)], { maxControlFrameBytes: 20 })).toHaveLength(1);
  });

  it('takes a data frame of the limit and refuses one byte more before its payload', () => {
    const limits = { maxDataFrameBytes: 4 };
    expect(parseAll([hex('00000001 00000004 41424344')], limits)).toHaveLength(1);
    expect(thrownBy(() => createSpdyParser(limits).push(hex('00000001 00000005'))).code).toBe('limit');
  });

  it.each([
    ['a version other than 3', '80020006 00000004 00000001'],
    ['a version that is 3 only in its low byte', '81030006 00000004 00000001'],
    ['an unknown control type', '80030005 00000000'],
    ['a control type above 9', '8003000a 00000000'],
    ['data on stream 0', '00000000 00000000'],
    ['unknown data flags', '00000001 02000000'],
    ['SYN_STREAM on stream 0', '80030001 0000000a 00000000 00000000 0000'],
    ['SYN_STREAM that is too short', '80030001 00000005 0000000105'],
    ['SYN_STREAM of no bytes', '80030001 00000000'],
    ['SYN_STREAM with the reserved bit in its id', '80030001 0000000a 80000005 00000000 0000'],
    ['SYN_STREAM with the reserved bit in the associated id', '80030001 0000000a 00000005 80000000 0000'],
    ['SYN_STREAM with unknown flags', '80030001 0400000a 00000001 00000000 0000'],
    ['SYN_REPLY that is too short', '80030002 00000003 000000'],
    ['SYN_REPLY of no bytes', '80030002 00000000'],
    ['SYN_REPLY on stream 0', '80030002 00000004 00000000'],
    ['SYN_REPLY with unknown flags', '80030002 02000004 00000001'],
    ['RST_STREAM of a wrong length', '80030003 00000009 00000001 00000001 00'],
    ['RST_STREAM with status 0', '80030003 00000008 00000001 00000000'],
    ['RST_STREAM on stream 0', '80030003 00000008 00000000 00000001'],
    ['RST_STREAM with flags', '80030003 01000008 00000001 00000001'],
    ['SETTINGS with a count that is too high', '80030004 0000000c 00000002 00000001 00000001'],
    ['SETTINGS with a count that is too low', '80030004 0000000c 00000000 00000001 00000001'],
    ['SETTINGS of half an entry', '80030004 00000008 00000001 00000001'],
    ['SETTINGS with a count of 2^32-1', '80030004 00000004 ffffffff'],
    ['PING of a wrong length', '80030006 00000003 000001'],
    ['PING 0', '80030006 00000004 00000000'],
    ['PING with flags', '80030006 01000004 00000001'],
    ['GOAWAY of a wrong length', '80030007 00000004 00000000'],
    ['GOAWAY with the reserved bit', '80030007 00000008 80000000 00000000'],
    ['HEADERS of no bytes', '80030008 00000000'],
    ['HEADERS on stream 0', '80030008 00000004 00000000'],
    ['WINDOW_UPDATE of a wrong length', '80030009 00000004 00000001'],
    ['WINDOW_UPDATE of 0', '80030009 00000008 00000001 00000000'],
    ['WINDOW_UPDATE with the reserved bit', '80030009 00000008 00000001 80000001'],
  ])('refuses %s', (_name, bytes) => {
    expect(thrownBy(() => createSpdyParser().push(hex(bytes))).code).toBe('malformed');
    expect(thrownBy(() => parseAll(cut(hex(bytes), [1, 2, 3, 4, 5, 6, 7, 8, 9]))).code).toBe('malformed');
  });

  it('refuses a wrong SETTINGS count with the count itself: Go goes by it and would read on behind it', () => {
    const parser = createSpdyParser();
    parser.push(hex('80030004 0000ffff 000000'));
    expect(thrownBy(() => parser.push(hex('00'))).code).toBe('malformed');
  });

  it('is dead after a failure, also for frames that are fine', () => {
    const parser = createSpdyParser();
    const first = thrownBy(() => parser.push(hex('00000001 00000001 41', '00000000 00000000')));
    expect(first.code).toBe('malformed');
    expect(thrownBy(() => parser.push(hex('00000001 00000001 41')))).toMatchObject({
      code: 'dead',
      cause: first,
    });
  });
});

describe('SPDY encoder', () => {
  it('writes what Go writes', () => {
    expect(list(encodeSpdyFrame({ kind: 'data', streamId: 3, fin: true, payload: hex('') }))).toEqual(
      list(hex('00000003 01000000')),
    );
    expect(list(encodeSpdyFrame({ kind: 'ping', id: 1 }))).toEqual(list(hex('80030006 00000004 00000001')));
    expect(list(encodeSpdyFrame({ kind: 'goaway', lastStreamId: 0, status: 0 }))).toEqual(
      list(hex('80030007 00000008 00000000 00000000')),
    );
  });

  it('does not keep or change the payload it is given', () => {
    const payload = hex('414243');
    const bytes = encodeSpdyFrame({ kind: 'data', streamId: 1, fin: false, payload });
    bytes.fill(0);
    expect(list(payload)).toEqual([0x41, 0x42, 0x43]);
  });

  it('writes a payload of 2^24-1 bytes and refuses one more', () => {
    const data = (length: number): SpdyFrame => ({
      kind: 'data',
      streamId: 1,
      fin: false,
      payload: new Uint8Array(length),
    });
    expect(encodeSpdyFrame(data(0xff_ffff))).toHaveLength(0xff_ffff + 8);
    expect(thrownBy(() => encodeSpdyFrame(data(0x100_0000))).code).toBe('limit');
  });

  it.each<SpdyFrame>([
    { kind: 'data', streamId: 0, fin: false, payload: hex('') },
    { kind: 'data', streamId: 0x8000_0000, fin: false, payload: hex('') },
    { kind: 'data', streamId: 1.5, fin: false, payload: hex('') },
    { kind: 'data', streamId: -1, fin: false, payload: hex('') },
    { kind: 'synReply', streamId: 0, fin: false, block: hex('') },
    { kind: 'rstStream', streamId: 1, status: 0 },
    { kind: 'ping', id: 0x1_0000_0000 },
    { kind: 'windowUpdate', streamId: 1, delta: 0 },
    {
      kind: 'synStream',
      streamId: 1,
      associatedTo: 0,
      priority: 8,
      fin: false,
      unidirectional: false,
      block: hex(''),
    },
  ])('refuses a field out of its range: $kind', (bad) => {
    expect(thrownBy(() => encodeSpdyFrame(bad)).code).toBe('malformed');
  });
});
