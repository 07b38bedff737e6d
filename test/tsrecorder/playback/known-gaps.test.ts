import { describe, expect, it } from 'vitest';
import { readGaps } from '../../../src/tsrecorder/playback/known-gaps.ts';
import { encodeNote } from '../../../src/tsrecorder/spool/spool-journal.ts';
import { encodeAnnotation } from '../../../src/wire/recorder-api/annotation.ts';

const gap = (reason: string, bytes?: number): string =>
  encodeAnnotation({ kind: 'gap', reason, ...(bytes === undefined ? {} : { bytes }) }).trimEnd();
const noteAt = (at: number, text: string): string => encodeNote({ at, size: text.length, text }, text);

async function gapsOf(...lines: readonly string[]): ReturnType<typeof readGaps> {
  const notes = async function* (): AsyncGenerator<Uint8Array> {
    yield Buffer.from(lines.map((line) => `${line.trimEnd()}\n`).join(''));
  };
  return readGaps(notes());
}

describe('the gaps in the notes', () => {
  it('are at the positions of missing output, with size and reason', async () => {
    expect(await gapsOf(noteAt(10, gap('lost', 5)), noteAt(20, gap('cut')))).toEqual([
      { offset: 10, kind: 'gap', text: '5 bytes of output missing: lost' },
      { offset: 20, kind: 'gap', text: 'output missing: cut' },
    ]);
  });

  it('are not taken from other notes, whatever these contain', async () => {
    const lines = [
      '{"at":1,"size":1,"odd":"gap"}',
      '{"at":1,"size":1,"odd":"\\"gap\\""}',
      '{"end":{"castBytes":5},"gap":1}',
      '{"at":1,"size":9,"note":{"gap":1}}',
      '{"at":1,"size":9,"note":{"type":"x","gap":1}}',
      'no note with a "gap"',
      noteAt(7, gap('kept')),
    ];
    expect(await gapsOf(...lines)).toEqual([{ offset: 7, kind: 'gap', text: 'output missing: kept' }]);
  });

  it('are at most a thousand, and are not searched in long notes', async () => {
    const many = Array.from({ length: 1002 }, (_, at) => noteAt(at, gap('x')));
    expect(await gapsOf(...many)).toHaveLength(1000);
    const line = noteAt(1, gap('x')).trimEnd();
    const padded = (length: number): string => `${line.slice(0, -1)}${' '.repeat(length - line.length)}}`;
    expect(await gapsOf(padded(4095))).toHaveLength(1);
    expect(await gapsOf(padded(4096))).toHaveLength(0);
  });
});
