import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { printableRuns } from '../../src/wire/printable-runs.ts';

const bytesOf = (...parts: readonly (string | readonly number[])[]): Uint8Array =>
  Buffer.concat(parts.map((part) => Buffer.from(part as string)));

describe('text inside binary output', () => {
  it('is found between bytes that are not text', () => {
    expect(printableRuns(bytesOf([0xff, 0xff], 'cat /etc/shadow', [0xff], 'root:x:0\t', [0x00, 0x1b]))).toBe(
      'cat /etc/shadow\r\nroot:x:0\t\r\n',
    );
    expect(printableRuns(bytesOf([0xff], '日本語の文字', [0xed, 0xa0, 0x80], 'naïveté', [0xc3]))).toBe(
      '日本語の文字\r\nnaïveté\r\n',
    );
  });

  it('has at least six characters', () => {
    expect(printableRuns(bytesOf('12345', [0xff], '123456', [0x7f], '日本語日本'))).toBe('123456\r\n');
    expect(printableRuns(new Uint8Array(0))).toBe('');
  });

  it('is the same that a decoder and an expression find', () => {
    const part = fc.oneof(
      fc.string({ unit: 'binary', maxLength: 12 }).map((text) => Buffer.from(text)),
      fc.uint8Array({ maxLength: 6 }).map((bytes) => Buffer.from(bytes)),
    );
    fc.assert(
      fc.property(fc.array(part, { maxLength: 12 }), (parts) => {
        const bytes = Buffer.concat(parts);
        // ill-formed bytes become a control character, which no run contains
        const wanted = (decodeStrictly(bytes).match(/[\t\P{Cc}]+/gu) ?? [])
          .filter((run) => Array.from(run).length >= 6)
          .map((run) => `${run}\r\n`);
        expect(printableRuns(bytes)).toBe(wanted.join(''));
      }),
      { numRuns: 2000 },
    );
  });
});

/** Decodes UTF-8. Each byte that is not part of a valid character becomes NUL. */
function decodeStrictly(bytes: Buffer): string {
  let text = '';
  for (let at = 0; at < bytes.length;) {
    const size = [1, 2, 3, 4].find((length) => isCharacter(bytes.subarray(at, at + length), length)) ?? 0;
    text += size === 0 ? '\0' : bytes.toString('utf8', at, at + size);
    at += Math.max(1, size);
  }
  return text;
}

function isCharacter(bytes: Buffer, length: number): boolean {
  if (bytes.length !== length) return false;
  try {
    return Array.from(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)).length === 1;
  } catch {
    return false;
  }
}
