import { describe, expect, it } from 'vitest';
import { http2Fields } from '../src/http2-fields.ts';

describe('fields that a server repeats, over HTTP/2', () => {
  it('are one when they are equal, joined when they are lists, and the first one otherwise', () => {
    expect(http2Fields(['X-Content-Type-Options', 'nosniff', 'x-content-type-options', 'nosniff'])).toEqual([
      'x-content-type-options',
      'nosniff',
    ]);
    expect(http2Fields(['Content-Encoding', 'gzip', 'A', '1', 'content-encoding', 'br'])).toEqual([
      'content-encoding',
      'gzip, br',
      'a',
      '1',
    ]);
    expect(http2Fields(['ETag', '"1"', 'etag', '"2"', 'Content-Type', 'text/plain'])).toEqual([
      'etag',
      '"1"',
      'content-type',
      'text/plain',
    ]);
  });

  it('stay as they are when HTTP/2 may repeat them, and leave the connection behind', () => {
    const fields = ['Set-Cookie', 'a', 'Set-Cookie', 'b', 'Connection', 'close', 'TE', 'x', 'Upgrade', 'y'];
    expect(http2Fields(fields)).toEqual(['set-cookie', 'a', 'set-cookie', 'b']);
  });

  it('are refused when a client would end its whole connection over them', () => {
    const value = 'x'.repeat(60 * 1024 - 1);
    expect(http2Fields(['A', value])).toEqual(['a', value]);
    expect(() => http2Fields(['AB', value])).toThrow('too long for HTTP/2');
  });
});
