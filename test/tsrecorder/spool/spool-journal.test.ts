import { describe, expect, it } from 'vitest';
import {
  encodeEnd,
  encodeMeta,
  encodeNote,
  moveNote,
  parseJournalLine,
  type SpoolMeta,
} from '../../../src/tsrecorder/spool/spool-journal.ts';

const META = {
  nodeId: 'nGW',
  time: '2026-07-29T11:50:50.000000001Z',
  nodeName: 'gw.ts.net',
  address: '100.64.0.9',
  protocol: 'v2',
  token: 'session',
  part: { number: 2, offset: 4096 },
  neighbours: { before: '100.64.0.7:80', after: ['100.64.0.8:80'] },
  uploadedHeaderBytes: 120,
  storedHeaderBytes: 130,
} satisfies SpoolMeta;

const { token: _token, part: _part, neighbours: _neighbours, ...LEAST } = META;

const line = (meta: object): string => JSON.stringify({ meta });

describe('the first line of a journal', () => {
  it.each([META, LEAST, { ...META, protocol: 'v1', neighbours: { after: [] } }] as const)(
    'is parsed as it was written: %j',
    (meta) => {
      const written = encodeMeta(meta);
      expect(written).toMatch(/^[^\n]*\n$/);
      expect(parseJournalLine(written.trimEnd())).toEqual({ kind: 'meta', meta });
    },
  );

  it.each(Object.keys(LEAST))('is invalid if its %s is missing or of another type', (name) => {
    for (const value of [undefined, null, true, [], {}])
      expect(parseJournalLine(line({ ...META, [name]: value }))).toBeUndefined();
  });

  it.each([
    ['token', 5],
    ['part', { number: 2 }],
    ['neighbours', { after: ['100.64.0.8:80', 5] }],
  ])('is invalid if its %s is %j', (name, value) => {
    expect(parseJournalLine(line({ ...META, [name]: value }))).toBeUndefined();
  });
});

describe('another line of a journal', () => {
  it('is a note with its position, as it was uploaded if it is JSON', () => {
    const written = encodeNote({ at: 7, size: 11, text: '{"a":[1e2]}' }, '');
    expect(parseJournalLine(written.trimEnd())).toEqual({
      kind: 'note',
      note: { at: 7, size: 11, text: '{"a":[1e2]}' },
    });
    expect(parseJournalLine(moveNote(written.trimEnd(), 90))).toMatchObject({
      note: { at: 90, size: 11, text: '{"a":[1e2]}' },
    });
    const odd = encodeNote({ at: 7, size: 4, text: undefined }, '{odd');
    expect(parseJournalLine(odd.trimEnd())).toEqual({
      kind: 'note',
      note: { at: 7, size: 4, text: undefined },
    });
  });

  it('is the mark of a normal end', () => {
    expect(parseJournalLine(encodeEnd(99).trimEnd())).toEqual({ kind: 'end', castBytes: 99 });
  });

  it.each([
    '',
    '{',
    '5',
    'null',
    '[]',
    '{}',
    '{"end":5}',
    '{"end":{"castBytes":"99"}}',
    '{"meta":5}',
    '{"at":7,"size":1,"note":',
  ])('is invalid: %s', (text) => {
    expect(parseJournalLine(text)).toBeUndefined();
  });
});
