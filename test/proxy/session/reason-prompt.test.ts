import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ReasonPrompt } from '../../../src/proxy/session/reason-prompt.ts';

/** Passes bytes to a prompt in pieces of `size` until the prompt returns a reason. */
function type(bytes: Uint8Array, size = bytes.length) {
  const prompt = new ReasonPrompt();
  let echo = '';
  for (let at = 0; at < bytes.length; at += size) {
    const typed = prompt.read(bytes.subarray(at, at + size));
    echo += typed.echo;
    if (typed.reason !== undefined) {
      const rest = Buffer.concat([typed.rest, bytes.subarray(at + size)]).toString();
      return { echo, reason: typed.reason, rest };
    }
  }
  return { echo, reason: undefined, rest: '' };
}

describe('the reason that a user types', () => {
  it.each([
    ['disk full\r', { echo: 'disk full\r\n', reason: 'disk full', rest: '' }],
    ['disk full\nls\r', { echo: 'disk full\r\n', reason: 'disk full', rest: 'ls\r' }],
    ['disc\x7fk\r', { echo: 'disc\b \bk\r\n', reason: 'disk', rest: '' }],
    ['\x7f\b\r \ra\r', { echo: ' a\r\n', reason: 'a', rest: '' }],
    ['größe 🎉\r', { echo: 'größe 🎉\r\n', reason: 'größe 🎉', rest: '' }],
    ['a\x1b[A\u009bb\r', { echo: 'a[A\ufffdb\r\n', reason: 'a[A\ufffdb', rest: '' }],
    ['no end', { echo: 'no end', reason: undefined, rest: '' }],
  ])('%j', (text, expected) => {
    expect(type(Buffer.from(text))).toEqual(expected);
  });

  it('is the same in any pieces', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary' }), fc.integer({ min: 1, max: 9 }), (text, size) => {
        const bytes = Buffer.from(`${text}x\r`);
        expect(type(bytes, size)).toEqual(type(bytes));
      }),
    );
  });

  it('reads a flood of keys without blocking the event loop', () => {
    const keys = Buffer.from(`${'a'.repeat(800)}${'\x7fa'.repeat(50_000)}${'\x7f'.repeat(800)}`);
    const blank = Buffer.from(' '.repeat(800) + '\r'.repeat(50_000));
    const startMs = performance.now();
    expect(type(Buffer.concat([keys, blank, Buffer.from('b\r')])).reason).toBe('b');
    expect(performance.now() - startMs).toBeLessThan(500);
  });

  it.each([
    ['disc\xffx\x7f\x7fk', 'disck'],
    ['a\xe2\x82\x7fb', 'ab'],
    ['a\x80\x80\x80\x80\x80\x7f\x7f\x7f\x7f\x7fb', 'ab'],
  ])('removes invalid UTF-8 from %j', (keys, reason) => {
    expect(type(Buffer.from(`${keys}\r`, 'latin1')).reason).toBe(reason);
  });

  it('has at most 200 characters, and never a control character', () => {
    const { reason = '', echo } = type(Buffer.from(`${'🎉'.repeat(500)}\u001b]0;title\u0007\r`));
    expect(reason).toBe('🎉'.repeat(100));
    expect(echo).toBe(`${'🎉'.repeat(200)}\r\n`);
  });
});
