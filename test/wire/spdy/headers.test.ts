import { createHash } from 'node:crypto';
import { constants, deflateRawSync, inflateSync } from 'node:zlib';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { SPDY_DICTIONARY } from '../../../src/wire/spdy/dictionary.ts';
import { createSpdyParser } from '../../../src/wire/spdy/frame.ts';
import {
  createHeaderDeflater,
  createHeaderInflater,
  type HeaderInflater,
} from '../../../src/wire/spdy/headers.ts';
import { concat, hex, list, thrownBy, utf8 } from '../bytes.ts';
import { createZlibPeer, DEFLATES, headerText, PREAMBLE, uint32 } from './zlib-peer.ts';

const inflater = (limits = {}): HeaderInflater => createHeaderInflater(limits);

/** Encodes a text as a stored block, as in the first header block of a direction. */
function stored(text: Uint8Array): Uint8Array {
  const size = hex(Buffer.from([text.length & 255, text.length >> 8]).toString('hex'));
  return concat(
    PREAMBLE,
    hex('00'),
    size,
    new Uint8Array(size.map((byte) => byte ^ 0xff)),
    text,
    hex('000000ffff'),
  );
}

/**
 * Returns a block with a match that starts before the dictionary, because zlib has a longer history than the decoder.
 */
function farBack(): Uint8Array {
  const text = headerText([['streamtype', 'a-value-that-only-the-old-history-has']]);
  const dictionary = concat(text, new Uint8Array(20_000));
  return new Uint8Array(deflateRawSync(text, { level: 9, dictionary, finishFlush: constants.Z_SYNC_FLUSH }));
}

const name = fc.stringMatching(/^[!-@[-~]{1,12}$/);
const value = fc.uint8Array({ maxLength: 20 }).map((bytes) => Buffer.from(bytes).toString('latin1'));
const headers = fc.uniqueArray(fc.tuple(name, value), { maxLength: 8, selector: ([key]) => key });

describe('SPDY header blocks of real peers', () => {
  it.each([
    [
      'error',
      '2',
      '80030001000000280000000100000000000078f9e3c6a7c202a62346703a2b294a4dcc851625aca9a08006000000ffff',
    ],
    [
      'stdin',
      '4',
      '80030001000000290000000300000000000078f9e3c6a7c202a62346703a2b294a4dcc851625acc525c03c01000000ffff',
    ],
    [
      'stdout',
      '6',
      '800300010000002a0000000500000000000078f9e3c6a7c202a62346703a2b294a4dcc851625c0149b925f5a02000000ffff',
    ],
    [
      'stderr',
      '8',
      '800300010000002a0000000700000000000078f9e3c6a7c202a62346703a2b294a4dcc851625c0149b925a5404000000ffff',
    ],
    [
      'resize',
      'a',
      '800300010000002a0000000900000000000078f9e3c6a7c202a62346703a2b294a4dcc8516256cc0c202183b00000000ffff',
    ],
  ])('reads the stream type %s of a first frame', (role, _id, frame) => {
    const [event] = createSpdyParser().push(hex(frame));
    expect(event?.kind === 'synStream' && [...inflater().decode(event.block)]).toEqual([
      ['streamtype', role],
    ]);
  });

  it('reads the frames of one connection, which share a history', () => {
    const frames = [
      '80030001000000280000000100000000000078f9e3c6a7c202a62346703a2b294a4dcc851625aca9a08006000000ffff',
      '800300010000001700000003000000000000c22e555c02cc2e00000000ffff',
      '800300010000001900000005000000000000c22a054ce729f9a52500000000ffff',
      '800300010000001700000007000000000000c22e072c7e80f10d000000ffff',
    ];
    const parser = createSpdyParser();
    const context = inflater();
    const roles = frames.flatMap((frame) =>
      parser
        .push(hex(frame))
        .map((event) => 'block' in event && context.decode(event.block).get('streamtype')),
    );
    expect(roles).toEqual(['error', 'stdin', 'stdout', 'resize']);
  });

  it('needs every block in order: one left out loses the context', () => {
    const peer = createZlibPeer({ level: 9, strategy: constants.Z_FIXED });
    const long = 'long-enough-to-be-a-match-0123456789';
    const blocks = ['a', 'b', 'b'].map((role) => peer.write(headerText([['streamtype', `${role}-${long}`]])));
    const context = inflater();
    context.decode(blocks[0]!);
    let skipped: unknown;
    try {
      skipped = context.decode(blocks[2]!).get('streamtype');
    } catch {
      skipped = 'refused';
    }
    expect(skipped).not.toBe(`b-${long}`);
  });

  it('reads a block without headers', () => {
    expect(inflater().decode(stored(uint32(0)))).toEqual(new Map());
  });

  it('refuses a block of no bytes, first or later, as Go does', () => {
    expect(thrownBy(() => inflater().decode(hex(''))).code).toBe('malformed');
    const context = inflater();
    context.decode(stored(uint32(0)));
    expect(thrownBy(() => context.decode(hex(''))).code).toBe('malformed');
  });

  it('reads two headers, and several values joined by NUL', () => {
    const text = headerText([
      ['foo', 'bar'],
      ['bar', 'baz\0qux'],
    ]);
    expect([...inflater().decode(stored(text))]).toEqual([
      ['foo', 'bar'],
      ['bar', 'baz\0qux'],
    ]);
  });

  it('maps bytes of a value to code units one to one', () => {
    const text = concat(uint32(1), uint32(1), utf8('a'), uint32(3), hex('c3a9ff'));
    expect(inflater().decode(stored(text)).get('a')).toBe('\u00c3\u00a9\u00ff');
  });
});

describe('SPDY header inflater and zlib', () => {
  it('reads what zlib writes, block after block, with every kind of deflate block', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...DEFLATES),
        fc.array(headers, { minLength: 1, maxLength: 12 }),
        (deflate, blocks) => {
          const peer = createZlibPeer(deflate);
          const context = inflater();
          for (const block of blocks) {
            const text = concat(
              uint32(block.length),
              ...block.flatMap((pair) =>
                pair.flatMap((part) => [
                  uint32(part.length),
                  hex(Buffer.from(part, 'latin1').toString('hex')),
                ]),
              ),
            );
            expect([...context.decode(peer.write(text))]).toEqual(block);
          }
        },
      ),
      { numRuns: 60 },
    );
  });

  it('keeps exactly the last 32 KiB as history', () => {
    for (const deflate of DEFLATES) {
      const peer = createZlibPeer(deflate);
      const context = inflater({ maxInflatedBytes: 64 * 1024 });
      for (let round = 0; round < 24; round += 1) {
        const noise = Array.from({ length: 3000 }, (_, index) =>
          String.fromCharCode(33 + ((index * index + round) % 90)),
        );
        const block: [string, string][] = [[`round-${round}`, noise.join('')]];
        expect([...context.decode(peer.write(headerText(block)))]).toEqual(block);
      }
      const huge: [string, string][] = [['huge', 'x'.repeat(40_000)]];
      expect([...context.decode(peer.write(headerText(huge)))]).toEqual(huge);
      expect([...context.decode(peer.write(headerText(huge)))]).toEqual(huge);
    }
  });
});

describe('SPDY header history', () => {
  it('reaches back as far as zlib does', () => {
    const peer = createZlibPeer({ level: 9, strategy: constants.Z_DEFAULT_STRATEGY });
    const context = inflater({ maxInflatedBytes: 64 * 1024 });
    const marker = createHash('sha512').update('marker').digest('base64');
    // returns text without repetitions, so that only the test determines the distance to the marker
    const noise = (bytes: number): string =>
      createHash('shake256', { outputLength: bytes }).update('noise').digest('latin1');
    const send = (value: Uint8Array): string | undefined =>
      context
        .decode(peer.write(concat(uint32(1), uint32(1), utf8('n'), uint32(value.length), value)))
        .get('n');
    send(utf8(marker));
    send(Buffer.from(noise(32_768 - 262 - marker.length - 40), 'latin1'));
    const block = peer.write(concat(uint32(1), uint32(1), utf8('n'), uint32(marker.length), utf8(marker)));
    expect(block.length).toBeLessThan(marker.length); // a shorter block proves that zlib refers to the first marker
    expect(context.decode(block).get('n')).toBe(marker);
  });
});

describe('SPDY header deflater', () => {
  it('is read by one continuous zlib inflater', () => {
    fc.assert(
      fc.property(fc.array(headers, { minLength: 1, maxLength: 6 }), (blocks) => {
        const deflater = createHeaderDeflater();
        const stream = concat(...blocks.map((block) => deflater.encode(block)));
        const text = inflateSync(stream, {
          dictionary: SPDY_DICTIONARY,
          finishFlush: constants.Z_SYNC_FLUSH,
        });
        const expected = blocks.map((block) =>
          concat(
            uint32(block.length),
            ...block.flatMap((pair) =>
              pair.flatMap((part) => [uint32(part.length), hex(Buffer.from(part, 'latin1').toString('hex'))]),
            ),
          ),
        );
        expect(list(text)).toEqual(list(concat(...expected)));
      }),
      { numRuns: 50 },
    );
  });

  it('round-trips, with the preamble on the first block only and a sync flush on each', () => {
    const deflater = createHeaderDeflater();
    const context = inflater();
    const first = deflater.encode([['streamtype', 'stdout']]);
    const second = deflater.encode([]);
    expect(list(first.subarray(0, 6))).toEqual(list(PREAMBLE));
    expect(list(second)).toEqual(list(hex('00 0400 fbff 00000000', '00 0000 ffff')));
    expect([...context.decode(first)]).toEqual([['streamtype', 'stdout']]);
    expect([...context.decode(second)]).toEqual([]);
  });

  it('splits what is longer than a stored block may be', () => {
    const long: [string, string][] = [['long', 'v'.repeat(70_000)]];
    const block = createHeaderDeflater().encode(long);
    expect([...inflater({ maxInflatedBytes: 80_000 }).decode(block)]).toEqual(long);
  });

  it.each([
    ['a capital letter', [['Streamtype', 'x']]],
    ['an empty name', [['', 'x']]],
    [
      'a name that occurs twice',
      [
        ['a', 'x'],
        ['a', 'y'],
      ],
    ],
    ['a value that does not consist of bytes', [['a', '\u0100']]],
  ] as [string, [string, string][]][])('refuses %s', (_name, bad) => {
    expect(thrownBy(() => createHeaderDeflater().encode(bad)).code).toBe('malformed');
  });
});

describe('SPDY header limits', () => {
  it('takes 64 headers and refuses 65', () => {
    const many = (count: number): Uint8Array =>
      stored(headerText(Array.from({ length: count }, (_, index) => [`n${index}`, ''])));
    expect(inflater().decode(many(64)).size).toBe(64);
    expect(thrownBy(() => inflater().decode(many(65))).code).toBe('limit');
  });

  it('takes as many blocks as the limit says and refuses the next one', () => {
    const context = inflater({ maxBlocks: 2 });
    const deflater = createHeaderDeflater();
    context.decode(deflater.encode([]));
    context.decode(deflater.encode([]));
    expect(thrownBy(() => context.decode(deflater.encode([]))).code).toBe('limit');
  });

  it('refuses a count of 2^32-1 without making room for it', () => {
    expect(thrownBy(() => inflater().decode(stored(uint32(0xffff_ffff)))).code).toBe('limit');
  });

  it('takes a block of the limit and refuses one byte more', () => {
    const sized = (bytes: number): Uint8Array => stored(headerText([['n', 'v'.repeat(bytes - 13)]]));
    expect(inflater({ maxInflatedBytes: 100 }).decode(sized(100)).size).toBe(1);
    expect(thrownBy(() => inflater({ maxInflatedBytes: 100 }).decode(sized(101))).code).toBe('limit');
    const long = concat(PREAMBLE, new Uint8Array(1125));
    expect(() => inflater({ maxInflatedBytes: 100 }).decode(long)).toThrow('too long');
    const peer = createZlibPeer({ level: 9, strategy: constants.Z_DEFAULT_STRATEGY });
    expect(inflater().decode(peer.write(headerText([['n', 'v'.repeat(8192 - 13)]]))).size).toBe(1);
    const other = createZlibPeer({ level: 9, strategy: constants.Z_DEFAULT_STRATEGY });
    const over = other.write(headerText([['n', 'v'.repeat(8192 - 12)]]));
    expect(thrownBy(() => inflater().decode(over)).code).toBe('limit');
  });

  it('refuses a bomb without inflating it', () => {
    const bomb = createZlibPeer({ level: 9, strategy: constants.Z_DEFAULT_STRATEGY }).write(
      new Uint8Array(20_000_000),
    );
    const before = process.memoryUsage().arrayBuffers;
    expect(thrownBy(() => inflater().decode(bomb)).code).toBe('limit');
    expect(process.memoryUsage().arrayBuffers - before).toBeLessThan(5_000_000);
  });
});

describe('SPDY header blocks that are refused', () => {
  const good = headerText([['streamtype', 'stdin']]);

  it.each<[string, Uint8Array]>([
    ['shorter than the preamble', hex('78f9e3c6a7')],
    ['without a dictionary', concat(hex('7801 00000000'), stored(good).subarray(6))],
    ['with a wrong check value', concat(hex('78f8 e3c6a7c2'), stored(good).subarray(6))],
    ['with a wrong method', concat(hex('77f8 e3c6a7c2'), stored(good).subarray(6))],
    ['with a window over 32 KiB', concat(hex('8838 e3c6a7c2'), stored(good).subarray(6))],
    ['with another dictionary', concat(hex('78f9 e3c6a7c3'), stored(good).subarray(6))],
    ['of no deflate data', PREAMBLE],
    ['without a sync flush', stored(good).subarray(0, -5)],
    ['cut short', stored(good).subarray(0, -1)],
    ['with a broken stored length', concat(PREAMBLE, hex('00 0400 fbfe 00000000 00 0000 ffff'))],
    ['that refers back too far', concat(PREAMBLE, farBack())],
    ['of 3 bytes', stored(hex('000000'))],
    ['with a name length past the end', stored(concat(uint32(1), uint32(5), utf8('name')))],
    ['with a name length of 2^32-1', stored(concat(uint32(1), uint32(0xffff_ffff), utf8('name')))],
    ['without a value', stored(concat(uint32(1), uint32(1), utf8('a')))],
    [
      'with a value length past the end',
      stored(concat(uint32(1), uint32(1), utf8('a'), uint32(2), utf8('v'))),
    ],
    ['with fewer headers than it says', stored(headerText([['a', 'v']], 2))],
    [
      'with more headers than it says',
      stored(
        headerText(
          [
            ['a', 'v'],
            ['b', 'v'],
          ],
          1,
        ),
      ),
    ],
    ['with a capital in a name', stored(headerText([['Streamtype', 'stdin']]))],
    ['with an empty name', stored(headerText([['', 'stdin']]))],
    ['with a name that is not ASCII', stored(headerText([['é', 'stdin']]))],
    [
      'with a name that occurs twice',
      stored(
        headerText([
          ['streamtype', 'stdin'],
          ['streamtype', 'stdout'],
        ]),
      ),
    ],
  ])('a block %s', (_name, block) => {
    const context = inflater();
    const first = thrownBy(() => context.decode(block));
    expect(first.code).toBe('malformed');
    expect(thrownBy(() => context.decode(stored(good)))).toMatchObject({ code: 'dead', cause: first });
    expect(thrownBy(() => context.decode(hex('')))).toMatchObject({ code: 'dead' });
  });

  it('a second header block inside the first, which a continuous reader would take for the next stream', () => {
    const both = concat(good, headerText([['streamtype', 'stdout']]));
    expect(thrownBy(() => inflater().decode(stored(both))).code).toBe('malformed');
  });

  it('a block that ends inside a stored block, whose rest a continuous reader would find in the next frame', () => {
    const last = concat(uint32(1), utf8('a'), uint32(4), hex('0000ffff'));
    const text = concat(uint32(2), good.subarray(4), last);
    const longer = hex(Buffer.from([(text.length + 40) & 255, 0]).toString('hex'));
    const open = concat(PREAMBLE, hex('00'), longer, new Uint8Array(longer.map((byte) => byte ^ 0xff)), text);
    expect(thrownBy(() => inflater().decode(open)).code).toBe('malformed');
  });

  it('a block with the preamble again', () => {
    const context = inflater();
    context.decode(stored(good));
    expect(thrownBy(() => context.decode(stored(good))).code).toBe('malformed');
  });
});
