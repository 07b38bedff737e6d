import { isUtf8 } from 'node:buffer';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { LineBatch } from '../../../src/wire/recorder-api/line-batch.ts';
import { encodeCastEvent, parseCastEvent } from '../../../src/wire/asciicast/event.ts';

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const textOf = (bytes: Uint8Array): string => Buffer.from(bytes).toString();

describe('a batch of lines', () => {
  it('writes output as encodeCastEvent writes its text, whatever characters it has', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'binary', maxLength: 40 }), (text) => {
        const batch = new LineBatch(isUtf8);
        const bytes = utf8(text);
        batch.output(1.25, bytes, 'exact');
        expect(textOf(batch.take())).toBe(encodeCastEvent(1.25, 'o', textOf(bytes)));
      }),
      { numRuns: 500 },
    );
  });

  it('writes bytes that are no text as a line with replacements', () => {
    const batch = new LineBatch(isUtf8);
    batch.output(0.5, Uint8Array.of(0x61, 0xff, 0x22, 0x0a, 0x80), 'text');
    expect(textOf(batch.take())).toBe('[0.5,"o","a\ufffd\\"\\n\ufffd"]\n');
  });

  it('says of bulk how much it is, with its bytes before it, whatever they are', () => {
    const batch = new LineBatch(isUtf8);
    batch.output(0.5, Uint8Array.of(0x61, 0xff), 'bulk');
    batch.output(1, utf8('text'), 'bulk');
    expect(textOf(batch.take())).toBe(
      '{"kind":"raw","base64":"Yf8="}\n[0.5,"o","[not text: 2 B]\\r\\n"]\n' +
        '{"kind":"raw","base64":"dGV4dA=="}\n[1,"o","[not text: 4 B]\\r\\n"]\n',
    );
  });

  it('writes the text that is inside bulk into its line', () => {
    const batch = new LineBatch(isUtf8);
    const noise = Buffer.alloc(20_000, 0xff);
    batch.output(2, Buffer.concat([noise, utf8('cat "/etc/shadow"\r\nroot:x:0:0'), noise]), 'bulk');
    const [, line = ''] = textOf(batch.take()).split('\n');
    expect(JSON.parse(line)).toEqual([2, 'o', '[not text: 40029 B]\r\ncat "/etc/shadow"\r\nroot:x:0:0\r\n']);
  });

  it('keeps the order of all kinds of lines while it grows', () => {
    const batch = new LineBatch(isUtf8);
    const large = Buffer.alloc(99_999, 'é"');
    batch.text('{"version":2,"title":"ü"}\n');
    batch.output(1, Buffer.alloc(100_000, 0xff), 'exact');
    batch.output(2, large, 'exact');
    batch.text('{"kind":"end"}\n');
    const lines = textOf(batch.take()).split('\n');
    expect(lines[0]).toBe('{"version":2,"title":"ü"}');
    expect(lines[1]).toBe(`{"kind":"raw","base64":"${Buffer.alloc(100_000, 0xff).toString('base64')}"}`);
    expect(parseCastEvent(lines[2] ?? '').data).toBe('\ufffd'.repeat(100_000));
    expect(parseCastEvent(lines[3] ?? '').data).toBe(large.toString());
    expect(lines.slice(4)).toEqual(['{"kind":"end"}', '']);
  });

  it('is empty when its lines were taken', () => {
    const batch = new LineBatch(isUtf8);
    batch.text('one\n');
    const one = textOf(batch.take());
    batch.text('two\n');
    expect(one).toBe('one\n');
    expect(textOf(batch.take())).toBe('two\n');
    expect(batch.length).toBe(0);
  });
});
