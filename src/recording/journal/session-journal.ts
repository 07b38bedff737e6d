/**
 * The journal of one session: its unacknowledged output, written to disk before the client sees it. It survives a crash
 * of the process, but not of the machine, because nothing is synced.
 *
 * ```
 *   segment 1            segment 2            segment 3
 *   head lines lines …   head preamble lines… head preamble lines…   ◄── append
 *   └─ removed when ─┘
 *      acknowledged
 * ```
 *
 * Segments are append-only and are only released complete. The next segment overwrites the file that was released
 * last, which costs a fifth of a new file. If a write fails (disk full or broken), the journal refuses it and all
 * later writes, until the recorder acknowledged all refused bytes. In the meantime the upload makes its writers wait,
 * so that each byte that the client sees is on disk or at a recorder.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, openSync, renameSync, writevSync } from 'node:fs';
import { unlink } from 'node:fs/promises';
import { join } from 'node:path';
import { passedThrough } from '../../memory/stream-garbage.ts';
import { completeFrames } from '../../wire/recorder-api/upload-frame.ts';
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

/** Size at which a new segment starts, in bytes. */
export const SEGMENT_BYTES = 4 * 1024 * 1024;
export const JOURNAL_SUFFIX = '.journal';

/** Resources that all journals of a process share. */
export interface JournalRoom {
  /** Returns the directory for new segments. */
  readonly directory: () => string;
  readonly key: JournalKey;
  /** Reserves disk space. @returns false if the limit would be exceeded */
  reserve(bytes: number): boolean;
  release(bytes: number): void;
  /** Reports a failed write. */
  failed(error: unknown): void;
  /** Reports that the journal was closed. */
  forget(journal: SessionJournal): void;
}

interface Segment {
  path: string;
  readonly fd: number;
  readonly sealer: JournalSealer;
  /** Number of written bytes. */
  bytes: number;
  /** Size of the file. The size exceeds `bytes` while the segment overwrites another one. */
  size: number;
  /** True if a record was written incompletely. */
  broken: boolean;
  /** Offset after the last byte of the recording in the segment. */
  end: number;
}

/** The journal of one session. */
export class SessionJournal {
  readonly #room: JournalRoom;
  readonly #name: string;
  readonly #head: JournalHead;
  readonly #frames: boolean;
  #segments: Segment[] = [];
  /** Released segment before the current ones. The next segment overwrites its file. */
  #spare: Segment | undefined;
  /** True if `#spare` existed at the last `note`. */
  #spareIsOld = false;
  #made = 0;
  /** Offset after the last written byte. */
  #end = 0;
  #acknowledged = 0;
  /** Number of bytes of asciicast lines before `#acknowledged`. */
  #acknowledgedLines = 0;
  /** Acknowledged offset that the newest segment contains. */
  #noted = 0;
  #part = 1;
  #over = false;

  /**
   * @param name name of the files, without number and suffix
   * @param frames true if the recording consists of frames, false if of lines
   */
  constructor(room: JournalRoom, name: string, head: JournalHead, frames = false) {
    this.#room = room;
    this.#name = name;
    this.#head = head;
    this.#frames = frames;
  }

  /** Size of the segments on disk, without the released one. */
  get bytes(): number {
    return this.#segments.reduce((sum, { size }) => sum + size, 0);
  }

  /**
   * Appends bytes in one piece or several, which `preamble` has seen already. @returns false if they are not on disk
   */
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

  /** Appends the unacknowledged bytes that are not on disk yet. @returns as `append` */
  complete({ offset, lineBytes, bytes, preamble }: UploadRest): boolean {
    const written = this.#end - offset;
    if (written >= 0 && written <= bytes.length) {
      return this.append(this.#end, bytes.subarray(written), preamble);
    }
    this.acknowledged(offset, lineBytes);
    return this.append(offset, bytes, preamble);
  }

  /**
   * Returns the first bytes that fit into one record. The bytes end at a frame, because a segment is readable only
   * from the start of a frame.
   */
  #record(bytes: Uint8Array): Uint8Array {
    if (bytes.length <= MAX_RECORD_BYTES) return bytes;
    const whole = this.#frames ? completeFrames(bytes, MAX_RECORD_BYTES) : 0;
    return bytes.subarray(0, whole === 0 ? MAX_RECORD_BYTES : whole);
  }

  /**
   * Releases the segments before `offset`, which a recorder acknowledged. `lineBytes`: bytes of asciicast lines before
   * it.
   */
  acknowledged(offset: number, lineBytes = offset): void {
    if (offset <= this.#acknowledged) return;
    this.#acknowledgedLines = lineBytes;
    this.#acknowledged = offset;
    const isDone = (): boolean => this.#segments.length > 1 && (this.#segments[0]?.end ?? Infinity) <= offset;
    // The remaining segments must contain the position in the lines at which they start.
    if (isDone() && this.#frames && !this.#note()) return;
    while (isDone()) {
      const done = this.#segments.shift();
      this.#dropSpare();
      if (done?.broken === true) this.#drop(done);
      else this.#spare = done;
    }
  }

  /** Records the number of the current upload. */
  moved(part: number): void {
    this.#part = part;
    const last = this.#segments.at(-1);
    if (last !== undefined) this.#write(last, 'part', part, NOTHING);
  }

  /**
   * Writes the acknowledged offset, so that those bytes are not delivered again, and deletes an unused released
   * segment. Called periodically.
   */
  note(): void {
    if (this.#spareIsOld) this.#dropSpare();
    this.#spareIsOld = this.#spare !== undefined;
    this.#note();
  }

  /** Writes the acknowledged offset. @returns false if the write failed */
  #note(): boolean {
    const last = this.#segments.at(-1);
    if (this.#noted >= this.#acknowledged) return true;
    if (last === undefined || !this.#writeAcknowledged(last)) return false;
    this.#noted = this.#acknowledged;
    return true;
  }

  /** Deletes the journal. */
  remove(): void {
    if (this.#over) return;
    this.#over = true;
    this.#discard();
    this.#room.forget(this);
  }

  /** Closes the journal and keeps its files for a late delivery. @returns the files */
  leave(): readonly string[] {
    if (this.#over) return [];
    const paths = this.#segments.map(({ path }) => path);
    this.#over = true;
    this.#dropSpare();
    this.#letGo();
    this.#room.forget(this);
    return paths;
  }

  /** Continues with new files after another process took the files, as soon as all earlier bytes are acknowledged. */
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
    // Asynchronous, because the kernel needs time to free megabytes of pages.
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

  /** Returns a segment that overwrites the released file. The file keeps its name until {@link #begun}. */
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
      frames: this.#frames,
    });
  }

  /** Renames an overwritten file after its head is written, so that it sorts after the other segments. */
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

  /** Writes pieces whose space is already reserved. */
  #writePieces(segment: Segment, pieces: readonly Uint8Array[]): boolean {
    const bytes = lengthOf(pieces);
    const at = segment.bytes;
    segment.bytes += bytes;
    // The next record overwrites the end mark.
    const mark = END_MARK.subarray(0, segment.size - segment.bytes);
    // The sealed pieces become garbage as soon as they are written.
    passedThrough(bytes);
    try {
      const all = mark.length === 0 ? pieces : [...pieces, mark];
      if (writevSync(segment.fd, all, at) === bytes + mark.length) return true;
      throw Object.assign(new Error('the disk wrote only a part'), { code: 'ENOSPC' });
    } catch (error) {
      this.#broke(segment, error);
      return false;
    }
  }

  /** Stops writing to a segment, because records after an incomplete one are unreadable. */
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
