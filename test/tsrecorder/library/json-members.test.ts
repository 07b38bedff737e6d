import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { readJsonObject, spliceMembers } from '../../../src/tsrecorder/library/json-members.ts';

const object = fc.dictionary(fc.string({ maxLength: 8 }), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 8 });
const indent = fc.constantFrom('', ' ', '\t', '\n');

describe('splicing a JSON object', () => {
  it('sets fields and leaves everything else unchanged', () => {
    fc.assert(
      fc.property(object, object, indent, (original, changes, space) => {
        const parsed = readJsonObject(JSON.stringify(original, undefined, space));
        const texts = new Map(Object.entries(changes).map(([name, value]) => [name, JSON.stringify(value)]));
        const spliced = JSON.parse(spliceMembers(parsed!, texts));
        expect(spliced).toEqual(JSON.parse(JSON.stringify({ ...original, ...changes })));
      }),
      { numRuns: 500 },
    );
  });

  it('keeps the bytes of the other fields', () => {
    const text = ' {"id" : 16793133573424021, "s":"a\\"}{\\\\" ,"x":[1,{"id":2}] , "d\\u0073t":null}\n';
    const spliced = spliceMembers(
      readJsonObject(text)!,
      new Map([
        ['dst', '"n"'],
        ['id', '1'],
      ]),
    );
    expect(spliced).toBe('{"id" : 1, "s":"a\\"}{\\\\" ,"x":[1,{"id":2}] , "d\\u0073t":"n"}');
  });

  it('fills an empty object', () => {
    expect(
      spliceMembers(
        readJsonObject('{ }')!,
        new Map([
          ['a', '1'],
          ['b', '2'],
        ]),
      ),
    ).toBe('{ "a":1,"b":2}');
  });

  it.each(['', '[]', 'null', '1', '{"a":1', '{"a":1}{', '{"a":1,"a":2}', '{"a":1,"\\u0061":2}'])(
    'refuses %s',
    (text) => {
      expect(readJsonObject(text)).toBeUndefined();
    },
  );
});
