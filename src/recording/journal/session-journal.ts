/**
 * What of one recording is not acknowledged, on disk before anybody is shown it: it survives the end of this process
 * (not that of the machine: nothing is synced).
 *
 * ```
 *   segment 1            segment 2            segment 3
 *   head lines lines …   head preamble lines… head preamble lines…   ◄── append
 *   └─ removed when ─┘
 *      acknowledged
 * ```
 *
 * Segments are only appended to, and given up as a whole: the one that was given up last is written over by the next one, which costs a
 * fifth of what new pages of the page cache and giving them back do. What cannot be written (no room, a broken disk) is refused, and
 * so is what follows, until everything that was refused is acknowledged: the upload then lets its writers wait for
 * acknowledgements, so that what is shown is on disk or at a recorder in any case.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, openSync, renameSync, writevSync } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { passedThrough } from '../../memory/stream-garbage.ts';
import { FRAMES_VERSION, wholeFrames } from '../../wire/recorder-api/upload-frame.ts';
import type { UploadRest } from '../late-end.ts';
import type { Preamble } from '../preamble.ts';
import {
  createSealer,
  encodeHead,
  encodeLineBytes,
  END_MARK,
  MAX_RECORD_BYTES,
  PREFIX_BYTES,
  RECORD_OVERHEAD,
  type JournalHead,
  type JournalSealer,
  type RecordKind,
} from './journal-codec.ts';
import { SALT_BYTES, type JournalKey } from './journal-key.ts';

/** A segment that has so many bytes is followed by another one. */
export const SEGMENT_BYTES = 4 * 1024 * 1024;
export const JOURNAL_SUFFIX = '.journal';

/** What all journals of a process share. */
export interface JournalRoom {
  /** Where new segments are made. */
  readonly directory: () => string;
  readonly key: JournalKey;
  /** @returns whether so many more bytes may be on disk */
  reserve(bytes: number): boolean;
  release(bytes: number): void;
  /** Something could not be written. */
  failed(error: unknown): void;
  /** The journal is no more. */
  forget(journal: SessionJournal): void;
}

interface Segment {
  path: string;
  readonly fd: number;
  readonly sealer: JournalSealer;
  /** Written. */
  bytes: number;
  /** Of the file: more than what is written while it is written over another one. */
  size: number;
  /** A record in it is not whole. */
  broken: boolean;
  /** Offset behind the last line in it. */
  end: number;
}

export class SessionJournal {
  readonly #room: JournalRoom;
  readonly #name: string;
  readonly #head: JournalHead;
  readonly #frames: boolean;
  #segments: Segment[] = [];
  /** Was given up, and comes right before the others: whoever finds it needs no more than they have. */
  #spare: Segment | undefined;
  /** It was there when last noted. */
  #spareIsOld = false;
  #made = 0;
  /** Offset behind the last byte that is written. */
  #end = 0;
  #acknowledged = 0;
  /** Bytes of lines that is. */
  #acknowledgedLines = 0;
  /** What the newest segment says is acknowledged. */
  #noted = 0;
  #part = 1;
  #over = false;

  /**
   * @param name of its files, without number and suffix
   * @param frames whether the recording is frames, and not lines
   */
  constructor(room: JournalRoom, name: string, head: JournalHead, frames = false) {
    this.#room = room;
    this.#name = name;
    this.#head = head;
    this.#frames = frames;
  }

  /** On disk, beside what was given up. */
  get bytes(): number {
    return this.#segments.reduce((sum, { size }) => sum + size, 0);
  }

  /** @returns false when the bytes, in pieces or not, are not on disk. `preamble` knows them already. */
  append(offset: number, content: Uint8Array | readonly Uint8Array[], preamble: Preamble): boolean {
    if (this.#over) return false;
    if (offset !== this.#end) {
      if (offset !== this.#acknowledged) return false;
      this.#discard();
      this.#end = offset;
    }
    const pieces = content instanceof Uint8Array ? [content] : content;
    const length = lengthOf(pieces);
    if (length === 0) return true;
    if (length <= MAX_RECORD_BYTES) return this.#appendRecord(pieces, length, preamble);
    const bytes = Buffer.concat(pieces, length);
    for (let start = 0; start < length;) {
      const piece = this.#record(bytes.subarray(start));
      if (!this.#appendRecord([piece], piece.length, preamble)) return false;
      start += piece.length;
    }
    return true;
  }

  #appendRecord(pieces: readonly Uint8Array[], length: number, preamble: Preamble): boolean {
    const segment = this.#segmentFor(preamble);
    if (segment === undefined || !this.#write(segment, 'lines', this.#end, ...pieces)) return false;
    this.#end += length;
    segment.end = this.#end;
    return true;
  }

  /** Writes what is missing of everything that is not acknowledged. @returns as `append` */
  complete({ offset, lineBytes, bytes, preamble }: UploadRest): boolean {
    const written = this.#end - offset;
    if (written >= 0 && written <= bytes.length) {
      return this.append(this.#end, bytes.subarray(written), preamble);
    }
    this.acknowledged(offset, lineBytes);
    return this.append(offset, bytes, preamble);
  }

  /** The beginning of `bytes` that goes into one record. Who finds a segment alone can read it only from the start of a frame. */
  #record(bytes: Uint8Array): Uint8Array {
    if (bytes.length <= MAX_RECORD_BYTES) return bytes;
    const whole = this.#frames ? wholeFrames(bytes, MAX_RECORD_BYTES) : 0;
    return bytes.subarray(0, whole === 0 ? MAX_RECORD_BYTES : whole);
  }

  /** A recorder has everything before `offset`, which is `lineBytes` bytes of lines. */
  acknowledged(offset: number, lineBytes = offset): void {
    if (offset <= this.#acknowledged) return;
    this.#acknowledgedLines = lineBytes;
    this.#acknowledged = offset;
    const isDone = (): boolean => this.#segments.length > 1 && (this.#segments[0]?.end ?? Infinity) <= offset;
    // who finds the others must know where in the lines they begin
    if (isDone() && this.#frames && !this.#note()) return;
    while (isDone()) {
      const done = this.#segments.shift();
      this.#dropSpare();
      if (done?.broken === true) this.#drop(done);
      else this.#spare = done;
    }
  }

  /** The session is at its upload number `part`. */
  moved(part: number): void {
    this.#part = part;
    const last = this.#segments.at(-1);
    if (last !== undefined) this.#write(last, 'part', part, NOTHING);
  }

  /**
   * Writes down what is acknowledged, so that it is not delivered again, and removes what was given up and is not written over. Now
   * and then is enough.
   */
  note(): void {
    if (this.#spareIsOld) this.#dropSpare();
    this.#spareIsOld = this.#spare !== undefined;
    this.#note();
  }

  /** @returns whether it is written down */
  #note(): boolean {
    const last = this.#segments.at(-1);
    if (this.#noted >= this.#acknowledged) return true;
    if (last === undefined || !this.#writeAcknowledged(last)) return false;
    this.#noted = this.#acknowledged;
    return true;
  }

  /** Nothing of it is needed any more. */
  remove(): void {
    if (this.#over) return;
    this.#over = true;
    this.#discard();
    this.#room.forget(this);
  }

  /** Others have the files now, or will find them: they stay as they are, and nothing is written any more. */
  leave(): readonly string[] {
    if (this.#over) return [];
    const paths = this.#segments.map(({ path }) => path);
    this.#over = true;
    this.#dropSpare();
    this.#letGo();
    this.#room.forget(this);
    return paths;
  }

  /** Somebody took the files: what is to come goes to new ones, once everything until now is acknowledged. */
  restart(): void {
    this.#letGo();
    this.#end = -1;
  }

  #letGo(): void {
    const spare = this.#spare === undefined ? [] : [this.#spare];
    this.#spare = undefined;
    for (const { fd, size } of [...spare, ...this.#segments.splice(0)]) {
      closeSync(fd);
      this.#room.release(size);
    }
  }

  #discard(): void {
    this.#dropSpare();
    for (const segment of this.#segments.splice(0)) this.#drop(segment);
  }

  #dropSpare(): void {
    if (this.#spare !== undefined) this.#drop(this.#spare);
    this.#spare = undefined;
    this.#spareIsOld = false;
  }

  #drop({ fd, path, size }: Segment): void {
    closeSync(fd);
    this.#room.release(size);
    // not at once: to give back megabytes of pages takes the kernel a while
    unlink(path).catch(() => undefined);
  }

  #segmentFor(preamble: Preamble): Segment | undefined {
    const last = this.#segments.at(-1);
    if (last !== undefined && last.bytes < SEGMENT_BYTES && !last.broken) return last;
    const spare = this.#spare;
    const segment = spare === undefined ? this.#create() : this.#reuse(spare);
    if (segment === undefined) return undefined;
    this.#segments.push(segment);
    this.#noted = this.#acknowledged;
    const begun =
      this.#writePieces(segment, [segment.sealer.prefix]) &&
      this.#write(segment, 'head', 0, encodeHead(this.#head)) &&
      this.#write(segment, 'part', this.#part, NOTHING) &&
      this.#writeAcknowledged(segment) &&
      this.#write(segment, 'preamble', 0, preamble.before(this.#frames ? Infinity : this.#end)) &&
      this.#begun(segment, spare !== undefined);
    return begun ? segment : undefined;
  }

  #writeAcknowledged(segment: Segment): boolean {
    const content = this.#frames ? encodeLineBytes(this.#acknowledgedLines) : NOTHING;
    return this.#write(segment, 'acknowledged', this.#acknowledged, content);
  }

  #create(): Segment | undefined {
    if (!this.#room.reserve(PREFIX_BYTES)) {
      this.#end = -1;
      return undefined;
    }
    try {
      const path = this.#nextPath();
      const fd = openSync(path, 'wx', 0o600);
      const sealer = this.#sealer(false);
      return { path, fd, sealer, bytes: 0, size: PREFIX_BYTES, broken: false, end: this.#end };
    } catch (error) {
      this.#end = -1;
      this.#room.release(PREFIX_BYTES);
      this.#room.failed(error);
      return undefined;
    }
  }

  /** The file that was given up, to be written over; it keeps its name until {@link #begun}. */
  #reuse(spare: Segment): Segment {
    this.#spare = undefined;
    this.#spareIsOld = false;
    return {
      ...spare,
      sealer: this.#sealer(true),
      bytes: 0,
      end: this.#end,
    };
  }

  #sealer(over: boolean): JournalSealer {
    return createSealer(this.#room.key, randomBytes(SALT_BYTES), {
      over,
      frames: this.#frames ? FRAMES_VERSION : 0,
    });
  }

  /** The segment says what it is a part of, and comes behind the others from now on. */
  #begun(segment: Segment, isReused: boolean): boolean {
    if (!isReused) return true;
    try {
      const path = this.#nextPath();
      renameSync(segment.path, path);
      segment.path = path;
      return true;
    } catch (error) {
      this.#broke(segment, error);
      return false;
    }
  }

  #nextPath(): string {
    this.#made += 1;
    const number = String(this.#made).padStart(6, '0');
    return join(this.#room.directory(), `${this.#name}.${number}${JOURNAL_SUFFIX}`);
  }

  #write(segment: Segment, kind: RecordKind, at: number, ...content: readonly Uint8Array[]): boolean {
    if (segment.broken) return false;
    const more = segment.bytes + lengthOf(content) + RECORD_OVERHEAD - segment.size;
    if (more > 0 && !this.#room.reserve(more)) {
      this.#end = -1;
      return false;
    }
    segment.size += Math.max(0, more);
    return this.#writePieces(segment, segment.sealer.seal(kind, at, ...content));
  }

  /** Their room is reserved. */
  #writePieces(segment: Segment, pieces: readonly Uint8Array[]): boolean {
    const bytes = lengthOf(pieces);
    const at = segment.bytes;
    segment.bytes += bytes;
    // the next record goes over the mark
    const mark = END_MARK.subarray(0, segment.size - segment.bytes);
    // what was sealed is as large as what was read, and as soon done with
    passedThrough(bytes);
    try {
      const all = mark.length === 0 ? pieces : [...pieces, mark];
      if (writevSync(segment.fd, all, at) === bytes + mark.length) return true;
      throw Object.assign(new Error('the disk took a part only'), { code: 'ENOSPC' });
    } catch (error) {
      this.#broke(segment, error);
      return false;
    }
  }

  /** What came behind a record that is not whole could not be read. */
  #broke(segment: Segment, error: unknown): void {
    segment.broken = true;
    this.#end = -1;
    this.#room.failed(error);
  }
}

const NOTHING = new Uint8Array();

function lengthOf(pieces: readonly Uint8Array[]): number {
  return pieces.reduce((sum, piece) => sum + piece.length, 0);
}
