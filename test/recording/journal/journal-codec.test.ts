import { describe, expect, it } from 'vitest';
import {
  createSealer,
  encodeHead,
  encodeLineBytes,
  END_MARK,
  JournalError,
  MAX_RECORD_BYTES,
  PREFIX_BYTES,
  readJournal,
  RECORD_OVERHEAD,
  type JournalHead,
  type RecordKind,
} from '../../../src/recording/journal/journal-codec.ts';
import { createJournalKey, KEY_BYTES, SALT_BYTES } from '../../../src/recording/journal/journal-key.ts';

const key = createJournalKey(Buffer.alloc(KEY_BYTES, 7));
const head: JournalHead = {
  sessionId: 's1',
  recorders: ['192.0.2.1:80'],
  recorderTags: ['tag:recorder'],
  about: { user: 'alice@example.com' },
};

type Part = readonly [kind: RecordKind, at: number, content: Uint8Array];

function fileOf(parts: readonly Part[], sealedBy = key, salt = Buffer.alloc(SALT_BYTES, 9)): Buffer {
  const sealer = createSealer(sealedBy, { salt });
  const records = parts.flatMap(([kind, at, content]) => sealer.seal(kind, at, content));
  return Buffer.concat([sealer.prefix, ...records]);
}

const utf8 = (text: string): Uint8Array => new TextEncoder().encode(text);
const PARTS: readonly Part[] = [
  ['head', 0, encodeHead(head)],
  ['part', 3, new Uint8Array()],
  ['preamble', 0, utf8('{"version":2}\n')],
  ['lines', 14, utf8('[0,"o","a"]\n')],
  ['acknowledged', 20, encodeLineBytes(30)],
  ['lines', 26, utf8('[1,"o","b"]\n')],
];

function problemOf(file: Uint8Array, with_ = key): string | undefined {
  try {
    readJournal(file, with_);
    return undefined;
  } catch (error) {
    return error instanceof JournalError ? error.problem : String(error);
  }
}

describe('a file of a journal', () => {
  it('has the same format as when this test was written', () => {
    const file = fileOf([['head', 0, encodeHead({ ...head, about: {} })]]);
    expect(file.toString('hex')).toMatchInlineSnapshot(
      `"74636a726e6c330ab2276e7f7bfd18340909090909090909090909090909090909090909090909090909090909090909000000632608af6b9d9dfb5134994af4f09e8a62a803d9ee60000ff160ca6f0ae1e6456bcd6c92a7a803e004b23225207c81d700998ad627e1fb921831fbe99b4584ff7588526cc72c3e227c5852fe00c8e5ed3a8c8ca901085c6c6451fb0da4f038868f90c3cb57d3bc8a5ac324316845ef85703038ff"`,
    );
  });

  it('returns the sealed content', () => {
    const read = readJournal(fileOf(PARTS), key);
    expect(read).toMatchObject({ head, acknowledged: 20, acknowledgedLines: 30, part: 3, ending: 'whole' });
    expect(Buffer.from(read.preamble).toString()).toBe('{"version":2}\n');
    expect(read.lines.map(({ offset, bytes }) => [offset, Buffer.from(bytes).toString()])).toEqual([
      [14, '[0,"o","a"]\n'],
      [26, '[1,"o","b"]\n'],
    ]);
  });

  it('returns the complete records before a cut at any position', () => {
    const file = fileOf(PARTS);
    const ends = PARTS.map((_, index) => fileOf(PARTS.slice(0, index + 1)).length);
    for (let length = 0; length < file.length; length += 1) {
      const cut = file.subarray(0, length);
      if (length < (ends[0] ?? 0)) {
        expect(problemOf(cut), `${length} bytes`).toBe(length <= PREFIX_BYTES ? 'empty' : 'damaged');
        continue;
      }
      const read = readJournal(cut, key);
      expect(read.ending).toBe(ends.includes(length) ? 'whole' : 'cut');
      const whole = PARTS.filter((_, index) => (ends[index] ?? 0) <= length);
      expect(read.lines).toHaveLength(whole.filter(([kind]) => kind === 'lines').length);
    }
  });

  it('returns nothing from the first changed byte on', () => {
    const file = fileOf(PARTS);
    for (let at = 0; at < file.length; at += 1) {
      const changed = Buffer.from(file);
      changed[at] = (changed[at] ?? 0) ^ 1;
      const whole = PARTS.filter((_, index) => fileOf(PARTS.slice(0, index + 1)).length <= at);
      if (whole.length === 0) {
        expect(problemOf(changed), `byte ${at}`).toBeDefined();
        continue;
      }
      const read = readJournal(changed, key);
      expect(read.ending).not.toBe('whole');
      expect(read.lines).toHaveLength(whole.filter(([kind]) => kind === 'lines').length);
    }
  });

  it('rejects a record from another position or another file', () => {
    const sealer = createSealer(key, { salt: Buffer.alloc(SALT_BYTES, 9) });
    const records = PARTS.map(([kind, at, content]) => Buffer.concat(sealer.seal(kind, at, content)));
    const [first = Buffer.alloc(0), second, ...others] = records;
    const without = Buffer.concat([sealer.prefix, first, ...others]);
    expect(readJournal(without, key)).toMatchObject({ ending: 'damaged', lines: [], part: 1 });
    const other = fileOf(PARTS, key, Buffer.alloc(SALT_BYTES, 8)).subarray(PREFIX_BYTES + first.length);
    expect(readJournal(Buffer.concat([sealer.prefix, first, other]), key).ending).toBe('damaged');
    expect(second).toBeDefined();
  });

  it('treats a record with an impossible length as damaged, not as cut', () => {
    const whole = fileOf(PARTS);
    for (const length of [0, 1, 0xff_ff_ff_ff]) {
      const lead = Buffer.alloc(4);
      lead.writeUInt32BE(length);
      const read = readJournal(Buffer.concat([whole, lead, Buffer.alloc(100)]), key);
      expect(read.ending, String(length)).toBe('damaged');
    }
  });

  it('ends at its mark when it overwrites another file with any content', () => {
    const before = fileOf(
      [PARTS[0]!, ['lines', 14, Buffer.alloc(400, 'old')]],
      key,
      Buffer.alloc(SALT_BYTES, 8),
    );
    const sealer = createSealer(key, { over: true, salt: Buffer.alloc(SALT_BYTES, 9) });
    before.set(sealer.prefix);
    let at = sealer.prefix.length;
    for (const [index, [kind, offset, content]] of PARTS.entries()) {
      const record = Buffer.concat(sealer.seal(kind, offset, content));
      const torn = Buffer.from(before);
      before.set(Buffer.concat([record, END_MARK]), at);
      const lines = PARTS.slice(0, index + 1).filter(([name]) => name === 'lines').length;
      expect(readJournal(before, key)).toMatchObject({ ending: 'whole' });
      expect(readJournal(before, key).lines).toHaveLength(lines);
      // cuts a record at each byte, because a process can be killed between two pages of one write
      for (let cut = 1; cut < record.length && index > 0; cut += 1) {
        const half = Buffer.from(torn);
        half.set(record.subarray(0, cut), at);
        const read = readJournal(half, key);
        // if the kill interrupted the write inside the record's length field, the end mark still follows
        expect(read.ending).toBe(cut < 4 ? 'whole' : 'cut');
        expect(read.lines).toHaveLength(lines - (kind === 'lines' ? 1 : 0));
      }
      at += record.length;
    }
    const unmarked = Buffer.from(before);
    unmarked.fill(0xff, at, at + END_MARK.length);
    expect(readJournal(unmarked, key)).toMatchObject({ ending: 'cut', lines: [{}, {}] });
    // a file that is full has no space for the end mark
    expect(readJournal(before.subarray(0, at + 3), key)).toMatchObject({ ending: 'cut', lines: [{}, {}] });
    expect(readJournal(before.subarray(0, at), key)).toMatchObject({ ending: 'whole', lines: [{}, {}] });
  });

  it.each([false, true])('is never treated as empty if its start is damaged (over: %j)', (over) => {
    const sealer = createSealer(key, { over, salt: Buffer.alloc(SALT_BYTES, 9) });
    const records = PARTS.map(([kind, at, content]) => Buffer.concat(sealer.seal(kind, at, content)));
    // with `over`, the journal overwrites a longer file, so old bytes follow the new content
    const whole = Buffer.concat([
      sealer.prefix,
      ...records,
      ...(over ? [END_MARK, Buffer.alloc(2_000, 0xa5)] : []),
    ]);
    expect(readJournal(whole, key)).toMatchObject({ head, ending: 'whole' });
    const end = PREFIX_BYTES + records[0]!.length;
    for (let at = 0; at < end; at += 1) {
      for (const mask of [0x01, 0x80, 0xff]) {
        const changed = Buffer.from(whole);
        changed[at] = (changed[at] ?? 0) ^ mask;
        expect(problemOf(changed), `byte ${at}, mask ${mask}`).toMatch(/^(?:damaged|foreign|newer|key)$/);
      }
    }
    for (const length of [0, 8, 60_000, 0xff_ff_ff_ff]) {
      const changed = Buffer.from(whole);
      changed.writeUInt32BE(length, PREFIX_BYTES);
      expect(problemOf(changed), `length ${length}`).toBe('damaged');
    }
  });

  it('is damaged if its writer was killed before it had written its head over another file', () => {
    const before = fileOf(PARTS, key, Buffer.alloc(SALT_BYTES, 8));
    const sealer = createSealer(key, { over: true, salt: Buffer.alloc(SALT_BYTES, 9) });
    const begun = Buffer.from(before);
    begun.set(Buffer.concat([sealer.prefix, END_MARK]));
    expect(problemOf(begun)).toBe('damaged');
    const first = Buffer.concat(sealer.seal('head', 0, encodeHead(head)));
    for (let cut = END_MARK.length; cut < first.length; cut += 1) {
      begun.set(first.subarray(0, cut), PREFIX_BYTES);
      expect(problemOf(begun), `${cut} bytes`).toBe('damaged');
    }
  });

  it('reports why it cannot be read', () => {
    const other = createJournalKey(Buffer.alloc(KEY_BYTES, 8));
    expect(problemOf(fileOf(PARTS), other)).toBe('key');
    expect(problemOf(utf8('something else altogether, and long enough'))).toBe('foreign');
    expect(problemOf(utf8('tcjrnl7\nwhat only its version can read'))).toBe('newer');
    expect(problemOf(new Uint8Array())).toBe('empty');
    expect(problemOf(fileOf([['lines', 0, utf8('x')]]))).toBe('damaged');
    expect(problemOf(fileOf([['head', 0, utf8('{"sessionId":1}')]]))).toBe('damaged');
  });

  it('contains no plain text except its prefix', () => {
    const file = fileOf(PARTS).toString('latin1');
    for (const secret of ['alice', '192.0.2.1', 'version', 's1', '"o"']) expect(file).not.toContain(secret);
  });

  it('accepts a record of the maximum size, and rejects one byte more', () => {
    const sealer = createSealer(key);
    const most = sealer.seal('lines', 0, new Uint8Array(MAX_RECORD_BYTES));
    expect(most.reduce((sum, piece) => sum + piece.length, 0)).toBe(MAX_RECORD_BYTES + RECORD_OVERHEAD);
    expect(() => sealer.seal('lines', 0, new Uint8Array(MAX_RECORD_BYTES + 1))).toThrow(RangeError);
  });
});
