import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  encodeJson,
  isJsonArray,
  isJsonObject,
  jsonField,
  jsonOrUndefined,
  parseJson,
  parseJsonObject,
  type JsonValue,
} from '../../src/wire/json-value.ts';
import { WireError } from '../../src/wire/wire-error.ts';
import { thrownBy } from './bytes.ts';

describe('exact JSON', () => {
  it('reads and writes integers of 64 bits digit for digit', () => {
    const text = '{"id":16793133573424020,"max":9223372036854775807,"min":-9223372036854775808,"small":1}';
    expect(parseJson(text)).toEqual({
      id: 16793133573424020n,
      max: 9223372036854775807n,
      min: -9223372036854775808n,
      small: 1,
    });
    expect(encodeJson(parseJson(text))).toBe(text);
  });

  it('takes digits for a number only where a number stands', () => {
    const long = '9007199254740993';
    const text = String.raw`{"${long}":"${long}","a\"${long}":["\\",${long},-${long},"${long}\\"],"b":1e20,"c":${long}.5}`;
    expect(parseJson(text)).toEqual({
      [long]: long,
      [`a"${long}`]: ['\\', BigInt(long), -BigInt(long), `${long}\\`],
      b: 1e20,
      c: Number(`${long}.5`),
    });
    expect(parseJson(long)).toBe(BigInt(long));
    expect(parseJson('[9007199254740991,-9007199254740991]')).toEqual([
      Number.MAX_SAFE_INTEGER,
      Number.MIN_SAFE_INTEGER,
    ]);
    for (const bad of [`{${long}:1}`, `[0${long}]`, `${long}"`, `{"a":${long}`, `'${long}'`])
      expect(() => parseJson(bad), bad).toThrow(WireError);
  });

  it('keeps what is no integer a number', () => {
    expect(parseJson('[1.5,-0.25,1e3,9007199254740991,1e300]')).toEqual([
      1.5, -0.25, 1000, 9007199254740991, 1e300,
    ]);
  });

  it('says what JSON.parse and JSON.stringify say', () => {
    fc.assert(
      fc.property(fc.json(), (text) => {
        const value: unknown = JSON.parse(text);
        const rounded = JSON.stringify(parseJson(text), (_key, item: unknown) =>
          typeof item === 'bigint' ? Number(item) : item,
        );
        expect(JSON.parse(rounded)).toEqual(value);
        expect(JSON.parse(encodeJson(parseJson(text)))).toEqual(value);
      }),
    );
  });

  it('treats keys like __proto__ as keys', () => {
    const text = '{"__proto__":{"a":1},"constructor":2}';
    const object = parseJsonObject(text);
    expect(Object.keys(object)).toEqual(['__proto__', 'constructor']);
    expect(encodeJson(object)).toBe(text);
    expect(jsonField(object, 'toString')).toBeUndefined();
    expect(jsonField(parseJsonObject('{"a":null}'), 'a')).toBeUndefined();
    expect(jsonField(object, 'constructor')).toBe(2);
  });

  it('tells objects and lists apart', () => {
    expect([{}, [], null, 'a', 1, undefined].map(isJsonObject)).toEqual([
      true,
      false,
      false,
      false,
      false,
      false,
    ]);
    expect([{}, [], null].map(isJsonArray)).toEqual([false, true, false]);
  });

  const nested = (depth: number): string => '['.repeat(depth) + ']'.repeat(depth);

  it('takes a value nested 64 deep and refuses one that is deeper', () => {
    const list = parseJson(nested(65));
    expect(encodeJson(list)).toBe(nested(65));
    expect(thrownBy(() => parseJson(nested(66))).code).toBe('limit');
    expect(thrownBy(() => encodeJson([list])).code).toBe('limit');
    expect(['limit', 'malformed']).toContain(thrownBy(() => parseJson(nested(500_000))).code);
  });

  it.each(['', '{', '{"a":1}x', '{a:1}', 'undefined', '[1,]', '01'])('refuses %j', (text) => {
    expect(thrownBy(() => parseJson(text)).code).toBe('malformed');
  });

  it.each(['[]', 'null', '"a"', '1', 'true'])('refuses %j where an object has to be', (text) => {
    expect(thrownBy(() => parseJsonObject(text)).code).toBe('malformed');
  });

  it.each<JsonValue>([Number.NaN, Number.POSITIVE_INFINITY, [{ a: -Infinity }]])(
    'does not write %j',
    (value) => {
      expect(thrownBy(() => encodeJson(value)).code).toBe('malformed');
    },
  );
});

describe('text that may be no JSON', () => {
  it('is what JSON.parse makes of it, or undefined', () => {
    expect(jsonOrUndefined('{"a":[1]}')).toEqual({ a: [1] });
    expect(jsonOrUndefined('null')).toBeNull();
    expect(['', '{', 'undefined', '[1,]'].map(jsonOrUndefined)).toEqual([
      undefined,
      undefined,
      undefined,
      undefined,
    ]);
  });
});
