import { describe, expect, it } from 'vitest';
import { createJsonObjectSplitter } from '../../src/wire/json-objects.ts';
import { concat, cut, thrownBy, utf8 } from './bytes.ts';

const split = (segments: readonly Uint8Array[], max = 1000): readonly string[] => {
  const splitter = createJsonObjectSplitter(max, (text) => text);
  return segments.flatMap((segment) => splitter.push(segment));
};

describe('splitting a stream of JSON objects', () => {
  it('takes any whitespace or none between objects', () => {
    expect(split([utf8(' {"a":1}{"b":2}\r\n\t{}  ')])).toEqual(['{"a":1}', '{"b":2}', '{}']);
  });

  it('is not confused by braces, brackets, quotes and escapes in strings', () => {
    const objects = ['{"a":"}{][\\"\\\\"}', '{"[":[{"]":["{"]}]}', '{"é€😀":"\\u007d"}'];
    expect(split([utf8(objects.join(''))])).toEqual(objects);
  });

  it('replaces bytes that are not UTF-8, as Go does, and starts each object afresh', () => {
    expect(split([concat(utf8('{"a":"'), Uint8Array.of(0xe2, 0x82), utf8('"}{}'))])).toEqual([
      '{"a":"\ufffd"}',
      '{}',
    ]);
  });

  it('takes an object of the limit and refuses one byte more, in one chunk or many', () => {
    const object = utf8('{"a":12}');
    expect(split([object], 8)).toHaveLength(1);
    expect(split(cut(object, [3, 6]), 8)).toHaveLength(1);
    expect(split([concat(object, object)], 8)).toHaveLength(2);
    expect(thrownBy(() => split([object], 7)).code).toBe('limit');
    expect(thrownBy(() => split(cut(object, [3, 6]), 7)).code).toBe('limit');
    expect(thrownBy(() => split([utf8('{"a":123')], 7)).code).toBe('limit');
  });

  it.each(['null', '[]', '1', ',', '{}]', '{},{}', '\ufeff{}'])('refuses %j', (text) => {
    expect(thrownBy(() => split([utf8(text)])).code).toBe('malformed');
  });

  it('is dead after a failure', () => {
    const splitter = createJsonObjectSplitter(100, (text) => text);
    thrownBy(() => splitter.push(utf8('x')));
    expect(thrownBy(() => splitter.push(utf8('{}'))).code).toBe('dead');
  });
});
