import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { readConfigFile } from '../../src/config/file.ts';
import {
  flag,
  byteSize,
  listenAddress,
  optionalListenAddress,
  oneOf,
  optionalText,
  orAuto,
  positiveNumber,
  text,
  wholeNumber,
} from '../../src/config/values.ts';

describe('a value', () => {
  it.each<[string, (raw: unknown) => unknown, unknown, unknown]>([
    ['a text', text, 'a', 'a'],
    ['a text that may be empty', optionalText, '', undefined],
    ['a text that may be missing', optionalText, undefined, undefined],
    ['a text that may be empty and is not', optionalText, 'a', 'a'],
    ['a positive number from the environment', positiveNumber(10), '2.5', 2.5],
    ['a positive number from a file', positiveNumber(10), 10, 10],
    ['the least whole number', wholeNumber(1, 10), '1', 1],
    ['the greatest whole number', wholeNumber(1, 10), 10, 10],
    ['yes', flag, 'Yes', true],
    ['off', flag, 'off', false],
    ['true in a file', flag, true, true],
    ['one word of several', oneOf('a', 'b'), 'b', 'b'],
    ['the smallest size', byteSize(0, 10), '0', 0],
    ['auto', orAuto(text), 'auto', undefined],
    ['something else than auto', orAuto(text), 'a', 'a'],
    ['no listener', optionalListenAddress, 'off', undefined],
    ['no listener in a file', optionalListenAddress, false, undefined],
    ['a listener that may be off', optionalListenAddress, ':80', { host: '::', port: 80 }],
    ['the last port', listenAddress, '127.0.0.1:65535', { host: '127.0.0.1', port: 65_535 }],
  ])('%s', (_what, parse, raw, value) => {
    expect(parse(raw)).toEqual(value);
  });

  it.each<[(raw: unknown) => unknown, unknown, RegExp]>([
    [text, ' ', /a text is expected/],
    [text, 5, /a text is expected/],
    [optionalText, ' ', /a text is expected/],
    [positiveNumber(10), '', /a number above 0 and up to 10/],
    [positiveNumber(10), ' ', /a number above 0/],
    [positiveNumber(10), 'x', /a number above 0/],
    [positiveNumber(10), '0', /a number above 0/],
    [positiveNumber(10), -1, /a number above 0/],
    [positiveNumber(10), 10.1, /a number above 0/],
    [positiveNumber(10), Number.POSITIVE_INFINITY, /a number above 0/],
    [positiveNumber(10), null, /a number above 0/],
    [flag, 'maybe', /true or false is expected/],
    [flag, 1, /true or false is expected/],
    [oneOf('a', 'b'), 'c', /one of a, b is expected/],
    [wholeNumber(0, 10), 1.5, /a whole number from 0 to 10/],
    [wholeNumber(0, 10), '1.5', /a whole number/],
    [wholeNumber(0, 10), null, /a whole number/],
    [wholeNumber(0, 10), -1, /a whole number/],
    [wholeNumber(0, 10), 11, /a whole number/],
    [listenAddress, ':65536', /host:port is expected/],
  ])('is refused: %o of %o', (parse, raw, message) => {
    expect(() => parse(raw)).toThrow(message);
  });
});

describe('a configuration file', () => {
  it('has at most 1 MiB', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tailcast-config-'));
    const path = join(folder, 'tailcast.yaml');
    try {
      const padding = (bytes: number): string => `mode: auth\n#${'x'.repeat(bytes - 12)}`;
      writeFileSync(path, padding(2 ** 20));
      expect(readConfigFile(path).entries.get('mode')).toBe('auth');
      writeFileSync(path, padding(2 ** 20 + 1));
      expect(() => readConfigFile(path)).toThrow('is larger than 1 MiB');
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
