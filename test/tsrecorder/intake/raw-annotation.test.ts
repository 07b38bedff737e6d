import { isUtf8 } from 'node:buffer';
import { randomBytes } from 'node:crypto';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { isRawAnnotation } from '../../../src/tsrecorder/intake/raw-annotation.ts';
import { encodeNote, encodeNoteBytes } from '../../../src/tsrecorder/spool/spool-journal.ts';
import { encodeAnnotation } from '../../../src/wire/recorder-api/annotation.ts';
import { LineBatch } from '../../../src/wire/recorder-api/line-batch.ts';

const annotationOf = (bytes: Uint8Array): Buffer =>
  Buffer.from(encodeAnnotation({ kind: 'raw', base64: Buffer.from(bytes).toString('base64') }));

describe('exact output', () => {
  it('is detected in the form in which gateways write it, up to their longest line', () => {
    const batch = new LineBatch(isUtf8);
    for (const length of [1, 2, 3, 4, 65_535, 65_536]) {
      const bytes = randomBytes(length).fill(0xff, 0, 1);
      expect(isRawAnnotation(annotationOf(bytes))).toBe(true);
      batch.output(0, bytes, 'exact');
      const made = Buffer.from(batch.take());
      expect(isRawAnnotation(made.subarray(0, made.indexOf('\n') + 1))).toBe(true);
    }
    expect(isRawAnnotation(annotationOf(randomBytes(65_537)))).toBe(false);
  });

  it.each([
    ['nothing', ''],
    ['no output', '{"kind":"raw","base64":""}\n'],
    ['no line feed', '{"kind":"raw","base64":"AAAA"}'],
    ['a wrong length', '{"kind":"raw","base64":"AAA"}\n'],
    ['a quote', '{"kind":"raw","base64":"AA"A"}\n'],
    ['an escape', '{"kind":"raw","base64":"AA\\\\"}\n'],
    ['white space', '{"kind":"raw","base64":"AA A"}\n'],
    ['padding inside', '{"kind":"raw","base64":"AA==AAAA"}\n'],
    ['an invalid character', '{"kind":"raw","base64":"AAé"}\n'],
    ['another member', '{"kind":"raw","base64":"AAAA","more":"AA"}\n'],
    ['another order', '{"base64":"AAAA","kind":"raw"}\n'],
  ])('is not detected in a line that has %s', (_, line) => {
    expect(isRawAnnotation(Buffer.from(line))).toBe(false);
  });

  it('is JSON and an annotation whenever it is detected, and is stored unchanged', () => {
    const near = fc
      .tuple(fc.uint8Array({ minLength: 1, maxLength: 12 }), fc.nat(), fc.nat(255), fc.boolean())
      .map(([bytes, at, byte, changed]) => {
        const line = annotationOf(bytes);
        if (changed) line[at % line.length] = byte;
        return line;
      });
    fc.assert(
      fc.property(near, (line) => {
        if (!isRawAnnotation(line)) return;
        const text = line.toString().trim();
        expect(JSON.parse(text)).toEqual({ kind: 'raw', base64: expect.any(String) });
        const place = { at: 7, size: line.length };
        const pieces = encodeNoteBytes(place, line).map((piece) => Buffer.from(piece));
        expect(Buffer.concat(pieces).toString()).toBe(encodeNote({ ...place, text }, text));
      }),
      { numRuns: 2000 },
    );
  });
});
