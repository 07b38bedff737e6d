import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { isUtf8 } from 'node:buffer';
import fc from 'fast-check';
import { beforeEach, describe, expect, it, vi } from 'vitest';
import { createJournalKey, KEY_BYTES } from '../../../src/recording/journal/journal-key.ts';
import { readJournal } from '../../../src/recording/journal/journal-codec.ts';
import { readLeft } from '../../../src/recording/journal/left-journal.ts';
import {
  SEGMENT_BYTES,
  SessionJournal,
  type JournalRoom,
} from '../../../src/recording/journal/session-journal.ts';
import { Preamble } from '../../../src/recording/preamble.ts';
import { FrameLines, type FramePlace } from '../../../src/wire/recorder-api/frame-lines.ts';
import { FrameBatch, MAX_LINE_BYTES_PER_FRAME_BYTE } from '../../../src/wire/recorder-api/upload-frame.ts';
import { framed } from '../../support/recorder-double.ts';

const key = createJournalKey(Buffer.alloc(KEY_BYTES, 7));
const head = { sessionId: 's1', recorders: ['192.0.2.1:80'], recorderTags: [], about: {} };
const HEADER = '{"version":2}\n';
const HEADER_BYTES = framed(HEADER).length;

let directory: string;

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'tcjournal-'));
});

function createRoom(maxBytes = Infinity, where = (): string => directory) {
  const state = { used: 0, errors: [] as unknown[] };
  const room: JournalRoom = {
    directory: where,
    key,
    reserve(bytes) {
      if (state.used + bytes > maxBytes) return false;
      state.used += bytes;
      return true;
    },
    release: (bytes) => (state.used -= bytes),
    failed: (error) => state.errors.push(error),
    forget: () => undefined,
  };
  return { room, state };
}

/**
 * Creates a journal, and stores all written data for comparison. `places` are the positions that an acknowledgement can
 * have.
 */
function createWriter(room: JournalRoom) {
  const journal = new SessionJournal(room, 'j', head);
  const preamble = new Preamble();
  const batch = new FrameBatch();
  let written = Buffer.alloc(0);
  const lines = new FrameLines({ lines: 0, frames: 0 }, isUtf8);
  const places: FramePlace[] = [{ lines: 0, frames: 0 }];
  return {
    journal,
    preamble,
    places,
    get written() {
      return written;
    },
    /** Writes a line (text) or output (bytes). */
    write(content: string | Uint8Array): boolean {
      if (typeof content === 'string') batch.text(content);
      else batch.output(places.length, content, 'exact');
      const pieces = batch.takePieces();
      const bytes = Buffer.concat(pieces);
      const offset = written.length;
      written = Buffer.concat([written, bytes]);
      lines.push(bytes);
      places.push(lines.reached(Infinity));
      preamble.push(bytes);
      return journal.append(offset, pieces, preamble);
    },
    acknowledge(place: FramePlace): void {
      journal.acknowledged(place.frames, place.lines);
    },
    /** Acknowledges at any byte, also within a frame. */
    acknowledgeTo(offset: number): void {
      journal.acknowledged(offset, offset);
    },
  };
}

/** Creates a journal that contains the header. */
function begin() {
  const { room, state } = createRoom();
  const writer = createWriter(room);
  writer.write(HEADER);
  return { room, state, writer };
}

const files = (): string[] =>
  readdirSync(directory)
    .toSorted()
    .map((name) => join(directory, name));
const diskBytes = (): number => files().reduce((sum, path) => sum + statSync(path).size, 0);

describe('the journal of a session', () => {
  it('contains the unacknowledged output', async () => {
    const { room } = createRoom();
    const writer = createWriter(room);
    for (const text of [HEADER, '[0,"o","a"]\n', '[1,"o","b"]\n']) expect(writer.write(text)).toBe(true);
    writer.acknowledgeTo(HEADER_BYTES);
    writer.journal.note();
    writer.journal.moved(4);
    const left = await readLeft(files(), key);
    expect(left).toMatchObject({ head, damaged: [], rest: { offset: HEADER_BYTES, part: 4 } });
    expect(Buffer.from(left!.rest.bytes).toString()).toBe(
      framed('[0,"o","a"]\n', '[1,"o","b"]\n').toString(),
    );
    expect(Buffer.from(left!.rest.preamble.before(HEADER.length)).toString()).toBe(HEADER);
  });

  it('continues in another file when one is full, and removes acknowledged files', async () => {
    const { writer, state } = begin();
    const line = `[0,"o","${'x'.repeat(64 * 1024)}"]\n`;
    while (files().length < 4) expect(writer.write(line)).toBe(true);
    expect(state.used).toBe(diskBytes());
    for (const path of files()) expect(statSync(path).size).toBeLessThan(SEGMENT_BYTES + line.length + 200);
    const left = await readLeft(files(), key);
    expect(writer.written.equals(left!.rest.bytes)).toBe(true);
    const acknowledged = writer.written.length - 10;
    writer.acknowledgeTo(acknowledged);
    writer.journal.note();
    // two files remain, because the newest abandoned file may still be needed
    await expect.poll(() => files().length).toBe(2);
    expect(state.used).toBe(diskBytes());
    writer.journal.note();
    await expect.poll(() => files().length).toBe(1);
    const rest = await readLeft(files(), key);
    expect(rest!.rest.offset).toBe(acknowledged);
    expect(Buffer.from(rest!.rest.preamble.before(Infinity)).toString()).toBe(HEADER);
    expect(Buffer.from(rest!.rest.bytes).toString()).toBe(writer.written.subarray(-10).toString());
    expect(state.used).toBe(diskBytes());
    writer.journal.remove();
    await expect.poll(() => files()).toEqual([]);
    expect(state.used).toBe(0);
  });

  it('overwrites acknowledged files, and always contains the unacknowledged output', async () => {
    const { writer, state } = begin();
    const window = 1.5 * SEGMENT_BYTES;
    const inodes = new Set<number>();
    for (let count = 0; writer.written.length < 6 * SEGMENT_BYTES; count += 1) {
      expect(writer.write(`[${count},"o","${'x'.repeat(300_000 + (count % 7) * 10_000)}"]\n`)).toBe(true);
      writer.acknowledgeTo(writer.written.length - window);
      for (const path of files()) inodes.add(statSync(path).ino);
      if (count % 5 > 0) continue;
      writer.journal.note();
      // repeats the read on errors, because files are removed outside of this thread
      const left = await vi.waitFor(() => readLeft(files(), key));
      const { offset, bytes, preamble } = left!.rest;
      expect(left!.damaged).toEqual([]);
      expect(offset).toBe(Math.max(0, writer.written.length - window));
      expect(writer.written.subarray(offset).equals(bytes)).toBe(true);
      expect(Buffer.from(preamble.before(HEADER.length)).toString()).toBe(HEADER);
      await expect.poll(diskBytes).toBe(state.used);
    }
    expect(inodes.size).toBeLessThan(6);
    writer.journal.remove();
    await expect.poll(() => files()).toEqual([]);
    expect(state.used).toBe(0);
  });

  it('is readable if its process was killed before an overwritten file got its new name', async () => {
    const { writer } = begin();
    const line = `[0,"o","${'x'.repeat(256 * 1024)}"]\n`;
    while (files().length < 3) writer.write(line);
    const acknowledged = Math.floor(1.1 * SEGMENT_BYTES);
    writer.acknowledgeTo(acknowledged);
    const [first = ''] = files();
    while (files().includes(first)) writer.write(line);
    const last = files().at(-1) ?? '';
    // simulates a kill: the file contains only its new head, and still has its old name
    const begun = readFileSync(last).subarray(0, 1_000);
    writeFileSync(first, begun);
    rmSync(last);
    const left = await readLeft(files(), key);
    expect(left).toMatchObject({ damaged: [], rest: { offset: acknowledged } });
    const { bytes } = left!.rest;
    expect(writer.written.subarray(acknowledged, acknowledged + bytes.length).equals(bytes)).toBe(true);
    expect(writer.written.length - acknowledged - bytes.length).toBeLessThanOrEqual(framed(line).length);
  });

  it('leaves no abandoned file to the process or upload that continues', async () => {
    for (const end of ['leave', 'restart'] as const) {
      const folder = mkdtempSync(join(directory, 'e-'));
      const { room, state } = createRoom(Infinity, () => folder);
      const writer = createWriter(room);
      while (readdirSync(folder).length < 2) writer.write(`[0,"o","${'x'.repeat(512 * 1024)}"]\n`);
      writer.acknowledgeTo(SEGMENT_BYTES + 600_000);
      const { bytes } = writer.journal;
      expect(bytes).toBeLessThan(state.used);
      expect(writer.journal[end]()?.length).toBe(end === 'leave' ? 1 : undefined);
      expect(state.used).toBe(0);
      // after `leave`, only the file that is still needed exists; after `restart`, both files exist
      await expect.poll(() => readdirSync(folder).length).toBe(end === 'leave' ? 1 : 2);
    }
  });

  it('rejects output without space, and all later output until everything is acknowledged', async () => {
    const { room, state } = createRoom(2_000);
    const writer = createWriter(room);
    expect(writer.write(HEADER)).toBe(true);
    expect(writer.write(`${'x'.repeat(3_000)}\n`)).toBe(false);
    expect(writer.write('[1,"o","b"]\n')).toBe(false);
    expect(Buffer.from((await readLeft(files(), key))!.rest.bytes).toString()).toBe(
      framed(HEADER).toString(),
    );
    writer.acknowledgeTo(writer.written.length - 1);
    expect(writer.write('[2,"o","c"]\n')).toBe(false);
    writer.acknowledgeTo(writer.written.length);
    expect(writer.write('[3,"o","d"]\n')).toBe(true);
    await expect.poll(() => files().length).toBe(1);
    expect(Buffer.from((await readLeft(files(), key))!.rest.bytes).toString()).toBe(
      framed('[3,"o","d"]\n').toString(),
    );
    expect(state.used).toBe(diskBytes());
  });

  it('accepts the last byte that fits, and not one more', () => {
    const probe = createRoom();
    const first = createWriter(probe.room);
    first.write(HEADER);
    const needed = probe.state.used;
    first.journal.remove();
    for (const [room, taken] of [
      [needed, true],
      [needed - 1, false],
    ] as const) {
      const writer = createWriter(createRoom(room, () => mkdtempSync(join(directory, 'n-'))).room);
      expect(writer.write(HEADER)).toBe(taken);
    }
  });

  it('reports that the disk rejects a write, and tries again after everything is acknowledged', async () => {
    let where = join(directory, 'not-there');
    const { room, state } = createRoom(Infinity, () => where);
    const writer = createWriter(room);
    expect(writer.write(HEADER)).toBe(false);
    expect(state.errors).toHaveLength(1);
    expect(state.used).toBe(0);
    where = directory;
    expect(writer.write('[0,"o","a"]\n')).toBe(false);
    writer.acknowledgeTo(writer.written.length);
    expect(writer.write('[1,"o","b"]\n')).toBe(true);
  });

  it('adds the missing bytes when the recorder is lost', async () => {
    const { room, writer } = begin();
    writer.acknowledgeTo(3);
    const all = Buffer.concat([writer.written, framed('{"kind":"end"}\n')]);
    const { preamble } = writer;
    const end = { bytes: all.subarray(3), offset: 3, lineBytes: 3, preamble, part: 1, resumable: true };
    expect(writer.journal.complete(end)).toBe(end.bytes.length);
    writer.journal.note();
    expect(Buffer.from((await readLeft(files(), key))!.rest.bytes).toString()).toBe(
      all.subarray(3).toString(),
    );
    const other = new SessionJournal(room, 'other', head);
    expect(other.complete(end)).toBe(end.bytes.length);
    const [path = ''] = files().filter((name) => name.includes('other'));
    const { rest } = (await readLeft([path], key))!;
    expect(rest.offset).toBe(3);
    expect(Buffer.from(rest.bytes).toString()).toBe(all.subarray(3).toString());
  });

  it('keeps the bytes on disk if there is no space for the missing bytes', async () => {
    const { room, state } = createRoom(2_000);
    const writer = createWriter(room);
    expect(writer.write(HEADER)).toBe(true);
    expect(writer.write(`${'x'.repeat(3_000)}\n`)).toBe(false);
    const { preamble, written: bytes } = writer;
    const end = { bytes, offset: 0, lineBytes: 0, preamble, part: 1, resumable: true };
    expect(writer.journal.complete(end)).toBe(HEADER_BYTES);
    expect(Buffer.from((await readLeft(files(), key))!.rest.bytes)).toEqual(framed(HEADER));
    expect(state.used).toBe(diskBytes());
    const none = createWriter(createRoom(100).room);
    none.write(HEADER);
    expect(none.journal.complete({ ...end, bytes: none.written })).toBe(0);
  });

  it('reports missing output if a file in the middle is missing', async () => {
    const { writer } = begin();
    while (files().length < 3) writer.write(`[0,"o","${'x'.repeat(512 * 1024)}"]\n`);
    const [first = '', , third = ''] = files();
    const left = await readLeft([first, third], key);
    expect(left!.damaged.map(({ path }) => path)).toEqual([third]);
    const { bytes } = left!.rest;
    expect(writer.written.subarray(0, bytes.length).equals(bytes)).toBe(true);
  });

  it('always contains the accepted output that is not acknowledged', async () => {
    const action = fc.oneof(
      fc.record({ write: fc.integer({ min: 1, max: 3_000 }) }),
      fc.record({ acknowledge: fc.double({ min: 0, max: 1, noNaN: true }) }),
      fc.constant('note' as const),
    );
    await fc.assert(
      fc.asyncProperty(
        fc.array(action, { maxLength: 20 }),
        fc.integer({ min: 400, max: 8_000 }),
        async (actions, max) => {
          const folder = mkdtempSync(join(directory, 'p-'));
          const { room, state } = createRoom(max, () => folder);
          const writer = createWriter(room);
          let acknowledged = 0;
          let refused = false;
          /** Unless data was refused, all data must be acknowledged or on disk after each step. */
          for (const step of actions) {
            if (step === 'note') writer.journal.note();
            else if ('write' in step) refused = !writer.write(`[${'1'.repeat(step.write)}]\n`);
            else {
              acknowledged += Math.floor((writer.written.length - acknowledged) * step.acknowledge);
              writer.acknowledgeTo(acknowledged);
            }
            expect(state.used).toBeLessThanOrEqual(max);
            if (refused || writer.written.length === acknowledged) continue;
            const paths = readdirSync(folder).toSorted();
            const left = await readLeft(
              paths.map((name) => join(folder, name)),
              key,
            );
            const { offset, bytes } = left!.rest;
            expect(offset).toBeLessThanOrEqual(acknowledged);
            expect(writer.written.subarray(offset).equals(bytes)).toBe(true);
          }
        },
      ),
      { numRuns: 60 },
    );
  });
});

describe('the journal of a session in frames', () => {
  const block = (size: number, byte = 0xff): Uint8Array => new Uint8Array(size).fill(byte);

  it('contains the frames and the preamble, and the position of the frames in the lines', async () => {
    const { writer } = begin();
    writer.write(block(10));
    writer.acknowledge(writer.places[1]!);
    writer.journal.note();
    writer.write(block(20));
    const { rest } = (await readLeft(files(), key))!;
    expect([rest.offset, rest.lineBytes]).toEqual([writer.places[1]!.frames, HEADER.length]);
    expect(writer.written.subarray(rest.offset).equals(rest.bytes)).toBe(true);
    expect(Buffer.from(rest.preamble.before(HEADER.length)).toString()).toBe(HEADER);
    expect(readFileSync(files()[0]!, 'latin1')).toMatch(/^tcjrnl3\n/);
  });

  it('knows the number of earlier lines at any time, although files are abandoned and overwritten', async () => {
    const { writer, state } = begin();
    for (let count = 0; writer.written.length < 5 * SEGMENT_BYTES; count += 1) {
      expect(writer.write(block(300_000 + (count % 7) * 10_000, count % 2 === 0 ? 0xff : 0x61))).toBe(true);
      writer.acknowledge(writer.places[Math.max(0, writer.places.length - 1 - (count % 20))]!);
      // reads the files as after a crash. In most rounds, the journal has not noted the latest acknowledgement
      if (count % 9 === 0) writer.journal.note();
      const left = await vi.waitFor(() => readLeft(files(), key));
      const { offset, bytes, lineBytes, preamble } = left!.rest;
      expect(left!.damaged).toEqual([]);
      expect(writer.places).toContainEqual({ frames: offset, lines: lineBytes });
      expect(writer.written.subarray(offset).equals(bytes)).toBe(true);
      expect(Buffer.from(preamble.before(HEADER.length)).toString()).toBe(HEADER);
      await expect.poll(diskBytes).toBe(state.used);
    }
    expect(files().some((path) => readFileSync(path, 'latin1').startsWith('tcjrnl4\n'))).toBe(true);
  });

  it('keeps its content if it cannot write the new start position', async () => {
    const { room, state } = createRoom(Infinity);
    let full = false;
    const reserve = (bytes: number): boolean => !full && room.reserve(bytes, '');
    const writer = createWriter({ ...room, reserve });
    writer.write(HEADER);
    while (files().length < 2) writer.write(block(500_000));
    full = true;
    writer.acknowledge(writer.places.at(-2)!);
    expect(files()).toHaveLength(2);
    const { rest, damaged } = (await readLeft(files(), key))!;
    expect(damaged).toEqual([]);
    expect([rest.offset, rest.lineBytes]).toEqual([0, 0]);
    full = false;
    expect(writer.write(block(1))).toBe(true);
    writer.acknowledge(writer.places.at(-1)!);
    expect(writer.write(block(2))).toBe(true);
    const place = writer.places.at(-2)!;
    for (let count = 0; count < 2; count += 1) writer.journal.note();
    await expect.poll(() => files().length).toBe(1);
    const again = (await readLeft(files(), key))!.rest;
    expect([again.offset, again.lineBytes]).toEqual([place.frames, place.lines]);
    expect(state.used).toBe(diskBytes());
  });

  it('reserves space for the maximum number of earlier lines if its first file is missing', async () => {
    const { writer } = begin();
    while (files().length < 2) writer.write(block(500_000));
    const [, second = ''] = files();
    const { rest } = (await readLeft([second], key))!;
    const place = writer.places.find(({ frames }) => frames === rest.offset)!;
    expect(rest.lineBytes).toBeGreaterThanOrEqual(place.lines);
    expect(rest.lineBytes).toBe(place.frames * MAX_LINE_BYTES_PER_FRAME_BYTE);
    expect(Buffer.from(rest.preamble.before(place.lines)).toString()).toBe(HEADER);
  });

  it('is never read in the other format after a change of its first bytes', () => {
    const { room } = createRoom();
    createWriter(room).write(HEADER);
    const file = readFileSync(files()[0]!);
    file.write('4', 'tcjrnl'.length);
    expect(() => readJournal(file, key)).toThrow('its head cannot be read');
  });

  it('starts records at the starts of frames, even for large writes', async () => {
    const { writer } = begin();
    const batch = new FrameBatch();
    for (let count = 0; count < 20; count += 1) batch.output(count, block(1_000_000), 'exact');
    const bytes = new Uint8Array(batch.take());
    expect(writer.journal.append(writer.written.length, bytes, writer.preamble)).toBe(true);
    const starts = files().flatMap((path) =>
      readJournal(readFileSync(path), key).lines.map(({ offset }) => offset),
    );
    expect(starts.length).toBeGreaterThan(3);
    for (const start of starts.slice(1)) {
      expect((start - writer.written.length) % 1_000_013).toBe(0);
    }
    const { rest } = (await readLeft(files(), key))!;
    expect(Buffer.concat([writer.written, bytes]).equals(rest.bytes)).toBe(true);
  });
});
