import { describe, expect, it } from 'vitest';
import { compareDigest, createDigest, type ChecksumMode } from '../../../src/tsrecorder/store/s3-digest.ts';

const bytes = (text: string): Uint8Array => new TextEncoder().encode(text);

function digestOf(mode: ChecksumMode, ...parts: readonly string[]) {
  const digest = createDigest(mode);
  const each = parts.map((part) => digest.part(bytes(part)));
  return { each, whole: digest.finish() };
}

describe('the digest of content in parts', () => {
  it('equals that of the complete content, and that of the parts, as S3 defines them', () => {
    // CRC-32 of "123456789" is cbf43926
    expect(digestOf('crc32', '12345', '6789').whole).toMatchObject({
      bytes: 9,
      crc32: Buffer.from('cbf43926', 'hex').toString('base64'),
      crc32OfParts: expect.stringMatching(/^[A-Za-z0-9+/]{6}==-2$/),
      md5: undefined,
      md5OfParts: undefined,
    });
    const { each, whole } = digestOf('md5', '123456789');
    expect(whole.md5).toBe('25f9e794323b453885f5181f1b624d0b');
    expect(each[0]?.md5?.toString('hex')).toBe(whole.md5);
    expect(whole.md5OfParts).toMatch(/^[0-9a-f]{32}-1$/);
    expect(digestOf('crc32', '1').each[0]?.md5).toBeUndefined();
  });

  it('is compared with the digest from the store', () => {
    const { whole } = digestOf('md5', 'a', 'b');
    const says = (said: { readonly crc32?: string; readonly etag?: string }): boolean | undefined =>
      compareDigest(whole, { crc32: said.crc32, etag: said.etag });
    expect(says({ crc32: whole.crc32 })).toBe(true);
    expect(says({ crc32: whole.crc32OfParts })).toBe(true);
    expect(says({ crc32: 'AAAAAA==' })).toBe(false);
    expect(says({ crc32: 'AAAAAA==-2' })).toBe(false);
    // a checksum has precedence over an ETag of unknown kind
    expect(says({ crc32: 'AAAAAA==', etag: `"${whole.md5}"` })).toBe(false);
    expect(says({ etag: `"${whole.md5}"` })).toBe(true);
    expect(says({ etag: `"${whole.md5OfParts}"` })).toBe(true);
    expect(says({ etag: '"encrypted"' })).toBeUndefined();
    expect(says({})).toBeUndefined();
  });

  it('does not compare an ETag if no MD5 was requested', () => {
    const { whole } = digestOf('crc32', 'a');
    expect(compareDigest(whole, { crc32: undefined, etag: '"x"' })).toBeUndefined();
  });
});
