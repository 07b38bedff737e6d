import { describe, expect, it } from 'vitest';
import {
  createResizeParser,
  MAX_RESIZE_BYTES,
  type TerminalSize,
} from '../../../src/wire/remotecommand/resize.ts';
import { thrownBy, utf8 } from '../bytes.ts';

const parse = (...texts: readonly string[]): readonly TerminalSize[] => {
  const parser = createResizeParser();
  return texts.flatMap((text) => parser.push(utf8(text)));
};

describe('resize', () => {
  it('reads what kubectl sends', () => {
    expect(parse('{"Width":100,"Height":30}\n')).toEqual([{ columns: 100, rows: 30 }]);
  });

  it.each([
    '{"width":10,"height":20}',
    '{"WIDTH":10,"hEiGhT":20}',
    ' { "Height" : 20 , "Width" : 10 } ',
    '{"Width":10,"Height":20,"Depth":{"a":[1]},"x":null}',
  ])('reads keys of any case, in any order, with others beside them: %s', (text) => {
    expect(parse(text)).toEqual([{ columns: 10, rows: 20 }]);
  });

  it('reads several objects of one payload and one object of several payloads', () => {
    expect(parse('{"Width":1,"Height":2}{"Width":3,"Height":4}\n', '{"Wid', 'th":5,"He', 'ight":6}')).toEqual(
      [
        { columns: 1, rows: 2 },
        { columns: 3, rows: 4 },
        { columns: 5, rows: 6 },
      ],
    );
  });

  it('takes a missing or null size as 0, as the kubelet does', () => {
    expect(parse('{}', '{\n}', '{"Depth":1}', '{"Width":7}', '{"Width":null,"Height":9}')).toEqual([
      { columns: 0, rows: 0 },
      { columns: 0, rows: 0 },
      { columns: 0, rows: 0 },
      { columns: 7, rows: 0 },
      { columns: 0, rows: 9 },
    ]);
  });

  it('does not mistake what is inside another member for a size', () => {
    expect(parse('{"x":{"Width":1,"Width":2},"Width":3,"y":"\\"Width\\":4","Height":5}')).toEqual([
      { columns: 3, rows: 5 },
    ]);
  });

  it('takes 65535 and refuses 65536', () => {
    expect(parse('{"Width":65535,"Height":0}')).toEqual([{ columns: 65_535, rows: 0 }]);
    expect(thrownBy(() => parse('{"Width":65536,"Height":1}')).code).toBe('malformed');
  });

  it.each([
    '{"Width":080,"Height":24}',
    '{"Width":80,"Height":24,}',
    '{"w\\u0069dth":-1}',
    '{\v}',
    '{"Width":-1}',
    '{"Height":1.5}',
    '{"Width":"80"}',
    '{"Width":[80]}',
    '{"Width":true}',
    '{"Width":99999999999999999999}',
    '{"Width":80,"width":90}',
    '{"Width":80,"Width":90}',
    '{"Width":80,"W\\u0069dth":null}',
    '{"Width":true,"Width":80}',
    '{"Width":8e1}',
    '{"Width":80.0}',
    '{"Height":-0}',
    '{"Width":}',
    '[80,24]',
    '80x24',
  ])('refuses %s', (text) => {
    const parser = createResizeParser();
    expect(thrownBy(() => parser.push(utf8(text))).code).toBe('malformed');
    expect(thrownBy(() => parser.push(utf8('{}'))).code).toBe('dead');
  });

  it('takes an object of the limit and refuses one byte more', () => {
    const sized = (bytes: number): string => `{"Width":1,"x":"${'.'.repeat(bytes - 18)}"}`;
    expect(sized(100)).toHaveLength(100);
    expect(parse(sized(MAX_RESIZE_BYTES))).toHaveLength(1);
    expect(thrownBy(() => parse(sized(MAX_RESIZE_BYTES + 1))).code).toBe('limit');
    expect(thrownBy(() => createResizeParser(9).push(utf8('{"Width":1}'))).code).toBe('limit');
  });
});
