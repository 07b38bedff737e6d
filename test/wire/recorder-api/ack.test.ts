import { describe, expect, it } from 'vitest';
import { createAckParser, encodeAck, MAX_ACK_BYTES, type Ack } from '../../../src/wire/recorder-api/ack.ts';
import { cut, thrownBy, utf8 } from '../bytes.ts';

const parse = (...texts: readonly string[]): readonly Ack[] => {
  const parser = createAckParser();
  return texts.flatMap((text) => parser.push(utf8(text)));
};

describe('ack frames', () => {
  it('reads the stream of a recorder', () => {
    expect(parse('{}\n{"ack":412}\n', '{"ack":444}\n{"ack":', '444}\n')).toEqual([
      { ack: 0 },
      { ack: 412 },
      { ack: 444 },
      { ack: 444 },
    ]);
  });

  it('takes any whitespace or none between frames', () => {
    expect(parse('{"ack":1}{"ack":2}\r\n\t {"ack":3}')).toEqual([{ ack: 1 }, { ack: 2 }, { ack: 3 }]);
  });

  it('reads why a recorder gives up', () => {
    expect(parse('{"ack":444}\n{"error":"no space left on device"}\n').at(-1)).toEqual({
      ack: 0,
      error: 'no space left on device',
    });
    expect(parse('{"ack":7,"error":""}')).toEqual([{ ack: 7 }]);
  });

  it('has both counts of an upload of frames', () => {
    expect(parse('{"ack":9,"frames":7}{"ack":9}')).toEqual([{ ack: 9, frames: 7 }, { ack: 9 }]);
  });

  const WATCH = { id: 'o-1', action: 'watch', by: 'bob@example.com', reason: '' } as const;
  it.each([
    { nodeId: 'nBOB', user: 'bob@example.com', tags: [] },
    { nodeId: 'nPAGER', tags: ['tag:pager'] },
  ])('have a watcher %j', (watcher) => {
    const order = { ...WATCH, watcher };
    expect(parse(encodeAck({ ack: 7, order }))).toEqual([{ ack: 7, order }]);
    expect(parse(JSON.stringify({ order: { ...order, action: 'end', odd: 1 } }))).toEqual([
      { ack: 0, order: { ...WATCH, action: 'end' } },
    ]);
  });

  it.each([
    undefined,
    'bob',
    {},
    { nodeId: 1 },
    { nodeId: 'n', user: ['bob@example.com'] },
    { nodeId: 'n', tags: 'tag:pager' },
    { nodeId: 'n', tags: [1] },
    { nodeId: 'n', tags: Array.from({ length: 101 }, () => 'tag:pager') },
    { nodeId: 'n'.repeat(301) },
  ])('rejects an order to watch by %j', (watcher) => {
    expect(thrownBy(() => parse(JSON.stringify({ order: { ...WATCH, watcher } }))).code).toBe('malformed');
  });

  it('passes over keys of later versions', () => {
    expect(parse('{"ack":1,"durable":true}')).toEqual([{ ack: 1 }]);
  });

  it('writes what Go writes', () => {
    expect(encodeAck({})).toBe('{}\n');
    expect(encodeAck({ ack: 0, error: '' })).toBe('{}\n');
    expect(encodeAck({ ack: 412 })).toBe('{"ack":412}\n');
    expect(encodeAck({ ack: 81_920, frames: 65_011 })).toBe('{"ack":81920,"frames":65011}\n');
    expect(encodeAck({ ack: 0, frames: 0 })).toBe('{}\n');
    expect(encodeAck({ ack: 1, error: 'full' })).toBe('{"ack":1,"error":"full"}\n');
  });

  it.each([-1, 0.5, Number.NaN, 2 ** 53])('does not write %d', (ack) => {
    expect(thrownBy(() => encodeAck({ ack })).code).toBe('malformed');
    expect(thrownBy(() => encodeAck({ frames: ack })).code).toBe('malformed');
  });

  it.each([
    '{"ack":-1}',
    '{"ack":1.5}',
    '{"ack":"1"}',
    '{"ack":1,"frames":-1}',
    '{"ack":1,"frames":"1"}',
    '{"ack":9007199254740993}',
    '{"error":7}',
    '{"ack":}',
    'null',
    '<html>',
    '[{}]',
  ])('refuses %s and is dead', (text) => {
    const parser = createAckParser();
    expect(thrownBy(() => parser.push(utf8(text))).code).toBe('malformed');
    expect(thrownBy(() => parser.push(utf8('{}'))).code).toBe('dead');
  });

  it('takes a frame of the limit and refuses one byte more', () => {
    const sized = (bytes: number): string => `{"error":"${'x'.repeat(bytes - 12)}"}`;
    expect(parse(sized(MAX_ACK_BYTES))).toHaveLength(1);
    expect(thrownBy(() => parse(sized(MAX_ACK_BYTES + 1))).code).toBe('limit');
    expect(createAckParser(9).push(utf8('{"ack":1}'))).toHaveLength(1);
    expect(thrownBy(() => createAckParser(8).push(utf8('{"ack":1}'))).code).toBe('limit');
  });

  it('is refused for the first thing that is wrong with it, in one chunk or many', () => {
    const bytes = utf8(`{"ack":"x"}{"error":"${'x'.repeat(40)}"}`);
    const feed = (segments: readonly Uint8Array[]): string => {
      const parser = createAckParser(20);
      return thrownBy(() => segments.flatMap((segment) => parser.push(segment))).code ?? '';
    };
    expect(feed([bytes])).toBe('malformed');
    expect(feed(cut(bytes, [11]))).toBe('malformed');
  });
});
