import { describe, expect, it } from 'vitest';
import { decodeBase64 } from '../../src/wire/base64.ts';
import { list, thrownBy, utf8 } from './bytes.ts';

describe('base64', () => {
  it.each([
    ['', ''],
    ['f', 'Zg=='],
    ['fo', 'Zm8='],
    ['foo', 'Zm9v'],
    ['foob', 'Zm9vYg=='],
    ['fooba', 'Zm9vYmE='],
    ['foobar', 'Zm9vYmFy'],
  ])('decodes the test vector %j of RFC 4648', (plain, encoded) => {
    expect(list(decodeBase64(encoded))).toEqual(list(utf8(plain)));
  });

  it.each([
    'Z',
    'Zg',
    'Zg=',
    'Zg==Zg==',
    '=',
    '====',
    'Z===',
    'Zg=g',
    'Zm9v\n',
    'Zm9-',
    'Zm9_',
    'Zm 9',
    'Zm9é',
    'Zh==',
    'Zm9=',
  ])('refuses %j', (text) => {
    expect(thrownBy(() => decodeBase64(text)).code).toBe('malformed');
  });
});
