import { expect, it } from 'vitest';
import { GrowingBytes } from '../../src/wire/growing-bytes.ts';

it('texts and bytes are unchanged after the buffer has grown', () => {
  const buffer = new GrowingBytes();
  const texts = ['', 'plain', 'käferß 日本語 👍', 'x'.repeat(3_000_000), '\ud800 alone', 'end'];
  for (const text of texts) buffer.utf8(text);
  buffer.bytes(Uint8Array.of(0, 255, 10));
  const written = Buffer.concat([Buffer.from(texts.join('')), Buffer.of(0, 255, 10)]);
  expect(written.equals(buffer.all)).toBe(true);
});

it('a cut leaves the first bytes unchanged, and the next bytes follow them', () => {
  const buffer = new GrowingBytes();
  buffer.utf8('kept');
  buffer.utf8('gone');
  buffer.cut(4);
  buffer.utf8('next');
  expect(Buffer.from(buffer.all).toString()).toBe('keptnext');
});

it('an emptied buffer releases more memory than it may keep', () => {
  const buffer = new GrowingBytes(1024 ** 2);
  buffer.utf8('x'.repeat(2 * 1024 ** 2));
  const large = buffer.all.buffer.byteLength;
  buffer.cut(0);
  expect(buffer.all.buffer.byteLength).toBeLessThan(large / 10);
});
